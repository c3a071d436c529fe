/** Forward pass of the supported architectures on one sequence at a time, written from their definition. */
import { isWindowed } from "../../engine/onnx/model/layer-windows.ts";
import { rotaryTables, rotationOf, tableStart } from "../../engine/onnx/model/rope.ts";
import type { ModelConfig } from "../../engine/onnx/model/config.ts";
import type { Adapter } from "../../engine/onnx/model/parameters.ts";
import type { LossSpec, Row } from "../../engine/port.ts";
import { logitsLoss } from "../../engine/token-loss.ts";
import { entropyCoefficientOf } from "../../base/training-rows.ts";
import { createMatrix, type Matrix, Tape } from "./tape.ts";
import { getOrThrow } from "../../base/util/values.ts";

/** Parameters by their names in weight files; adapter matrices have PEFT's names. */
export type Parameters = ReadonlyMap<string, Matrix>;

/** Model of a forward pass; `parameters` includes the matrices of the adapter. */
export interface ReferenceModel {
  readonly config: ModelConfig;
  readonly parameters: Parameters;
  readonly lora: Adapter | null;
}

/** Computes the logits of the next token at each of `T` tokens, `[T, V]`. */
export function nextLogits(model: ReferenceModel, tokens: ArrayLike<number>, tape = new Tape()): Matrix {
  const { config, parameters } = model;
  const { scales, norms } = config;
  const { norm } = layersOf(model, tape);
  const rotate = rotationsOf(config, tape, tokens.length);
  const scaled = (y: Matrix, factor: number) => (factor === 1 ? y : tape.scale(y, factor));
  /** Residual stream, `[T, hidden size]`. */
  let x = scaled(tape.rows(getOrThrow(parameters, "model.embed_tokens.weight"), tokens), scales.embedding);
  const normBefore = (y: Matrix, name: string) => (norms === "after" ? y : norm(y, name));
  const addResidual = (y: Matrix, name: string) => tape.add(x, scaled(norms === "before" ? y : norm(y, name), scales.residual));
  for (let layer = 0; layer < config.layers; layer++) {
    const prefix = `model.layers.${layer}`;
    const attentionInput = normBefore(x, `${prefix}.input_layernorm`);
    x = addResidual(attention(model, tape, attentionInput, { layer, prefix, rotate }), `${prefix}.post_attention_layernorm`);
    // The name of this norm depends on the architecture.
    const mlpInput = normBefore(x, `${prefix}.${norms === "both" ? "pre_feedforward" : "post_attention"}_layernorm`);
    x = addResidual(feedForward(model, tape, mlpInput, prefix), `${prefix}.post_feedforward_layernorm`);
  }
  const head = getOrThrow(parameters, config.isTied ? "model.embed_tokens.weight" : "lm_head.weight");
  return tape.linear(norm(x, "model.norm"), head, scales.logits);
}

/** Computes the attention of a layer, with the names of its weights under `prefix`. */
function attention(
  model: ReferenceModel,
  tape: Tape,
  x: Matrix,
  { layer, prefix, rotate }: { readonly layer: number; readonly prefix: string; readonly rotate: ReturnType<typeof rotationsOf> },
): Matrix {
  const { config } = model;
  const { linear, norm } = layersOf(model, tape);
  const { queries, keys, values } = projections(model, tape, x, prefix);
  const q = rotate(norm(queries, `${prefix}.self_attn.q_norm`), layer, "queries");
  const k = rotate(norm(keys, `${prefix}.self_attn.k_norm`), layer, "keys");
  const window = isWindowed(config, layer) ? config.window!.size : Infinity;
  const attended = tape.attention(q, k, values, { d: config.headSize, scale: config.scales.attention, window });
  return linear(attended, `${prefix}.self_attn.o_proj`);
}

/** Computes the feed-forward part of a layer, with the names of its weights under `prefix`. */
function feedForward(model: ReferenceModel, tape: Tape, x: Matrix, prefix: string): Matrix {
  const { modules, activation } = model.config;
  const { linear } = layersOf(model, tape);
  const mlp = `${prefix}.${modules.mlp}`;
  const [gate, up] =
    modules.fusedGateUp === null
      ? [linear(x, `${mlp}.gate_proj`), linear(x, `${mlp}.up_proj`)]
      : halves(tape, linear(x, `${mlp}.${modules.fusedGateUp}`));
  const product = activation === "silu" ? tape.gated(gate, up) : tape.geluGated(gate, up);
  return linear(product, `${mlp}.${modules.down}`);
}

