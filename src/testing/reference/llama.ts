/** Forward pass of the Llama and Qwen architectures on one sequence at a time, written from their definition. */
import { rotaryTables } from "../../engine/onnx/model/rope.ts";
import type { ModelConfig } from "../../engine/onnx/model/config.ts";
import type { Adapter } from "../../engine/onnx/model/parameters.ts";
import type { LossSpec, Row } from "../../engine/port.ts";
import { logitsLoss } from "../../engine/token-loss.ts";
import { entropyCoefficientOf } from "../../training-rows.ts";
import { createMatrix, type Matrix, Tape } from "./tape.ts";

/** Parameters by their names in weight files; adapter matrices have PEFT's names. */
export type Parameters = ReadonlyMap<string, Matrix>;

/** Model of a forward pass; `parameters` includes the matrices of the adapter. */
export interface ReferenceModel {
  readonly config: ModelConfig;
  readonly parameters: Parameters;
  readonly lora: Adapter | null;
}

/** Computes logits and probabilities of the next token at each of `T` tokens, both `[T, V]`. */
export function distributionsOf({ config, parameters, lora }: ReferenceModel, tokens: ArrayLike<number>, tape = new Tape()) {
  const tables = rotaryTables(config);
  const [cos, sin] = [tables.cos, tables.sin].map((table) => createMatrix(1, table.length, Float64Array.from(table)));
  const linear = (x: Matrix, name: string): Matrix => {
    const product = tape.linear(x, parameters.get(`${name}.weight`)!);
    const bias = parameters.get(`${name}.bias`);
    const y = bias === undefined ? product : tape.add(product, bias);
    if (lora === null) return y;
    const [a, b] = ["A", "B"].map((part) => parameters.get(`base_model.model.${name}.lora_${part}.weight`)!);
    return tape.add(y, tape.linear(tape.linear(x, a!), b!, lora.alpha / lora.rank));
  };
  const norm = (x: Matrix, name: string) => {
    const gain = parameters.get(`${name}.weight`);
    return gain === undefined ? x : tape.rmsNorm(x, gain, config.normEpsilon);
  };
  let x = tape.rows(parameters.get("model.embed_tokens.weight")!, tokens);
  for (let layer = 0; layer < config.layers; layer++) {
    const at = `model.layers.${layer}`;
    const rotate = (y: Matrix) => (config.unrotatedLayers.includes(layer) ? y : tape.rotate(y, config.headSize, cos!, sin!));
    const normed = norm(x, `${at}.input_layernorm`);
    const queries = rotate(norm(linear(normed, `${at}.self_attn.q_proj`), `${at}.self_attn.q_norm`));
    const keys = rotate(norm(linear(normed, `${at}.self_attn.k_proj`), `${at}.self_attn.k_norm`));
    const mixed = tape.attention(queries, keys, linear(normed, `${at}.self_attn.v_proj`), config.headSize);
    x = tape.add(x, linear(mixed, `${at}.self_attn.o_proj`));
    const inner = norm(x, `${at}.post_attention_layernorm`);
    x = tape.add(x, linear(tape.gated(linear(inner, `${at}.mlp.gate_proj`), linear(inner, `${at}.mlp.up_proj`)), `${at}.mlp.down_proj`));
  }
  const logits = tape.linear(norm(x, "model.norm"), parameters.get(config.isTied ? "model.embed_tokens.weight" : "lm_head.weight")!);
  return { logits, probs: tape.softmax(logits) };
}

/**
 * Computes the log-probabilities of the trained tokens, row by row. With a loss, also computes its value and adds the gradients to the
 * parameters' gradients.
 */
export function passRows(model: ReferenceModel, rows: readonly Row[], loss: LossSpec | null) {
  const sums = { loss: 0, tokens: 0, entropy: 0, weightedEntropy: 0 };
  const logprobs = rows.map(({ tokens, weights, logprobs: old, advantages }) => {
    const tape = new Tape();
    const { logits } = distributionsOf(model, tokens.subarray(0, -1), tape);
    const found = new Float32Array(tokens.length);
    for (const [t, weight] of weights.entries()) {
      if (weight === 0) continue;
      const start = (t - 1) * logits.columns;
      const { value, logprob, entropy, gradient } = logitsLoss(loss ?? { kind: "cross-entropy" }, {
        logits: logits.data.subarray(start, start + logits.columns),
        target: tokens[t]!,
        oldLogprob: old?.[t] ?? NaN,
        advantage: advantages?.[t] ?? 0,
      });
      found[t] = logprob;
      sums.tokens++;
      sums.entropy += entropy;
      sums.weightedEntropy += weight * entropy;
      sums.loss += loss === null ? 0 : weight * value;
      for (const [v, derivative] of gradient.entries()) logits.gradient[start + v] = weight * derivative;
    }
    if (loss !== null) tape.backward();
    return found;
  });
  const { weightedEntropy, ...metrics } = sums;
  return { logprobs, metrics: entropyCoefficientOf(loss) > 0 ? { ...metrics, weightedEntropy } : metrics };
}
