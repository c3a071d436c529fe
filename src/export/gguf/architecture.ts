/** Names, metadata and tensors of llama.cpp for the supported architectures. */
import { UnsupportedError } from "../../errors.ts";
import type { ModelConfig } from "../../engine/onnx/model/config.ts";
import { ropeFrequencies } from "../../engine/onnx/model/rope.ts";
import type { MetadataValue } from "./writer.ts";

/** Properties of an architecture in llama.cpp. */
interface GgufArchitecture {
  /** Value of `general.architecture`. */
  readonly name: string;
  /** Whether heads are rotated in interleaved pairs `(2i, 2i + 1)` instead of halves `(i, i + d/2)`. */
  readonly isInterleaved: boolean;
  /** Linear layers that may have a bias: queries, keys and values; or all, including attention output and feed-forward. */
  readonly biases: "qkv" | "all";
  /** Whether llama.cpp reads factors of the rotary frequencies. */
  readonly hasRopeFactors: boolean;
  /** Every layer with an index of -1 modulo this number is not rotated; 0 = all are. */
  readonly unrotatedEvery: number;
}

const LLAMA: GgufArchitecture = { name: "llama", isInterleaved: true, biases: "all", hasRopeFactors: true, unrotatedEvery: 0 };

/**
 * Architectures by their name in `config.json`.
 *
 * @source https://github.com/ggml-org/llama.cpp, `src/models/` and `conversion/`
 */
const ARCHITECTURES: Readonly<Record<string, GgufArchitecture>> = {
  LlamaForCausalLM: LLAMA,
  Qwen2ForCausalLM: { ...LLAMA, name: "qwen2", isInterleaved: false, biases: "qkv", hasRopeFactors: false },
  Qwen3ForCausalLM: { ...LLAMA, name: "qwen3", isInterleaved: false, biases: "qkv", hasRopeFactors: false },
  SmolLM3ForCausalLM: { ...LLAMA, name: "smollm3", biases: "qkv", hasRopeFactors: false, unrotatedEvery: 4 },
};

/** Tensor of a GGUF file: its name, and its name in Hugging Face layout. */
export interface MappedTensor {
  readonly name: string;
  readonly file: string;
  /** Number of heads whose rows are reordered for interleaved rotation; 0 = none. */
  readonly interleavedHeads: number;
}

/** Mapping of a model to llama.cpp. */
export interface GgufModel {
  readonly metadata: readonly (readonly [string, MetadataValue])[];
  /** Returns the mapping of a tensor in Hugging Face layout. */
  readonly tensorOf: (file: string) => MappedTensor;
  /** Divisors of the rotary frequencies, shape `[d/2]`; null if the metadata describe the frequencies. */
  readonly ropeFactors: Float32Array | null;
}

/**
 * Maps a model to llama.cpp.
 *
 * @param architecture - Name in `config.json`.
 * @param config - Configuration of the model.
 * @throws UnsupportedError `E_UNSUPPORTED` for a setting that llama.cpp does not have; the message names it.
 */
export function ggufModel(architecture: string, config: ModelConfig): GgufModel {
  const known = Object.hasOwn(ARCHITECTURES, architecture) ? ARCHITECTURES[architecture] : undefined;
  if (known === undefined)
    throw new UnsupportedError(
      `Expected an architecture that can be written as GGUF, ${Object.keys(ARCHITECTURES).join(", ")}, got ${architecture}; export another format`,
      { param: "format" },
    );
  requireSupported(known, config);
  const { name } = known;
  const uint32 = (key: string, value: number) => [`${name}.${key}`, { type: "uint32", value }] as const;
  const float32 = (key: string, value: number) => [`${name}.${key}`, { type: "float32", value }] as const;
  return {
    metadata: [
      ["general.architecture", { type: "string", value: name }],
      uint32("block_count", config.layers),
      uint32("context_length", config.contextLength),
      uint32("embedding_length", config.hiddenSize),
      uint32("feed_forward_length", config.innerSize),
      uint32("attention.head_count", config.heads),
      uint32("attention.head_count_kv", config.kvHeads),
      uint32("attention.key_length", config.headSize),
      uint32("attention.value_length", config.headSize),
      float32("attention.layer_norm_rms_epsilon", config.normEpsilon),
      uint32("vocab_size", config.vocabularySize),
      uint32("rope.dimension_count", config.headSize),
      float32("rope.freq_base", config.ropeTheta),
      ...ropeMetadata(name, config),
    ],
    tensorOf: (file) => mapped(file, known.isInterleaved ? config : null),
    ropeFactors: config.rope.kind === "llama3" ? ropeFactors(config) : null,
  };
}

