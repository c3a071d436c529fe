/** What the graphs of prefill and decoding share: everything but attention. */
import { type Dim, gatherRows, Graph, logSoftmax, matmul, reshape, softmax, type Value } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { adapterNames } from "../model/parameters.ts";
import { type BatchDims, logits, type LowRankTerm, type Mixer, type ModelInputs, type Product, transformer } from "../model/transformer.ts";
import { givenWeights } from "./wide.ts";

/** Names of a layer's inputs and outputs. */
export const cacheNames = (layer: number) => ({
  pastKeys: `past_k${layer}`,
  pastValues: `past_v${layer}`,
  keys: `k${layer}`,
  values: `v${layer}`,
});

/** How rows attend, and where not all that `last` names have distributions, which of those do. */
export interface Attending {
  readonly mixer: Mixer;
  readonly asked?: Value | undefined;
}

/**
 * Builds a graph for `B` rows of `T` tokens each, `tokens` and `positions` `[B, T]`.
 *
 * Outputs `logits`, `logprobs` and `probs` `[S, V]`: of the tokens that `last` names by flat index, their `log softmax` and
 * their `softmax`.
 *
 * @param hasAdapters - Whether rows bring low-rank adapters, each row its own.
 * @param product - How rows are multiplied by matrices, for a wide model.
 * @param attend - Makes the attention, which reads and writes the cache.
 */
export function samplerGraph(
  config: ModelConfig,
  hasAdapters: boolean,
  dims: BatchDims,
  product: Product | undefined,
  attend: (inputs: ModelInputs) => Attending,
): Graph {
  const graph = new Graph();
  const { batch, time } = dims;
  const tokens = graph.input("tokens", [batch, time], "int64");
  const half = config.headSize / 2;
  const inputs: ModelInputs = {
    graph,
    config,
    dims,
    weights: givenWeights(graph, config),
    product,
    lowRank: hasAdapters ? gatheredAdapter(graph, dims) : undefined,
    positions: graph.input("positions", [batch, time], "int64"),
    cos: graph.input("cos", ["positions", half]),
    sin: graph.input("sin", ["positions", half]),
  };
  const { mixer, asked } = attend(inputs);
  const hidden = transformer(inputs, reshape(tokens, [dims.rows]), mixer);
  const all = logits(inputs, gatherRows(hidden, graph.input("last", ["selected"], "int64")));
  const raw = asked ? gatherRows(all, asked) : all;
  graph.output("logits", raw);
  graph.output("logprobs", logSoftmax(raw));
  graph.output("probs", softmax(raw));
  return graph;
}

/**
 * `(x·A[o])·B[o]` with each row's own `A` and `B`, picked from stacks `[adapters, in, rank]` and `[adapters, rank, out]` by
 * `adapter` `[B]`. Picking costs a copy, but a row's product is then the same whatever other adapters are loaded, to the
 * last bit; adapters side by side in one wide product are not.
 */
function gatheredAdapter(graph: Graph, { batch, time, rows }: BatchDims): LowRankTerm {
  const owner = graph.input("adapter", [batch], "int64");
  const pick = (name: string, shape: readonly Dim[]) =>
    graph.record({
      op: "Gather",
      inputs: [graph.input(name, ["adapters", ...shape]), owner],
      attributes: { axis: { int: 0 } },
      outputs: [{ shape: [batch, ...shape] }],
    })[0]!;
  return (linear, part, x) => {
    const { a, b } = adapterNames(linear, part);
    const outputSize = linear.parts[part]!.outputSize;
    const perRow = reshape(x, [batch, time, linear.inputSize]);
    const delta = matmul(matmul(perRow, pick(a, [linear.inputSize, "rank"])), pick(b, ["rank", outputSize]));
    return reshape(delta, [rows, outputSize]);
  };
}
