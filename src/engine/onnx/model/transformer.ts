/**
 * The Llama and Qwen families as a graph: RMSNorm, rotary positions, grouped-query attention with or without biases and
 * normalised heads, SwiGLU, tied or separate head.
 *
 * One definition serves training, prefill and decoding; what differs is where attention finds its keys, which the caller
 * passes in. Activations are rows `[R, H]` with `R = B·T`, because a linear map does not care which row is which.
 */
import {
  add,
  concat,
  type Dim,
  gatherRows,
  type Graph,
  matmul,
  mul,
  reshape,
  rmsNorm,
  rotaryEmbedding,
  silu,
  split,
  transpose,
  type Value,
} from "../graph/index.ts";
import type { ModelConfig } from "./config.ts";
import { baseLayout, biasName, layerLinears, type Layout, type LinearSpec } from "./parameters.ts";

export { rotaryTables } from "./rope.ts";

/** Names of the batch dimensions. */
export interface BatchDims {
  readonly batch: Dim;
  readonly time: Dim;
  readonly rows: Dim;
  /** `(h / kv) · T`, a number or a name that the attention mask binds. @default {@link GROUPED} */
  readonly grouped?: Dim | undefined;
}

/** Values that are shared by all layers of a graph. */
export interface ModelInputs {
  readonly graph: Graph;
  readonly config: ModelConfig;
  readonly dims: BatchDims;
  /** Graph input of each parameter by name. */
  readonly weights: ReadonlyMap<string, Value>;
  /** Present when matrices are given as `[out, in]`: how rows are multiplied by one. */
  readonly product?: Product | undefined;
  /** Present when linear maps carry adapters: a whole map but for its bias. */
  readonly project?: Projection | undefined;
  /** `[B, T]` int64. */
  readonly positions: Value;
  /** `[contextLength, d/2]`. */
  readonly cos: Value;
  readonly sin: Value;
}

/** `x·Wᵀ`: rows `[R, in]` by a weight `[out, in]`. */
export type Product = (x: Value, weight: Value) => Value;

/** A linear map without its bias, `[R, out]`, of rows `[R, in]`. */
export type Projection = (linear: LinearSpec, x: Value) => Value;

/** Name of the dimension `(h / kv) · T`; the attention mask binds it. */
export const GROUPED = "grouped";

/** What attention gets: queries `[B, kv, (h/kv)·T, d]`, new keys and values `[B, kv, T, d]`; it returns the queries' shape. */
export type Attention = (layer: number, queries: Value, keys: Value, values: Value) => Value;

/** Declares one graph input per parameter. */
export function weightInputs(graph: Graph, layout: Layout): Map<string, Value> {
  return new Map(layout.parameters.map((parameter) => [parameter.name, graph.input(parameter.name, parameter.shape)]));
}

/** From a layer's queries, keys and values side by side, `[R, (h + 2·kv)·d]`, to what its heads found, `[R, h·d]`. */
export type Mixer = (layer: number, projected: Value) => Value;

/**
 * Hidden states before the final norm, from token ids `[R]`.
 *
 * @param chosen - `[S]`, int64: the rows that are asked for. After the last layer's attention nothing else is computed.
 * @returns `[R, H]`, or `[S, H]` of the chosen rows.
 */
export function transformer(inputs: ModelInputs, tokens: Value, mixer: Mixer, chosen?: Value): Value {
  const { config, weights } = inputs;
  let x = gatherRows(weights.get("embedding")!, tokens);
  for (let layer = 0; layer < config.layers; layer++) {
    const linears = layerLinears(config, layer);
    const normed = rmsNorm(x, weights.get(`layer${layer}_norm1`)!, config.normEpsilon);
    let mixed = mixer(layer, linear(inputs, linears.qkv, normed));
    if (chosen && layer === config.layers - 1) {
      mixed = gatherRows(mixed, chosen);
      x = gatherRows(x, chosen);
    }
    x = add(x, linear(inputs, linears.output, mixed));
    const inner = rmsNorm(x, weights.get(`layer${layer}_norm2`)!, config.normEpsilon);
    x = add(x, linear(inputs, linears.down, mul(silu(linear(inputs, linears.gate, inner)), linear(inputs, linears.up, inner))));
  }
  return x;
}

