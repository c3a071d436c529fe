import { ShapeError } from "../../../../errors.ts";
import { type Dim, formatShape, type Value } from "../graph.ts";

/** Operands of {@link cachedAttention}. */
export interface CachedAttention {
  /** Concatenated queries, keys and values of the new tokens, `[B, T, (h + 2·kv)·d]`. */
  readonly projected: Value;
  /** Cached keys with capacity `C`, `[B, kv, C, d]`; each row's tokens start at position 0. */
  readonly pastKeys: Value;
  /** Cached values, `[B, kv, C, d]`. */
  readonly pastValues: Value;
  /** Position of each row's last token: the number of tokens including new ones, minus one; `[B]`, int32. */
  readonly lastPositions: Value;
  /** Number of tokens of the longest row, including new ones; `[1]`, int32. */
  readonly total: Value;
  /** Tables `[positions, d/2]` for rotating queries and keys in this op; `d` must be a multiple of 16. @default no rotation */
  readonly rotary?: { readonly cos: Value; readonly sin: Value } | undefined;
  /** Number of query heads, `h`. */
  readonly heads: number;
  /** Number of key and value heads, `kv`. */
  readonly kvHeads: number;
}

/**
 * Computes causal attention of new tokens over cached and new tokens, `softmax(q·kᵀ/√d)·v` per head, and appends the new tokens to the
 * cache. If inputs and outputs of the cache share memory, only the new tokens are written. Has no gradient.
 *
 * With more than one row, either every row has one new token, or no row has cached tokens (`total` = T). `d` must be a multiple of 8.
 * The op is batch-invariant: a row's result is bit-identical for any other rows and any capacity. If a row is computed in pieces of at
 * least two tokens, the result is also bit-identical for any split.
 *
 * @returns Result `mixed`, `[B, T, h·d]`, and the updated cache.
 * @throws ShapeError `E_SHAPE` if projection and cache do not match, or `d` is not a multiple of 8.
 */
export function cachedAttention(operands: CachedAttention): { mixed: Value; keys: Value; values: Value } {
  const { projected, pastKeys, pastValues, lastPositions: lastPlaces, total, rotary, heads, kvHeads } = operands;
  const { graph } = projected;
  const [batch, time, width] = projected.shape;
  const headSize = pastKeys.shape[3];
  if (typeof headSize !== "number" || headSize % 8 !== 0 || width !== (heads + 2 * kvHeads) * headSize) {
    throw new ShapeError(
      `Expected a projection [B, T, (h + 2·kv)·d] and a cache [B, kv, C, d] with d a multiple of 8, got ${formatShape(projected.shape)} and ${formatShape(pastKeys.shape)}`,
    );
  }
  const absent = graph.absent();
  const [mixed, keys, values] = graph.record({
    op: "GroupQueryAttention",
    domain: "com.microsoft",
    inputs: [projected, absent, absent, pastKeys, pastValues, lastPlaces, total, ...(rotary ? [rotary.cos, rotary.sin] : [])],
    attributes: {
      num_heads: { int: heads },
      kv_num_heads: { int: kvHeads },
      scale: { float: 1 / Math.sqrt(headSize) },
      do_rotary: { int: Number(rotary !== undefined) },
    },
    outputs: [{ shape: [batch, time, heads * headSize] as Dim[] }, { shape: pastKeys.shape }, { shape: pastValues.shape }],
  });
  return { mixed: mixed!, keys: keys!, values: values! };
}
