/** Attention of prefill and decode graphs that extend the cache themselves. */
import { cachedAttention, concat, type Dim, reshape, rmsNorm, rotaryEmbedding, split, transpose, type Value } from "../graph/index.ts";
import type { AttentionLayer, ModelInputs } from "../model/transformer.ts";
import { cacheNames } from "./sampler-graph.ts";

/** Capacities of the cache before and after a run. */
export interface CacheDims {
  /** Null if nothing is in the cache. */
  readonly past: Dim | null;
  readonly present: Dim;
}

/** Cache of a fixed capacity. */
export const FIXED: CacheDims = { past: "capacity", present: "capacity" };

/**
 * Returns the attention layer over a cache that the graph extends. The op applies the rotary embedding itself if it supports the head size.
 *
 * The cache, `[B, kv, C, d]` for keys and values, is an input as `past_k0`, `past_v0`, … and an output as `k0`, `v0`, … with the new tokens
 * in it; without `past`, the cache is an output only. If input and output are the same memory, only the new tokens are written.
 * `last_places` `[B]` and `total` `[1]` give the lengths of the rows after the pass, see {@link cachedAttention}.
 */
export function cachingAttention(inputs: ModelInputs, { past, present }: CacheDims = FIXED): AttentionLayer {
  const { graph, config, dims, cos, sin } = inputs;
  const { heads, kvHeads, headSize: d, unrotatedLayers } = config;
  const lastPlaces = graph.input("last_places", ["batch"], "int32");
  const total = graph.input("total", [1], "int32");
  const cacheInput = (name: string, capacity: Dim) => graph.input(name, ["batch", kvHeads, capacity, d]);
  return (layer, projected) => {
    const names = cacheNames(layer);
    const isRotated = !unrotatedLayers.includes(layer);
    const doesOpRotate = isRotated && d % 16 === 0;
    const normed = normalizeHeads(inputs, layer, projected);
    const { mixed, keys, values } = cachedAttention({
      projected: reshape(isRotated && !doesOpRotate ? rotateHeads(inputs, normed) : normed, [
        dims.batch,
        dims.time,
        (heads + 2 * kvHeads) * d,
      ]),
      past: past === null ? null : { keys: cacheInput(names.pastKeys, past), values: cacheInput(names.pastValues, past) },
      capacity: present,
      lastPositions: lastPlaces,
      total,
      rotary: doesOpRotate ? { cos, sin } : undefined,
      heads,
      kvHeads,
      headSize: d,
    });
    graph.output(names.keys, keys);
    graph.output(names.values, values);
    return reshape(mixed, [dims.rows, heads * d]);
  };
}

/** Normalizes the query and key heads of a projection `[R, (h + 2·kv)·d]`, if the model has query-key norm. */
function normalizeHeads({ config, weights, dims }: ModelInputs, layer: number, projected: Value): Value {
  if (!config.hasQueryKeyNorm) return projected;
  const { heads, kvHeads, headSize, normEpsilon } = config;
  const all = reshape(projected, [dims.rows, heads + 2 * kvHeads, headSize]);
  const [queries, keys, values] = split(all, 1, [heads, kvHeads, kvHeads]);
  const norm = (part: Value, name: string) => rmsNorm(part, weights.get(`layer${layer}_${name}`)!, normEpsilon);
  return concat([norm(queries!, "qnorm"), norm(keys!, "knorm"), values!], 1, heads + 2 * kvHeads);
}

/** Rotates the query and key heads of a projection. */
function rotateHeads({ config, dims, positions, cos, sin }: ModelInputs, projected: Value): Value {
  const { heads, kvHeads, headSize } = config;
  const perHead = transpose(reshape(projected, [dims.batch, dims.time, heads + 2 * kvHeads, headSize]), [0, 2, 1, 3]);
  const [looking, values] = split(perHead, 1, [heads + kvHeads, kvHeads]);
  const rotated = rotaryEmbedding(looking!, positions, cos, sin);
  return transpose(concat([rotated, values!], 1, heads + 2 * kvHeads), [0, 2, 1, 3]);
}
