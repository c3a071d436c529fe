/** Attention of prefill and decode graphs that extend the cache themselves. */
import { cachedAttention, cachedAttentionByRow, concat, type Dim, reshape, split, transpose, type Value } from "../graph/index.ts";
import { normalizeHeads, rotate } from "../model/heads.ts";
import { isWindowed } from "../model/layer-windows.ts";
import type { AttentionLayer, ModelInputs } from "../model/model-inputs.ts";
import { rotationOf } from "../model/rope.ts";
import { cacheNames } from "./sampler-graph.ts";

/** Capacities of the cache before and after a run. */
export interface CacheDims {
  /** Null if nothing is in the cache. */
  readonly past: Dim | null;
  readonly present: Dim;
  /** Whether several rows with cached tokens may have several new tokens each. @default false */
  readonly isByRow?: boolean | undefined;
}

/** Cache of a fixed capacity. */
export const FIXED: CacheDims = { past: "capacity", present: "capacity" };

/** Cache of a layer, and the lengths of its rows. */
export interface LayerCacheInputs {
  /** Cached keys and values, `[B, kv, C, d]`; null if nothing is in the cache. */
  readonly past: { readonly keys: Value; readonly values: Value } | null;
  /** Capacity after the run. */
  readonly capacity: Dim;
  /** See {@link cachedAttention}. */
  readonly lastPositions: Value;
  readonly total: Value;
}

/** Result of a layer's attention over a cache: rows `[R, h·d]`, and keys and values for the cache. */
export interface CachedResult {
  readonly mixed: Value;
  readonly keys: Value;
  readonly values: Value;
}

/**
 * Returns the attention layer over a cache that the graph extends.
 *
 * The cache, `[B, kv, C, d]` for keys and values, is an input as `past_k0`, `past_v0`, … and an output as `k0`, `v0`, … with the new tokens
 * in it; without `past`, the cache is an output only. If input and output are the same memory, only the new tokens are written.
 * `last_places` `[B]` and `total` `[1]` give the lengths of the rows after the pass, see {@link cachedAttention}.
 */
export function cachingAttention(inputs: ModelInputs, { past, present, isByRow = false }: CacheDims = FIXED): AttentionLayer {
  const { graph, config } = inputs;
  const { kvHeads, headSize: d } = config;
  const lastPositions = graph.input("last_places", ["batch"], "int32");
  const total = graph.input("total", [1], "int32");
  const cacheInput = (name: string, capacity: Dim) => graph.input(name, ["batch", kvHeads, capacity, d]);
  return (layer, projected) => {
    const names = cacheNames(layer);
    const pastInputs = past === null ? null : { keys: cacheInput(names.pastKeys, past), values: cacheInput(names.pastValues, past) };
    const cache = { past: pastInputs, capacity: present, lastPositions, total };
    const { mixed, keys, values } = attendAndExtend(inputs, layer, projected, { cache, isByRow });
    graph.directOutput(names.keys, keys);
    graph.directOutput(names.values, values);
    return mixed;
  };
}

/**
 * Computes a layer's attention over a cache, and the cache with the new tokens. The op applies the rotary embedding itself if it supports
 * the head size.
 */
export function attendAndExtend(
  inputs: ModelInputs,
  layer: number,
  projected: Value,
  { cache, isByRow }: { readonly cache: LayerCacheInputs; readonly isByRow: boolean },
): CachedResult {
  const { config, dims, rotary } = inputs;
  const { heads, kvHeads, headSize: d, rotarySize } = config;
  const sets = rotationOf(config, layer);
  // The op rotates by the position in the cache, so it cannot choose between the two tables of "longrope".
  const isPlain = sets !== null && sets.queries === sets.keys && config.rope.kind !== "longrope";
  const doesOpRotate = isPlain && rotarySize === d && d % 16 === 0;
  const normed = normalized(inputs, layer, projected);
  const { mixed, keys, values } = (isByRow ? cachedAttentionByRow : cachedAttention)({
    projected: reshape(sets !== null && !doesOpRotate ? rotated(inputs, layer, normed) : normed, [
      dims.batch,
      dims.time,
      (heads + 2 * kvHeads) * d,
    ]),
    ...cache,
    rotary: doesOpRotate ? rotary.get(sets.keys) : undefined,
    heads,
    kvHeads,
    headSize: d,
    scale: config.scales.attention,
    window: isWindowed(config, layer) ? config.window!.size : undefined,
  });
  return { mixed: reshape(mixed, [dims.rows, heads * d]), keys, values };
}

/** Normalizes the query and key heads of a projection `[R, (h + 2·kv)·d]`, if the model normalizes each head. */
function normalized(inputs: ModelInputs, layer: number, projected: Value): Value {
  const { config, dims } = inputs;
  if (config.queryKeyNorm !== "head") return projected;
  return normalizeHeads(inputs, layer, reshape(projected, [dims.rows, config.heads + 2 * config.kvHeads, config.headSize]), 1);
}

/** Rotates the query and key heads of a projection. */
function rotated(inputs: ModelInputs, layer: number, projected: Value): Value {
  const { heads, kvHeads, headSize } = inputs.config;
  const { batch, time } = inputs.dims;
  const perHead = transpose(reshape(projected, [batch, time, heads + 2 * kvHeads, headSize]), [0, 2, 1, 3]);
  const [rotating, values] = split(perHead, 1, [heads + kvHeads, kvHeads]);
  return transpose(concat([rotate(inputs, layer, rotating), values], 1, heads + 2 * kvHeads), [0, 2, 1, 3]);
}