/** Logits `[S, V]` of chosen rows: final norm, then the head. */
export function logits(inputs: ModelInputs, hidden: Value): Value {
  const { config, weights, product } = inputs;
  const normed = rmsNorm(hidden, weights.get("norm")!, config.normEpsilon);
  if (!config.isTied) return times(inputs, normed, weights.get("head")!);
  const embedding = weights.get("embedding")!;
  return product ? product(normed, embedding) : matmul(normed, embedding, { transposeB: true });
}

/** Rows by a matrix, whichever way it is given. */
export function times({ product = matmul }: Pick<ModelInputs, "product">, x: Value, weight: Value): Value {
  return product(x, weight);
}

/** Splits a fused projection into heads, rotates queries and keys, attends, and joins the heads again. */
export function headsApart(inputs: ModelInputs, attention: Attention): Mixer {
  return (layer, projected) => {
    const { queries, keys, values } = splitHeads(inputs, layer, projected);
    return joinHeads(inputs, attention(layer, queries, keys, values));
  };
}

/** A layer's heads: queries `[B, kv, (h/kv)·T, d]`, keys and values `[B, kv, T, d]`. */
export interface Heads {
  readonly queries: Value;
  readonly keys: Value;
  readonly values: Value;
}

/** The heads of a fused projection `[B·T, (h + 2·kv)·d]`, queries and keys normalised where the family does that, and rotated. */
export function splitHeads(inputs: ModelInputs, layer: number, projected: Value): Heads {
  const { config, dims } = inputs;
  const { heads, kvHeads, headSize: d } = config;
  const { batch, time } = dims;
  const perHead = transpose(reshape(projected, [batch, time, heads + 2 * kvHeads, d]), [0, 2, 1, 3]);
  const [looking, values] = split(perHead, 1, [heads + kvHeads, kvHeads]);
  const [queries, keys] = split(rotate(inputs, layer, normalizeHeads(inputs, layer, looking!)), 1, [heads, kvHeads]);
  // Query heads that share a key head lie next to each other, so they are simply more rows of the same product.
  return { queries: reshape(queries!, [batch, kvHeads, dims.grouped ?? GROUPED, d]), keys: keys!, values: values! };
}

/** What the heads found, `[B, kv, (h/kv)·T, d]`, side by side: `[B·T, h·d]`. */
export function joinHeads({ config, dims }: ModelInputs, mixed: Value): Value {
  const { heads, headSize: d } = config;
  const apart = reshape(mixed, [dims.batch, heads, dims.time, d]);
  return reshape(transpose(apart, [0, 2, 1, 3]), [dims.rows, heads * d]);
}

/** Query and key heads `[B, h + kv, T, d]`, each normalised where the family does that. */
function normalizeHeads({ config, weights }: ModelInputs, layer: number, x: Value): Value {
  if (!config.hasQueryKeyNorm) return x;
  const { heads, kvHeads, normEpsilon } = config;
  const [queries, keys] = split(x, 1, [heads, kvHeads]);
  const norm = (part: Value, name: string) => rmsNorm(part, weights.get(`layer${layer}_${name}`)!, normEpsilon);
  return concat([norm(queries!, "qnorm"), norm(keys!, "knorm")], 1, heads + kvHeads);
}

function rotate({ config, positions, cos, sin }: ModelInputs, layer: number, x: Value): Value {
  return config.unrotatedLayers.includes(layer) ? x : rotaryEmbedding(x, positions, cos, sin);
}

/** A linear map with its adapters and its bias. */
function linear(inputs: ModelInputs, spec: LinearSpec, x: Value): Value {
  const { project, weights } = inputs;
  const product = project ? project(spec, x) : times(inputs, x, weights.get(spec.name)!);
  return spec.hasBias ? add(product, weights.get(biasName(spec))!) : product;
}

/** Parameters in all, for capabilities and cards. */
export function countParameters(config: ModelConfig): number {
  return baseLayout(config).parameters.reduce((sum, parameter) => sum + parameter.size, 0);
}