/** Returns the linear layers, with adapters and biases, and the norms of a model, by their names in weight files. */
function layersOf({ config, parameters, lora }: ReferenceModel, tape: Tape) {
  const linear = (x: Matrix, name: string): Matrix => {
    const product = tape.linear(x, getOrThrow(parameters, `${name}.weight`));
    const bias = parameters.get(`${name}.bias`);
    const y = bias === undefined ? product : tape.add(product, bias);
    if (lora === null) return y;
    const factor = (part: "A" | "B") => getOrThrow(parameters, `base_model.model.${name}.lora_${part}.weight`);
    return tape.add(y, tape.linear(tape.linear(x, factor("A")), factor("B"), lora.alpha / lora.rank));
  };
  const norm = (x: Matrix, name: string): Matrix => {
    const gain = parameters.get(`${name}.weight`);
    if (gain === undefined) return x;
    const one = createMatrix(1, gain.columns, new Float64Array(gain.columns).fill(1));
    return tape.rmsNorm(x, config.hasUnitOffset ? tape.add(gain, one) : gain, config.normEpsilon);
  };
  return { linear, norm };
}

/** Returns the function that rotates the queries or keys of a layer in a sequence of `length` tokens. */
function rotationsOf(config: ModelConfig, tape: Tape, length: number) {
  const rotation = { d: config.headSize, r: config.rotarySize, first: tableStart(config, length) };
  const tables = new Map(
    Object.entries(rotaryTables(config)).map(([name, table]) => [name, createMatrix(1, table.length, Float64Array.from(table))]),
  );
  return (x: Matrix, layer: number, part: "queries" | "keys"): Matrix => {
    const tablePrefixes = rotationOf(config, layer);
    if (tablePrefixes === null) return x;
    const tablePrefix = tablePrefixes[part];
    return tape.rotate(x, rotation, getOrThrow(tables, `${tablePrefix}cos`), getOrThrow(tables, `${tablePrefix}sin`));
  };
}

/** Computes queries, keys and values of a layer. */
function projections(model: ReferenceModel, tape: Tape, x: Matrix, layer: string) {
  const { heads, kvHeads, headSize: d, modules } = model.config;
  const { linear } = layersOf(model, tape);
  const name = (part: string) => `${layer}.self_attn.${part}`;
  if (modules.fusedQkv === null) {
    return { queries: linear(x, name("q_proj")), keys: linear(x, name("k_proj")), values: linear(x, name("v_proj")) };
  }
  const fused = linear(x, name(modules.fusedQkv));
  return {
    queries: tape.columns(fused, 0, heads * d),
    keys: tape.columns(fused, heads * d, kvHeads * d),
    values: tape.columns(fused, (heads + kvHeads) * d, kvHeads * d),
  };
}

/** Splits a matrix into its left and right half. */
function halves(tape: Tape, x: Matrix): [Matrix, Matrix] {
  return [tape.columns(x, 0, x.columns / 2), tape.columns(x, x.columns / 2, x.columns / 2)];
}

/**
 * Computes the log-probabilities of the trained tokens, row by row. With a loss, also computes its value and adds the gradients to the
 * parameters' gradients.
 */
export function passRows(model: ReferenceModel, rows: readonly Row[], loss: LossSpec | null) {
  const sums = { loss: 0, tokens: 0, entropy: 0, weightedEntropy: 0 };
  const logprobs = rows.map(({ tokens, weights, logprobs: oldLogprobs, advantages }) => {
    const tape = new Tape();
    const logits = nextLogits(model, tokens.subarray(0, -1), tape);
    const newLogprobs = new Float32Array(tokens.length);
    for (const [t, weight] of weights.entries()) {
      if (weight === 0) continue;
      const start = (t - 1) * logits.columns;
      const { value, logprob, entropy, gradient } = logitsLoss(loss ?? { kind: "cross-entropy" }, {
        logits: logits.data.subarray(start, start + logits.columns),
        target: tokens[t]!,
        oldLogprob: oldLogprobs?.[t] ?? NaN,
        advantage: advantages?.[t] ?? 0,
      });
      newLogprobs[t] = logprob;
      sums.tokens++;
      sums.entropy += entropy;
      sums.weightedEntropy += weight * entropy;
      sums.loss += loss === null ? 0 : weight * value;
      for (const [v, derivative] of gradient.entries()) logits.gradient[start + v] = weight * derivative;
    }
    if (loss !== null) tape.backward();
    return newLogprobs;
  });
  const { weightedEntropy, ...metrics } = sums;
  return { logprobs, metrics: entropyCoefficientOf(loss) > 0 ? { ...metrics, weightedEntropy } : metrics };
}