function requireSupported(known: GgufArchitecture, config: ModelConfig): void {
  const refuse = (found: string): never => {
    throw new UnsupportedError(`llama.cpp has no ${known.name} model with ${found}; export another format`, { param: "format" });
  };
  const { attentionBias, hasMlpBias, rope, layers, unrotatedLayers, window } = config;
  if (rope.kind === "longrope") refuse('rotary scaling of type "longrope"');
  if (window !== null) refuse("a sliding window (`sliding_window`)");
  if (known.biases === "qkv" && attentionBias === "all") refuse("a bias of the attention output (`attention_bias`)");
  if (known.biases === "qkv" && hasMlpBias) refuse("biases of the feed-forward layers (`mlp_bias`)");
  if (!known.hasRopeFactors && rope.kind === "llama3") refuse('rotary scaling of type "llama3"');
  if (rope.kind === "yarn" && !rope.isTruncated) refuse('rotary scaling of type "yarn" with `truncate: false`');
  if (known.name === "qwen2" && config.heads * config.headSize !== config.hiddenSize) refuse("a `head_dim` other than hidden size / heads");
  const skipped = Array.from({ length: layers }, (_, layer) => layer).filter((layer) => (layer + 1) % known.unrotatedEvery === 0);
  if (skipped.join() !== unrotatedLayers.join())
    refuse(`layers ${unrotatedLayers.join(", ") || "(none)"} without rotation (\`no_rope_layers\`)`);
}

function ropeMetadata(name: string, { rope }: ModelConfig): (readonly [string, MetadataValue])[] {
  const type = (value: string): readonly [string, MetadataValue] => [`${name}.rope.scaling.type`, { type: "string", value }];
  const float32 = (key: string, value: number) => [`${name}.rope.scaling.${key}`, { type: "float32", value }] as const;
  switch (rope.kind) {
    case "none":
    case "llama3":
    case "longrope":
      return [];
    case "linear":
      return [type("linear"), float32("factor", rope.factor)];
    case "yarn":
      return [
        type("yarn"),
        float32("factor", rope.factor),
        [`${name}.rope.scaling.original_context_length`, { type: "uint32", value: rope.originalContextLength }],
        // llama.cpp multiplies this value with its own magnitude, 0.1 · ln(factor) + 1.
        float32("attn_factor", rope.attentionFactor / (0.1 * Math.log(Math.max(rope.factor, 1)) + 1)),
        float32("yarn_beta_fast", rope.betaFast),
        float32("yarn_beta_slow", rope.betaSlow),
      ];
  }
}

/** Returns the quotients of plain and rescaled frequencies, by which llama.cpp divides its plain frequencies. */
function ropeFactors(config: ModelConfig): Float32Array {
  const scaled = ropeFrequencies(config);
  return Float32Array.from(ropeFrequencies({ ...config, rope: { kind: "none" } }), (frequency, i) => frequency / scaled[i]!);
}

/** Names of parts of a layer: Hugging Face → GGUF. */
const LAYER_PARTS: Readonly<Record<string, string>> = {
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
/** Names of tensors outside the layers: Hugging Face → GGUF. */
const OTHERS: Readonly<Record<string, string>> = {
  "model.embed_tokens.weight": "token_embd.weight",
  "model.norm.weight": "output_norm.weight",
  "lm_head.weight": "output.weight",
};

function mapped(file: string, interleaved: ModelConfig | null): MappedTensor {
  const [, layer, part = "", kind] = /^model\.layers\.(\d+)\.(.+)\.(weight|bias)$/u.exec(file) ?? [];
  if (layer === undefined) return { name: OTHERS[file]!, file, interleavedHeads: 0 };
  const heads = part === "self_attn.q_proj" ? interleaved?.heads : part === "self_attn.k_proj" ? interleaved?.kvHeads : 0;
  return { name: `blk.${layer}.${LAYER_PARTS[part]}.${kind}`, file, interleavedHeads: heads ?? 0 };
}

/**
 * Reorders the rows of a query or key projection, so that rotation in interleaved pairs gives the same scores as rotation in halves: within
 * each head, row `i` of the first half goes to row `2i`, and row `i` of the second half to row `2i + 1`.
 *
 * @param data - Rows of all heads, row-major. Not modified.
 * @param heads - Number of heads.
 * @param rowLength - Elements per row: the hidden size, or 1 for a bias.
 */
export function interleaveHeads(data: Float32Array, heads: number, rowLength: number): Float32Array {
  const reordered = new Float32Array(data.length);
  const headSize = data.length / rowLength / heads;
  for (let head = 0; head < heads; head++) {
    for (let row = 0; row < headSize; row++) {
      const from = (head * headSize + row) * rowLength;
      const half = headSize / 2;
      const to = (head * headSize + (row < half ? 2 * row : 2 * (row - half) + 1)) * rowLength;
      reordered.set(data.subarray(from, from + rowLength), to);
    }
  }
  return reordered;
}
