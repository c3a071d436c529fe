/** The graphs of the sampler: a prompt in one go, and one more token for every running row. */
import { add, concat, type Dim, gatherRows, Graph, logSoftmax, matmul, reshape, softmax, split, type Value } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { adapterNames, baseLayout } from "../model/parameters.ts";
import { type Attention, GROUPED, logits, type LowRankTerm, transformer, weightInputs } from "../model/transformer.ts";

/** Variants of the graph. */
export interface DecodeGraphOptions {
  /** Whether the rows have a past in the cache. */
  readonly hasCache: boolean;
  /** Whether rows bring low-rank adapters, each row its own. */
  readonly hasAdapters: boolean;
}

/** Names of a layer's inputs and outputs. */
export const cacheNames = (layer: number) => ({
  pastKeys: `past_k${layer}`,
  pastValues: `past_v${layer}`,
  keys: `k${layer}`,
  values: `v${layer}`,
});

/**
 * Builds the graph for `B` rows of `T` new tokens each.
 *
 * The cache is read only: keys `[B, kv, d, C]` and values `[B, kv, C, d]` come in, only the new tokens' keys and values
 * `[B, kv, T, d]` go out, and the host writes them where they belong. Scores over the cache and over the new tokens meet
 * in one softmax, so capacity that is masked (`past_mask` `[B, 1, 1, C]`) contributes exact zeros.
 *
 * Outputs `logits` and `logprobs` `[S, V]`: of the rows that `last` names, and their `log softmax`.
 */
export function decodeGraph(config: ModelConfig, { hasCache, hasAdapters }: DecodeGraphOptions): Graph {
  const graph = new Graph();
  const tokens = graph.input("tokens", ["batch", "time"], "int64");
  const half = config.headSize / 2;
  const weights = weightInputs(graph, baseLayout(config));
  const inputs = {
    graph,
    config,
    dims: { batch: "batch", time: "time", rows: "rows" },
    weights,
    lowRank: hasAdapters ? gatheredAdapter(graph) : undefined,
    positions: graph.input("positions", ["batch", "time"], "int64"),
    cos: graph.input("cos", [config.contextLength, half]),
    sin: graph.input("sin", [config.contextLength, half]),
  };
  const hidden = transformer(inputs, tokens, cachedAttention(graph, config, hasCache));
  const chosen = gatherRows(hidden, graph.input("last", ["selected"], "int64"));
  const raw = logits(inputs, chosen);
  graph.output("logits", raw);
  graph.output("logprobs", logSoftmax(raw));
  return graph;
}

/**
 * `(x·A[o])·B[o]` with each row's own `A` and `B`, picked from stacks `[adapters, in, rank]` and `[adapters, rank, out]` by
 * `adapter` `[B]`. Picking costs a copy, but a row's product is then the same whatever other adapters are loaded, to the
 * last bit; adapters side by side in one wide product are not.
 */
function gatheredAdapter(graph: Graph): LowRankTerm {
  const owner = graph.input("adapter", ["batch"], "int64");
  const pick = (name: string, shape: readonly Dim[]) =>
    graph.record({
      op: "Gather",
      inputs: [graph.input(name, ["adapters", ...shape]), owner],
      attributes: { axis: { int: 0 } },
      outputs: [{ shape: ["batch", ...shape] }],
    })[0]!;
  return (linear, part, x) => {
    const { a, b } = adapterNames(linear, part);
    const outputSize = linear.parts[part]!.outputSize;
    const perRow = reshape(x, ["batch", "time", linear.inputSize]);
    const delta = matmul(matmul(perRow, pick(a, [linear.inputSize, "rank"])), pick(b, ["rank", outputSize]));
    return reshape(delta, ["rows", outputSize]);
  };
}

function cachedAttention(graph: Graph, config: ModelConfig, hasCache: boolean): Attention {
  const { kvHeads, headSize: d } = config;
  const mask = graph.input("mask", ["batch", 1, GROUPED, "time"]);
  const pastMask = hasCache ? graph.input("past_mask", ["batch", 1, 1, "capacity"]) : null;
  const scale = 1 / Math.sqrt(d);
  return (layer, queries, keys, values) => {
    const names = cacheNames(layer);
    graph.output(names.keys, keys);
    graph.output(names.values, values);
    const scores: Value = add(matmul(queries, keys, { transposeB: true, scale }), mask);
    if (!pastMask) return matmul(softmax(scores), values);
    const pastKeys = graph.input(names.pastKeys, ["batch", kvHeads, d, "capacity"]);
    const pastValues = graph.input(names.pastValues, ["batch", kvHeads, "capacity", d]);
    const pastScores = add(matmul(queries, pastKeys, { scale }), pastMask);
    const [past, now] = split(softmax(concat([pastScores, scores], 3, "width")), 3, ["capacity", "time"]);
    return add(matmul(past!, pastValues), matmul(now!, values));
  };
}
