/** Prefill and decode graphs of a device (GPU) with the cache in its memory: each run returns the whole cache with the new tokens in it. */
import type { Graph, Value } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Layout } from "../model/parameters.ts";
import { type ModelInputs, weightInputs } from "../model/model-inputs.ts";
import { type CacheDims, cachingAttention, FIXED } from "./caching-attention.ts";
import { drawOutputs } from "./draw-graph.ts";
import type { ForwardKind } from "./forward.ts";
import { distributionOutputs, samplerGraph } from "./sampler-graph.ts";

/** Capacities of the caches. The cache of a prompt has room for the tokens so far. */
const CACHES: Readonly<Record<ForwardKind, CacheDims>> = {
  prompt: { past: null, present: "total_tokens" },
  continuation: { past: "past", present: "total_tokens" },
  decode: FIXED,
  draw: FIXED,
};

/**
 * Builds a graph for `T` new tokens of each of `B` rows, with the cache of {@link cachingAttention}; `T` is 1 for decoding. The graph
 * `draw` returns drawn tokens, the graph `decode` distributions, too: see {@link drawOutputs}.
 *
 * @param layout - Layout of the weights, whole or in pieces.
 */
export function deviceGraph(kind: ForwardKind, config: ModelConfig, hasAdapters: boolean, layout: Layout): Graph {
  const isDecoding = kind === "decode" || kind === "draw";
  const dims = isDecoding ? { batch: "batch", time: 1, rows: "batch" } : { batch: "batch", time: "time", rows: "rows" };
  const attend = (inputs: ModelInputs) => cachingAttention(inputs, CACHES[kind]);
  const declareWeights = (graph: Graph) => ({ weights: weightInputs(graph, layout) });
  const graph = samplerGraph(config, hasAdapters ? "several" : "none", dims, declareWeights, attend, outputsOf(kind), !isDecoding);
  if (isDecoding) graph.smallDims.add("batch");
  return graph;
}

/** Returns the function that declares the outputs of a kind of graph: distributions, drawn tokens or both. */
function outputsOf(kind: ForwardKind): (logits: Value) => void {
  if (kind === "draw") return drawOutputs;
  if (kind !== "decode") return distributionOutputs;
  return (logits) => {
    distributionOutputs(logits);
    drawOutputs(logits);
  };
}
