/** Names of the tensors of a model: in Hugging Face layout and in GGUF files. */

/** Names of parts of a layer: Hugging Face → GGUF. */
export type LayerParts = Readonly<Record<string, string>>;

/** Parts of layers with a norm in front of attention and feed-forward. */
export const PRE_NORM_PARTS: LayerParts = {
  input_layernorm: "attn_norm",
  post_attention_layernorm: "ffn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
};

/** Parts of layers with norms after attention and feed-forward, as in OLMo 2 and 3. */
export const POST_NORM_PARTS: LayerParts = {
  ...PRE_NORM_PARTS,
  post_attention_layernorm: "post_attention_norm",
  post_feedforward_layernorm: "post_ffw_norm",
};

/** Parts of layers with norms on both sides of attention and feed-forward, as in Gemma 3. */
export const SANDWICH_NORM_PARTS: LayerParts = { ...POST_NORM_PARTS, pre_feedforward_layernorm: "ffn_norm" };

/** Parts of layers with fused projections, as in Phi 3 and 4. */
export const FUSED_PARTS: LayerParts = { ...PRE_NORM_PARTS, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up" };

/** Names of tensors outside the layers: Hugging Face → GGUF. */
const OUTSIDE_LAYERS: ReadonlyMap<string, TensorName> = new Map([
  ["model.embed_tokens.weight", { name: "token_embd.weight" }],
  ["model.norm.weight", { name: "output_norm.weight" }],
  ["lm_head.weight", { name: "output.weight" }],
]);

/** Name in a GGUF file, and part of a layer in Hugging Face layout. */
export interface TensorName {
  readonly name: string;
  /** Part of a layer, such as `self_attn.q_proj`; undefined outside of layers. */
  readonly part?: string | undefined;
}

/** Returns the name in GGUF of a tensor in Hugging Face layout; undefined for a tensor without a counterpart. */
export function ggufTensorName(hubName: string, parts: LayerParts): TensorName | undefined {
  const [, layer, part = "", kind] = /^model\.layers\.(\d+)\.(.+)\.(weight|bias)$/u.exec(hubName) ?? [];
  if (layer === undefined) return OUTSIDE_LAYERS.get(hubName);
  return Object.hasOwn(parts, part) ? { name: `blk.${layer}.${parts[part]}.${kind}`, part } : undefined;
}
