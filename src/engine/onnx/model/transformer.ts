/**
 * Graph of the Llama and Qwen architectures: RMSNorm, rotary position embeddings, grouped-query attention with optional biases and head
 * normalization, SwiGLU, tied or separate head.
 *
 * Training, prefill and decoding share this definition and pass in their own attention, which determines where keys come from.
 * Activations are rows `[R, H]` with `R = B·T`.
 */
import {
  add,
  concat,
  type Dim,
  gatherFromPieces,
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
import { baseLayout, biasName, layerLinears, type Layout, type LinearSpec, pieceName } from "./parameters.ts";

export { rotaryTables } from "./rope.ts";

/** Batch dimensions: batch size, sequence length, and their product. */
export interface BatchDims {
  readonly batch: Dim;
  readonly time: Dim;
  readonly rows: Dim;
  /** Dimension `(h / kv) · T`: a number, or a name that the attention mask binds. @default {@link GROUPED} */
  readonly grouped?: Dim | undefined;
}

/** Graph inputs and settings shared by all layers. */
export interface ModelInputs {
  readonly graph: Graph;
  readonly config: ModelConfig;
  readonly dims: BatchDims;
  /** Graph input of each parameter, or of each piece of a parameter that is cut, by name. */
  readonly weights: ReadonlyMap<string, Value>;
  /** Product of rows and a transposed matrix `[out, in]`; set if weights are transposed. @default `matmul` with `[in, out]` */
  readonly product?: Product | undefined;
  /** Linear layer without bias; set if linear layers have adapters. @default `product` with the layer's weight */
  readonly project?: Projection | undefined;
  /** Positions of the tokens, `[B, T]` int64. */
  readonly positions: Value;
  /** Rotary tables, each `[contextLength, d/2]`. */
  readonly cos: Value;
  readonly sin: Value;
}

/** Function that computes `x·Wᵀ` from rows `[R, in]` and a weight `[out, in]`. */
export type Product = (x: Value, weight: Value) => Value;

/** Function that applies a linear layer without its bias to rows `[R, in]` and returns `[R, out]`. */
export type Projection = (linear: LinearSpec, x: Value) => Value;

/** Name of the dimension `(h / kv) · T`; the attention mask binds it. */
export const GROUPED = "grouped";

/** Attention over queries `[B, kv, (h/kv)·T, d]` and new keys and values `[B, kv, T, d]`; returns a value of the queries' shape. */
export type Attention = (layer: number, queries: Value, keys: Value, values: Value) => Value;

/** Declares one graph input per parameter. */
export function weightInputs(graph: Graph, layout: Layout): Map<string, Value> {
  return new Map(layout.parameters.map((parameter) => [parameter.name, graph.input(parameter.name, parameter.shape)]));
}

/** Attention layer: maps the fused projection of queries, keys and values, `[R, (h + 2·kv)·d]`, to concatenated heads `[R, h·d]`. */
export type AttentionLayer = (layer: number, projected: Value) => Value;

/**
 * Computes hidden states before the final norm from token ids `[R]`.
 *
 * @param attentionLayer - Attention layer.
 * @param chosen - Indices of the requested rows, `[S]`, int64. After the last attention layer, only these rows are computed.
 * @returns `[R, H]`, or `[S, H]` for the chosen rows.
 */
export function transformer(inputs: ModelInputs, tokens: Value, attentionLayer: AttentionLayer, chosen?: Value): Value {
  const { layers } = inputs.config;
  let x = embed(inputs, tokens);
  for (let layer = 0; layer < layers; layer++)
    x = transformerLayer(inputs, layer, x, attentionLayer, layer === layers - 1 ? chosen : undefined).output;
  return x;
}

/** Returns the embeddings `[R, H]` of token ids `[R]`. */
export function embed({ weights }: ModelInputs, tokens: Value): Value {
  return gatherFromPieces(piecesOf(weights, "embedding"), tokens);
}

/** Result of one layer, with the values that {@link gatedOutput} computes the output from. */
export interface LayerResult {
  /** Input of the second half: the layer's input plus attention. */
  readonly residual: Value;
  /** Products of the gate and up projections. */
  readonly gate: Value;
  readonly up: Value;
  readonly output: Value;
}

/**
 * Computes one layer from its input `[R, H]`.
 *
 * @param chosen - Indices of the rows that are computed after attention, `[S]`, int64. @default all rows
 */
export function transformerLayer(
  inputs: ModelInputs,
  layer: number,
  input: Value,
  attentionLayer: AttentionLayer,
  chosen?: Value,
): LayerResult {
  const { config, weights } = inputs;
  const linears = layerLinears(config, layer);
  const normed = rmsNorm(input, weights.get(`layer${layer}_norm1`)!, config.normEpsilon);
  let mixed = attentionLayer(layer, linear(inputs, linears.qkv, normed));
  let x = input;
  if (chosen) {
    mixed = gatherRows(mixed, chosen);
    x = gatherRows(x, chosen);
  }
  const residual = add(x, linear(inputs, linears.output, mixed));
  const inner = rmsNorm(residual, weights.get(`layer${layer}_norm2`)!, config.normEpsilon);
  const gate = linear(inputs, linears.gate, inner);
  const activated = silu(gate);
  const up = linear(inputs, linears.up, inner);
  return { residual, gate, up, output: add(residual, linear(inputs, linears.down, mul(activated, up))) };
}

/** Computes the output of a layer, `residual + down(silu(gate) · up)`, from its other results. */
export function gatedOutput(inputs: ModelInputs, layer: number, { residual, gate, up }: Omit<LayerResult, "output">): Value {
  return add(residual, linear(inputs, layerLinears(inputs.config, layer).down, mul(silu(gate), up)));
}

/** Computes logits `[S, V]` of hidden states `[S, H]`: final norm, then the head. */
export function logits(inputs: ModelInputs, hidden: Value): Value {
  return headProduct(inputs, finalNorm(inputs, hidden));
}

/** Applies the final norm to hidden states `[S, H]`. */
export function finalNorm({ config, weights }: ModelInputs, hidden: Value): Value {
  return rmsNorm(hidden, weights.get("norm")!, config.normEpsilon);
}

/** Computes logits `[S, V]` of normed hidden states `[S, H]`. */
export function headProduct(inputs: ModelInputs, normed: Value): Value {
  const { config, weights, product = (x: Value, weight: Value) => matmul(x, weight, { transposeB: true }) } = inputs;
  const pieces = piecesOf(weights, headName(config));
  if (config.isTied) {
    const parts = pieces.map((piece) => product(normed, piece));
    return parts.length === 1 ? parts[0]! : concat(parts, 1, config.vocabularySize);
  }
  if (pieces.length === 1) return times(inputs, normed, pieces[0]!);
  // Pieces of a matrix [in, out] have some of the rows that the product sums over.
  const columns = split(
    normed,
    1,
    pieces.map(({ shape }) => shape[0]!),
  );
  return pieces.reduce<Value | undefined>((plus, piece, i) => matmul(columns[i]!, piece, { plus }), undefined)!;
}

/** Returns the pieces of a parameter in order; the parameter itself if it is not cut. */
function piecesOf(weights: ModelInputs["weights"], name: string): Value[] {
  const whole = weights.get(name);
  if (whole) return [whole];
  const pieces: Value[] = [];
  for (let piece = weights.get(pieceName(name, 0)); piece; piece = weights.get(pieceName(name, pieces.length))) pieces.push(piece);
  return pieces;
}

/** Returns the name of the output head's parameter: the embedding if the two are tied. */
export function headName({ isTied }: ModelConfig): string {
  return isTied ? "embedding" : "head";
}

/** Multiplies rows by a matrix, which is transposed if `product` is set. */
export function times({ product = matmul }: Pick<ModelInputs, "product">, x: Value, weight: Value): Value {
  return product(x, weight);
}

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
  const perHead = transpose(reshape(projected, [batch, time, heads + 2 * kvHeads, d]), [0, 2, 1, 3]);
  const [looking, values] = split(perHead, 1, [heads + kvHeads, kvHeads]);
  const [queries, keys] = split(rotate(inputs, layer, normalizeHeads(inputs, layer, looking!)), 1, [heads, kvHeads]);
  // Query heads that share a key head are adjacent, so they become additional rows of the same product.
  return { queries: reshape(queries!, [batch, kvHeads, dims.grouped ?? GROUPED, d]), keys: keys!, values: values! };
}

/** Concatenates head outputs `[B, kv, (h/kv)·T, d]` to `[B·T, h·d]`. */
export function joinHeads({ config, dims }: ModelInputs, mixed: Value): Value {
  const { heads, headSize: d } = config;
  const apart = reshape(mixed, [dims.batch, heads, dims.time, d]);
  return reshape(transpose(apart, [0, 2, 1, 3]), [dims.rows, heads * d]);
}

/** Normalizes each query and key head of `[B, h + kv, T, d]` if the model is configured so. */
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

/** Applies a linear layer with its adapters and bias. */
function linear(inputs: ModelInputs, spec: LinearSpec, x: Value): Value {
  const { project, weights } = inputs;
  const product = project ? project(spec, x) : times(inputs, x, weights.get(spec.name)!);
  return spec.hasBias ? add(product, weights.get(biasName(spec))!) : product;
}

/** Returns the total number of parameters. */
export function countParameters(config: ModelConfig): number {
  return baseLayout(config).parameters.reduce((sum, parameter) => sum + parameter.size, 0);
}
