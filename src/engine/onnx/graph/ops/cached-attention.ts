/** Attention of new tokens over a cache of keys and values, for decoding. `attention` (attention.ts) is the differentiable op. */
import { ShapeError } from "../../../../base/errors.ts";
import { type Dim, formatShape, type Value } from "../graph.ts";
import { cast } from "./elementwise.ts";
import { scan } from "./scan.ts";
import { reshape } from "./shape.ts";

/** Operands of {@link cachedAttention}: `B` rows (sequences) with `T` new tokens each. */
export interface CachedAttentionOperands {
  /** Concatenated queries, keys and values of the new tokens, `[B, T, (h + 2·kv)·d]`. */
  readonly projected: Value;
  /** Cached keys and values with capacity `C`, `[B, kv, C, d]`; each row's tokens start at position 0. Null without cached tokens. */
  readonly past: { readonly keys: Value; readonly values: Value } | null;
  /** Capacity of the updated cache: `C`, or the number of tokens if there are more. */
  readonly capacity: Dim;
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
  /** Elements of a head, `d`. */
  readonly headSize: number;
  /** Factor of the scores. @default 1/√d */
  readonly scale?: number | undefined;
  /** Sliding window: a token attends to this many tokens, itself and the ones before it. @default all tokens before it */
  readonly window?: number | undefined;
}

/**
 * Computes causal attention of new tokens over cached and new tokens, `softmax(scale·q·kᵀ)·v` per head, and appends the new tokens to the
 * cache. If inputs and outputs of the cache share memory, only the new tokens are written. Has no gradient.
 *
 * With more than one row, either every row has one new token, or no row has cached tokens (`total` = T). `d` must be a multiple of 8.
 * The op is batch-invariant: a row's result is bit-identical for any other rows and any capacity. If a row is computed in pieces of at
 * least two tokens, the result is also bit-identical for any split.
 *
 * @returns Result `mixed`, `[B, T, h·d]`, and the updated cache.
 * @throws ShapeError `E_SHAPE` if projection and cache do not match, or `d` is not a multiple of 8.
 */
export function cachedAttention(operands: CachedAttentionOperands): { mixed: Value; keys: Value; values: Value } {
  const { projected, past, capacity, lastPositions, total, rotary, heads, kvHeads, headSize, window } = operands;
  const { graph } = projected;
  const [batch, time, width] = projected.shape as [Dim, Dim, Dim];
  if (headSize % 8 !== 0 || width !== (heads + 2 * kvHeads) * headSize || (past !== null && past.keys.shape[3] !== headSize)) {
    const given = past === null ? "no cache" : formatShape(past.keys.shape);
    throw new ShapeError(
      `Expected a projection [B, T, (h + 2·kv)·d] and a cache [B, kv, C, d] with d = ${headSize} a multiple of 8, got ${formatShape(projected.shape)} and ${given}`,
    );
  }
  const absent = graph.absent();
  const cache: Dim[] = [batch, kvHeads, capacity, headSize];
  const [mixed, keys, values] = graph.record({
    op: "GroupQueryAttention",
    domain: "com.microsoft",
    inputs: [
      projected,
      absent,
      absent,
      past?.keys ?? absent,
      past?.values ?? absent,
      lastPositions,
      total,
      ...(rotary ? [rotary.cos, rotary.sin] : []),
    ],
    attributes: {
      num_heads: { int: heads },
      kv_num_heads: { int: kvHeads },
      scale: { float: operands.scale ?? 1 / Math.sqrt(headSize) },
      do_rotary: { int: Number(rotary !== undefined) },
      ...(window === undefined ? {} : { local_window_size: { int: window } }),
    },
    outputs: [{ shape: [batch, time, heads * headSize] }, { shape: cache }, { shape: cache }],
  }) as [Value, Value, Value];
  return { mixed, keys, values };
}

/**
 * Computes {@link cachedAttention} one row after the other, so that several rows with cached tokens may have several new tokens each. The
 * bits of a row are the same.
 *
 * @param operands - With `past`. `total` is not used: each row has its own total.
 */
export function cachedAttentionByRow(operands: CachedAttentionOperands): { mixed: Value; keys: Value; values: Value } {
  const { projected, past, capacity, lastPositions, rotary, heads, kvHeads, headSize } = operands;
  const [, time, width] = projected.shape as [Dim, Dim, Dim];
  const cache = [kvHeads, capacity, headSize];
  const [mixed, keys, values] = scan([projected, past!.keys, past!.values, lastPositions], (body, [row, rowKeys, rowValues, last]) => {
    const [pastKeys, pastValues] = [reshape(rowKeys!, [1, ...cache]), reshape(rowValues!, [1, ...cache])];
    const lastOfRow = reshape(last!, [1]);
    const one = cast(body.ints([1]), "int32");
    const result = cachedAttention({
      ...operands,
      projected: reshape(row!, [1, time, width]),
      past: { keys: pastKeys, values: pastValues },
      lastPositions: lastOfRow,
      total: body.recordOne({ op: "Add", inputs: [lastOfRow, one], output: { shape: [1], dtype: "int32" } }),
      rotary: rotary && { cos: body.capture(rotary.cos), sin: body.capture(rotary.sin) },
    });
    return [reshape(result.mixed, [time, heads * headSize]), reshape(result.keys, cache), reshape(result.values, cache)];
  }) as [Value, Value, Value];
  return { mixed, keys, values };
}
