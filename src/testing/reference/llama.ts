/** The Llama and Qwen families on one sequence at a time, from their definition. */
import { rotaryTables } from "../../engine/onnx/model/rope.ts";
import type { ModelConfig } from "../../engine/onnx/model/config.ts";
import type { LossSpec, Row } from "../../engine/port.ts";
import { tokenLoss } from "../../engine/token-loss.ts";
import { type Matrix, softmax, Tape } from "./tape.ts";

/** Parameters by the names that files give them; adapters by PEFT's. */
export type Parameters = ReadonlyMap<string, Matrix>;

/** What computes: a base, and an adapter's matrices with their scale `alpha / rank`. */
export interface ReferenceModel {
  readonly config: ModelConfig;
  readonly base: Parameters;
  readonly adapter?: { readonly matrices: Parameters; readonly scale: number } | undefined;
}

/** The logits of the next token at each of `T` tokens, `[T, V]`. */
export function logitsOf({ config, base, adapter }: ReferenceModel, tokens: ArrayLike<number>, tape = new Tape()): Matrix {
  const { cos, sin } = rotaryTables(config);
  const linear = (x: Matrix, name: string): Matrix => {
    const product = tape.linear(x, base.get(`${name}.weight`)!);
    const bias = base.get(`${name}.bias`);
    const y = bias === undefined ? product : tape.add(product, bias);
    if (adapter === undefined) return y;
    const [a, b] = ["A", "B"].map((part) => adapter.matrices.get(`base_model.model.${name}.lora_${part}.weight`)!);
    return tape.add(y, tape.linear(tape.linear(x, a!), b!, adapter.scale));
  };
  const norm = (x: Matrix, name: string) => {
    const gain = base.get(`${name}.weight`);
    return gain === undefined ? x : tape.rmsNorm(x, gain, config.normEpsilon);
  };
  let x = tape.rows(base.get("model.embed_tokens.weight")!, tokens);
  for (let layer = 0; layer < config.layers; layer++) {
    const at = `model.layers.${layer}`;
    const rotate = (y: Matrix) => (config.unrotatedLayers.includes(layer) ? y : tape.rotate(y, config.headSize, cos, sin));
    const normed = norm(x, `${at}.input_layernorm`);
    const queries = rotate(norm(linear(normed, `${at}.self_attn.q_proj`), `${at}.self_attn.q_norm`));
    const keys = rotate(norm(linear(normed, `${at}.self_attn.k_proj`), `${at}.self_attn.k_norm`));
    const mixed = tape.attention(queries, keys, linear(normed, `${at}.self_attn.v_proj`), config.headSize);
    x = tape.add(x, linear(mixed, `${at}.self_attn.o_proj`));
    const inner = norm(x, `${at}.post_attention_layernorm`);
    x = tape.add(x, linear(tape.gated(linear(inner, `${at}.mlp.gate_proj`), linear(inner, `${at}.mlp.up_proj`)), `${at}.mlp.down_proj`));
  }
  return tape.linear(norm(x, "model.norm"), base.get(config.isTied ? "model.embed_tokens.weight" : "lm_head.weight")!);
}

/** Log-probabilities of a row's trained tokens; with a loss also its value, and the gradients added to those of the parameters. */
export function passRow(model: ReferenceModel, row: Row, loss: LossSpec | null) {
  const tape = new Tape();
  const logits = logitsOf(model, row.tokens.subarray(0, -1), tape);
  const logprobs = new Float32Array(row.tokens.length);
  const sums = { loss: 0, tokens: 0, entropy: 0 };
  for (const [t, weight] of row.weights.entries()) {
    if (weight === 0) continue;
    const [start, end] = [(t - 1) * logits.columns, t * logits.columns];
    const p = softmax(logits.data.subarray(start, end));
    const n = Math.log(p[row.tokens[t]!]!);
    logprobs[t] = n;
    sums.tokens++;
    sums.entropy -= p.reduce((sum, each) => sum + (each === 0 ? 0 : each * Math.log(each)), 0);
    if (loss === null) continue;
    const token = { newLogprob: n, oldLogprob: row.logprobs?.[t] ?? NaN, advantage: row.advantages?.[t] ?? 0 };
    const { value, derivative } = tokenLoss(loss, token);
    sums.loss += weight * value;
    // ∂n/∂logits = [is the token] − p
    logits.gradient.set(
      p.map((each, id) => weight * derivative * ((id === row.tokens[t] ? 1 : 0) - each)),
      start,
    );
  }
  if (loss !== null) tape.backward();
  return { logprobs, ...sums };
}
