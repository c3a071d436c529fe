/** What the graphs of prefill and decoding share: everything but attention. */
import { type Dim, gatherRows, Graph, logSoftmax, matmul, reshape, softmax } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { adapterNames, baseLayout } from "../model/parameters.ts";
import { type BatchDims, logits, type LowRankTerm, type Mixer, type ModelInputs, transformer, weightInputs } from "../model/transformer.ts";

/** Names of a layer's inputs and outputs. */
export const cacheNames = (layer: number) => ({
  pastKeys: `past_k${layer}`,
  pastValues: `past_v${layer}`,
  keys: `k${layer}`,
  values: `v${layer}`,
});

/**
 * Builds a graph for `B` rows of `T` tokens each, `tokens` and `positions` `[B, T]`.
 *
 * Outputs `logits`, `logprobs` and `probs` `[S, V]`: of the tokens that `last` names by flat index, their `log softmax` and
 * their `softmax`.
 *
 * @param hasAdapters - Whether rows bring low-rank adapters, each row its own.
 * @param attend - Makes the attention, which reads and writes the cache.
 */
export function samplerGraph(config: ModelConfig, hasAdapters: boolean, dims: BatchDims, attend: (inputs: ModelInputs) => Mixer): Graph {
  const graph = new Graph();
  const { batch, time } = dims;
  const tokens = graph.input("tokens", [batch, time], "int64");
  const half = config.headSize / 2;
  const inputs: ModelInputs = {
    graph,
    config,
    dims,
    weights: weightInputs(graph, baseLayout(config)),
    lowRank: hasAdapters ? gatheredAdapter(graph, dims) : undefined,
    positions: graph.input("positions", [batch, time], "int64"),
    cos: graph.input("cos", ["positions", half]),
    sin: graph.input("sin", ["positions", half]),
  };
  const hidden = transformer(inputs, reshape(tokens, [dims.rows]), attend(inputs));
  const raw = logits(inputs, gatherRows(hidden, graph.input("last", ["selected"], "int64")));
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
