/**
 * Graph of the supported architectures: RMSNorm, rotary position embeddings, grouped-query attention with optional biases, head
 * normalization and sliding windows, gated feed-forward layers, tied or separate head. The configuration holds all differences.
 *
 * Training, prefill and decoding share this definition and pass in their own attention, which determines where keys come from.
 * Activations are rows `[R, H]` with `R = B·T`.
 */
import { add, gatherFromPieces, gatherRows, geluTanh, join, matmul, mul, rmsNorm, silu, split, type Value } from "../graph/index.ts";
import type { ModelConfig } from "./config.ts";
import { normalizeTogether } from "./heads.ts";
import { type AttentionLayer, gainOf, type ModelInputs } from "./model-inputs.ts";
import {
  baseLayout,
  biasName,
  layerLinears,
  type LayerLinears,
  type LinearSpec,
  type NormName,
  normName,
  pieceName,
} from "./parameters.ts";
import { first, getOrThrow, zip } from "../../../base/util/values.ts";

/**
 * Computes hidden states before the final norm from token ids `[R]`.
 *
 * @param attentionLayer - Attention of training, prefill or decoding.
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
export function embed({ weights, config }: ModelInputs, tokens: Value): Value {
  return scaled(gatherFromPieces(piecesOf(weights, "embedding"), tokens), config.scales.embedding);
}

/** Returns `factor · x`; `x` itself for a factor of 1. */
function scaled(x: Value, factor: number): Value {
  return factor === 1 ? x : mul(x, x.graph.scalar(factor));
}

/** Applies a norm of a layer; returns `x` if the architecture does not have the norm. */
function layerNorm(inputs: ModelInputs, layer: number, norm: NormName, x: Value): Value {
  const name = normName(layer, norm);
  return inputs.weights.has(name) ? rmsNorm(x, gainOf(inputs, name), inputs.config.normEpsilon) : x;
}

/** Adds the output of attention or of the feed-forward layer to its input. */
function addBranch(inputs: ModelInputs, layer: number, norm: NormName, residual: Value, output: Value): Value {
  return add(residual, scaled(layerNorm(inputs, layer, norm, output), inputs.config.scales.residual));
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
  const { config } = inputs;
  const linears = layerLinears(config, layer);
  const normed = layerNorm(inputs, layer, "norm1", input);
  const attended = attentionLayer(layer, normalizeTogether(inputs, layer, linear(inputs, linears.qkv, normed)));
  const chosenOf = (rows: Value): Value => (chosen ? gatherRows(rows, chosen) : rows);
  const [heads, layerInput] = [chosenOf(attended), chosenOf(input)];
  const residual = addBranch(inputs, layer, "onorm", layerInput, linear(inputs, linears.output, heads));
  const { gate, activated, up } = gateAndUp(inputs, linears, layerNorm(inputs, layer, "norm2", residual));
  const down = linear(inputs, linears.down, mul(activated, up));
  return { residual, gate, up, output: addBranch(inputs, layer, "downnorm", residual, down) };
}

/** Computes the gate and up projections, and the activation of the gate. One linear layer may compute both. */
function gateAndUp(inputs: ModelInputs, { inner: [gateLinear, upLinear] }: LayerLinears, x: Value) {
  const { innerSize: F } = inputs.config;
  const projected = linear(inputs, gateLinear, x);
  if (upLinear !== undefined) return { gate: projected, activated: activate(inputs, projected), up: linear(inputs, upLinear, x) };
  const [gate, up] = split(projected, 1, [F, F]);
  return { gate, activated: activate(inputs, gate), up };
}

/** Applies the activation of the configuration. */
function activate({ config }: ModelInputs, gate: Value): Value {
  return config.activation === "silu" ? silu(gate) : geluTanh(gate);
}

/** Computes the output of a layer, `residual + norm(down(activation(gate) · up))`, from its other results. */
export function gatedOutput(inputs: ModelInputs, layer: number, { residual, gate, up }: Omit<LayerResult, "output">): Value {
  const product = linear(inputs, layerLinears(inputs.config, layer).down, mul(activate(inputs, gate), up));
  return addBranch(inputs, layer, "downnorm", residual, product);
}

/** Computes logits `[S, V]` of hidden states `[S, H]`: final norm, then the head. */
export function logits(inputs: ModelInputs, hidden: Value): Value {
  return headProduct(inputs, finalNorm(inputs, hidden));
}

/** Applies the final norm to hidden states `[S, H]`. */
export function finalNorm(inputs: ModelInputs, hidden: Value): Value {
  return rmsNorm(hidden, gainOf(inputs, "norm"), inputs.config.normEpsilon);
}

/** Computes logits `[S, V]` of hidden states `[S, H]` after the final norm. */
export function headProduct(inputs: ModelInputs, hidden: Value): Value {
  const { config, weights, tiedHead } = inputs;
  const normed = scaled(hidden, config.scales.logits);
  const pieces = tiedHead ? [tiedHead] : piecesOf(weights, headName(config));
  if (config.isTied) {
    const parts = pieces.map((piece) => matmul(normed, piece, { transposeB: true }));
    return join(parts, 1, config.vocabularySize);
  }
  if (pieces.length === 1) return matmul(normed, first(pieces));
  // Pieces of a matrix [in, out] have some of the rows that the product sums over, so their products are added.
  const heights = pieces.map(({ shape }) => first(shape));
  let sum: Value | undefined;
  for (const [columns, piece] of zip(split(normed, 1, heights), pieces)) sum = matmul(columns, piece, { plus: sum });
  return sum!;
}

/** Returns the pieces of a parameter in order; the parameter itself if it is not cut. */
function piecesOf(weights: ModelInputs["weights"], name: string): Value[] {
  const whole = weights.get(name);
  if (whole) return [whole];
  const pieces: Value[] = [];
  for (;;) {
    const piece = weights.get(pieceName(name, pieces.length));
    if (piece === undefined) return pieces;
    pieces.push(piece);
  }
}

/** Returns the name of the output head's parameter: the embedding if the two are tied. */
export function headName({ isTied }: ModelConfig): string {
  return isTied ? "embedding" : "head";
}

/** Applies a linear layer with its adapters and bias. */
function linear(inputs: ModelInputs, spec: LinearSpec, x: Value): Value {
  const { project, weights } = inputs;
  const product = project ? project(spec, x) : matmul(x, getOrThrow(weights, spec.name));
  return spec.hasBias ? add(product, getOrThrow(weights, biasName(spec))) : product;
}

/** Returns the total number of parameters. */
export function countParameters(config: ModelConfig): number {
  return baseLayout(config).parameters.reduce((sum, parameter) => sum + parameter.size, 0);
}
