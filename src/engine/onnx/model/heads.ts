/**
 * Attention heads of the transformer: splitting, normalization and rotation. Shapes name the sizes `B` (sequences), `T` (tokens of each),
 * `R = B·T`, `h` (query heads), `kv` (key and value heads) and `d` (size of a head).
 */
import { concat, reshape, rmsNorm, rotaryEmbedding, split, transpose, type Value } from "../graph/index.ts";
import { gainOf, type AttentionLayer, GROUPED, type ModelInputs } from "./model-inputs.ts";
import { normName } from "./parameters.ts";
import { rotationOf, type TableSet } from "./rope.ts";
import { getOrThrow } from "../../../base/util/values.ts";

/** Attention over queries `[B, kv, (h/kv)·T, d]` and new keys and values `[B, kv, T, d]`; returns a value of the queries' shape. */
export type Attention = (layer: number, queries: Value, keys: Value, values: Value) => Value;

/** Returns an attention layer that splits the fused projection into heads, rotates queries and keys, attends, and joins the heads. */
export function perHeadAttention(inputs: ModelInputs, attention: Attention): AttentionLayer {
  return (layer, projected) => {
    const { queries, keys, values } = splitHeads(inputs, layer, projected);
    return joinHeads(inputs, attention(layer, queries, keys, values));
  };
}

/** Heads of a layer: queries `[B, kv, (h/kv)·T, d]`, keys and values `[B, kv, T, d]`. */
export interface Heads {
  readonly queries: Value;
  readonly keys: Value;
  readonly values: Value;
}

/** Splits a fused projection `[B·T, (h + 2·kv)·d]` into heads; normalizes (if configured) and rotates queries and keys. */
export function splitHeads(inputs: ModelInputs, layer: number, projected: Value): Heads {
  const { config, dims } = inputs;
  const { heads, kvHeads, headSize: d } = config;
  const { batch, time } = dims;
  const all = heads + 2 * kvHeads;
  // The heads of a single token are in order already.
  const perHead = time === 1 ? reshape(projected, [batch, all, 1, d]) : transpose(reshape(projected, [batch, time, all, d]), [0, 2, 1, 3]);
  const [queriesAndKeys, values] = split(perHead, 1, [heads + kvHeads, kvHeads]);
  const rotated = rotate(inputs, layer, normalizeHeads(inputs, layer, queriesAndKeys, 1));
  const [queries, keys] = split(rotated, 1, [heads, kvHeads]);
  // Query heads that share a key head are adjacent, so they become additional rows of the same product.
  return { queries: reshape(queries, [batch, kvHeads, dims.grouped ?? GROUPED, d]), keys, values };
}

/** Concatenates head outputs `[B, kv, (h/kv)·T, d]` to `[B·T, h·d]`. */
export function joinHeads({ config, dims }: ModelInputs, outputs: Value): Value {
  const { heads, headSize: d } = config;
  const inOrder = dims.time === 1 ? outputs : transpose(reshape(outputs, [dims.batch, heads, dims.time, d]), [0, 2, 1, 3]);
  return reshape(inOrder, [dims.rows, heads * d]);
}

/**
 * Normalizes queries and keys of `[…, heads, …]`, each head alone, if the model is configured so.
 *
 * @param axis - Dimension of the heads: the query heads, then the key heads, then any others, which are not normalized.
 */
export function normalizeHeads(inputs: ModelInputs, layer: number, x: Value, axis: number): Value {
  const { config } = inputs;
  if (config.queryKeyNorm !== "head") return x;
  const { heads, kvHeads, normEpsilon } = config;
  const otherHeads = (x.shape[axis] as number) - heads - kvHeads;
  const [queries, keys, ...others] = split(x, axis, otherHeads === 0 ? [heads, kvHeads] : [heads, kvHeads, otherHeads]);
  const norm = (part: Value, name: "qnorm" | "knorm") => rmsNorm(part, gainOf(inputs, normName(layer, name)), normEpsilon);
  return concat([norm(queries, "qnorm"), norm(keys, "knorm"), ...others], axis, heads + kvHeads + otherHeads);
}

/**
 * Normalizes the queries and the keys of a projection `[R, (h + 2·kv)·d]`, all heads of a token together, if the model is configured so.
 */
export function normalizeTogether(inputs: ModelInputs, layer: number, projected: Value): Value {
  const { config } = inputs;
  if (config.queryKeyNorm !== "all") return projected;
  const { heads, kvHeads, headSize: d, normEpsilon } = config;
  const [queries, keys, values] = split(projected, 1, [heads * d, kvHeads * d, kvHeads * d]);
  const norm = (part: Value, name: "qnorm" | "knorm") => rmsNorm(part, gainOf(inputs, normName(layer, name)), normEpsilon);
  return concat([norm(queries, "qnorm"), norm(keys, "knorm"), values], 1, (heads + 2 * kvHeads) * d);
}

/** Rotates the query and key heads of `[B, h + kv, T, d]` by their positions. */
export function rotate(inputs: ModelInputs, layer: number, x: Value): Value {
  const { config } = inputs;
  const sets = rotationOf(config, layer);
  if (sets === null) return x;
  if (sets.queries === sets.keys) return rotateBy(inputs, sets.keys, x);
  const { heads, kvHeads } = config;
  const [queries, keys] = split(x, 1, [heads, kvHeads]);
  return concat([rotateBy(inputs, sets.queries, queries), rotateBy(inputs, sets.keys, keys)], 1, heads + kvHeads);
}

/** Rotates the first elements of each head; the others stay. */
function rotateBy({ config, positions, rotary }: ModelInputs, set: TableSet, x: Value): Value {
  const { headSize: d, rotarySize: r } = config;
  const { cos, sin } = getOrThrow(rotary, set);
  if (r === d) return rotaryEmbedding(x, positions, cos, sin);
  const [rotatedPart, fixedPart] = split(x, 3, [r, d - r]);
  return concat([rotaryEmbedding(rotatedPart, positions, cos, sin), fixedPart], 3, d);
}
