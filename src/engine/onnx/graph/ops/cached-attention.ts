import { ShapeError } from "../../../../errors.ts";
import { type Dim, formatShape, type Value } from "../graph.ts";

/** Operands of {@link cachedAttention}. */
export interface CachedAttention {
  /** New queries, keys and values side by side, `[B, T, (h + 2·kv)·d]`. */
  readonly projected: Value;
  /** `[B, kv, C, d]`; a row's tokens first. */
  readonly pastKeys: Value;
  readonly pastValues: Value;
  /** Place of each row's last token, that is, its tokens minus one, the new ones included: `[B]`, int32. */
  readonly lastPlaces: Value;
  /** The longest row's tokens, the new ones included: `[1]`, int32. */
  readonly total: Value;
  /** Tables `[positions, d/2]` by which queries and keys are rotated here; `d` must be a multiple of 16. @default not rotated */
  readonly rotary?: { readonly cos: Value; readonly sin: Value } | undefined;
  /** h and kv. */
  readonly heads: number;
  readonly kvHeads: number;
}

/**
 * Causal attention of new tokens over a cache and themselves, `softmax(q·kᵀ/√d)·v` per head, `[B, T, h·d]`, and the cache with
 * the new tokens in it. Given the same memory for the cache's inputs and outputs it writes the new tokens alone.
 *
 * With more than one row, either each brings one token, or none has a past (`total` = T). `d` must be a multiple of 8.
 * A row's result depends on its own tokens alone, in every bit: not on other rows, not on the capacity, and for two tokens or
 * more not on how many came before in one go. Has no gradient.
 */
export function cachedAttention(operands: CachedAttention): { mixed: Value; keys: Value; values: Value } {
  const { projected, pastKeys, pastValues, lastPlaces, total, rotary, heads, kvHeads } = operands;
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
