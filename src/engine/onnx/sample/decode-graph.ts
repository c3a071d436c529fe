/** Decode graph: one more token for every running row. */
import { add, concat, type Graph, matmul, mul, softmax, split, type Value } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { joinHeads, splitHeads } from "../model/heads.ts";
import { isWindowed } from "../model/layer-windows.ts";
import type { AttentionLayer, BatchDims, ModelInputs } from "../model/model-inputs.ts";
import type { CachedResult } from "./caching-attention.ts";
import type { AdapterUse } from "./place.ts";
import { cacheNames, samplerGraph } from "./sampler-graph.ts";
import { declareWeights } from "./prepared.ts";
import { getOrThrow } from "../../../base/util/values.ts";

/**
 * Builds the graph for one new token of each of `B` rows.
 *
 * The cache is read-only: keys and values `[B, kv, C, d]` are inputs, only the new tokens' keys and values `[B, kv, 1, d]`
 * are outputs, and the host writes them into the cache. An output with the whole cache would be copied at every token.
 *
 * @param isPrepared - Whether the matrices are constants of the program. @default false
 */
export function decodeGraph(config: ModelConfig, adapters: AdapterUse, isPrepared = false): Graph {
  const dims = { ...decodeDims(config), owners: "owners", isSwitched: isPrepared };
  return samplerGraph(config, adapters, dims, (graph) => declareWeights(graph, config, isPrepared), readOnlyCacheAttention);
}

/** Returns the batch dimensions of one new token of each row. */
export function decodeDims({ heads, kvHeads }: ModelConfig): BatchDims {
  return { batch: "batch", time: 1, rows: "batch", grouped: heads / kvHeads };
}

/** Masks of a cache by name, `[B, 1, 1, C]`: `past_mask` of layers with full attention, `window_mask` of layers with a sliding window. */
export type CacheMasks = ReadonlyMap<"past_mask" | "window_mask", Value>;

/** Declares the masks that the layers of a model read. */
export function cacheMasks(graph: Graph, config: ModelConfig): CacheMasks {
  const names = new Set(Array.from({ length: config.layers }, (_, layer) => maskName(config, layer)));
  return new Map([...names].map((name) => [name, graph.input(name, ["batch", 1, 1, "capacity"])]));
}

/** Returns the name of the mask that a layer reads. */
export function maskName(config: ModelConfig, layer: number): "past_mask" | "window_mask" {
  return isWindowed(config, layer) ? "window_mask" : "past_mask";
}

/** Returns the attention layer over the cache and the new token. */
function readOnlyCacheAttention(inputs: ModelInputs): AttentionLayer {
  const { graph, config } = inputs;
  const { kvHeads, headSize: d } = config;
  const masks = cacheMasks(graph, config);
  return (layer, projected) => {
    const names = cacheNames(layer);
    const { mixed, keys, values } = attendToCache(inputs, layer, projected, {
      keys: graph.input(names.pastKeys, ["batch", kvHeads, "capacity", d]),
      values: graph.input(names.pastValues, ["batch", kvHeads, "capacity", d]),
      mask: getOrThrow(masks, maskName(config, layer)),
    });
    graph.directOutput(names.keys, keys);
    graph.directOutput(names.values, values);
    return mixed;
  };
}

/**
 * Computes a layer's attention of one new token of each row over the cache and itself.
 *
 * Scores over the cache and the new token's score share one softmax, so masked capacity contributes exact zeros.
 *
 * @param cache - Keys and values `[B, kv, C, d]`, and a mask `[B, 1, 1, C]`: 0 for tokens that the new one attends to, very
 *   negative elsewhere.
 * @returns Rows `[B, h·d]`, and keys and values `[B, kv, 1, d]` of the new tokens.
 */
export function attendToCache(
  inputs: ModelInputs,
  layer: number,
  projected: Value,
  cache: { readonly keys: Value; readonly values: Value; readonly mask: Value },
): CachedResult {
  const { queries, keys, values } = splitHeads(inputs, layer, projected);
  const scale = inputs.config.scales.attention;
  const past = add(matmul(queries, cache.keys, { transposeB: true, scale }), cache.mask);
  const now = matmul(queries, keys, { transposeB: true, scale });
  const [pastWeights, ownWeight] = split(softmax(concat([past, now], 3, "width")), 3, ["capacity", 1]);
  return { mixed: joinHeads(inputs, add(matmul(pastWeights, cache.values), mul(ownWeight, values))), keys, values };
}
