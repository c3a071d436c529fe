/**
 * Properties of the supported architectures in llama.cpp, and metadata that only some of them have, for the export to GGUF.
 * `base/gguf/architectures.ts` has the properties for reading GGUF.
 */
import { UnsupportedError } from "../../base/errors.ts";
import type { ModelConfig } from "../../engine/onnx/model/config.ts";
import { FUSED_PARTS, type LayerParts, POST_NORM_PARTS, PRE_NORM_PARTS, SANDWICH_NORM_PARTS } from "../../base/gguf/tensor-names.ts";
import type { MetadataValue } from "./writer.ts";

/** Keys of a `config.json`. */
export type RawConfig = Readonly<Record<string, unknown>>;

/** Metadata without the prefix `<architecture>.`. */
export type GgufSettings = Readonly<Record<string, MetadataValue>>;

/** Properties of an architecture in llama.cpp. */
export interface GgufFamily {
  /** Value of `general.architecture`. */
  readonly name: string;
  /** Names of the parts of a layer. */
  readonly parts: LayerParts;
  /** Whether heads are rotated in interleaved pairs `(2i, 2i + 1)` instead of halves `(i, i + d/2)`. */
  readonly isInterleaved: boolean;
  /** Linear layers that may have a bias: none; queries, keys and values; or all, including attention output and feed-forward. */
  readonly biases: "none" | "qkv" | "all";
  /** Number that is added to the gains of norms, because llama.cpp multiplies by the gain where the model multiplies by `1 + gain`. */
  readonly gainOffset: 0 | 1;
  /** Whether llama.cpp reads factors of the rotary frequencies. */
  readonly hasRopeFactors: boolean;
  /** Layers `n`, `2n`, `3n` … (counted from 1) are not rotated, with `n` this number; 0 = all layers are rotated. */
  readonly unrotatedEvery: number;
  /** Whether some or all layers may have a sliding window. */
  readonly hasWindow: boolean;
  /** Whether the size of a head is always hidden size / heads. */
  readonly dividesHiddenSize: boolean;
  /** Whether the output head is always a tensor of its own. */
  readonly isUntied: boolean;
  /** Returns the metadata that other architectures do not have. */
  readonly settings: (raw: RawConfig, config: ModelConfig) => GgufSettings;
}

/** Properties of Llama, from which the other families derive. */
const LLAMA: GgufFamily = {
  name: "llama",
  parts: PRE_NORM_PARTS,
  isInterleaved: true,
  biases: "all",
  gainOffset: 0,
  hasRopeFactors: true,
  unrotatedEvery: 0,
  hasWindow: false,
  dividesHiddenSize: false,
  isUntied: false,
  settings: () => ({}),
};
/** Common properties of architectures that rotate heads in halves. */
const HALVES: GgufFamily = { ...LLAMA, isInterleaved: false, biases: "qkv", hasRopeFactors: false };
/** Properties of OLMo 2 and 3, which llama.cpp reads under one name. */
const OLMO: GgufFamily = {
  ...HALVES,
  name: "olmo2",
  parts: POST_NORM_PARTS,
  biases: "none",
  hasWindow: true,
  dividesHiddenSize: true,
  isUntied: true,
  settings: olmo,
};

/**
 * Architectures by their name in `config.json`.
 *
 * @source https://github.com/ggml-org/llama.cpp, `src/models/` and `conversion/`
 */
export const GGUF_FAMILIES: Readonly<Record<string, GgufFamily>> = {
  LlamaForCausalLM: LLAMA,
  MistralForCausalLM: LLAMA,
  Ministral3ForCausalLM: { ...LLAMA, name: "mistral3", biases: "none", settings: ministral },
  Qwen2ForCausalLM: { ...HALVES, name: "qwen2", dividesHiddenSize: true },
  Qwen3ForCausalLM: { ...HALVES, name: "qwen3" },
  SmolLM3ForCausalLM: { ...LLAMA, name: "smollm3", biases: "qkv", hasRopeFactors: false, unrotatedEvery: 4 },
  Gemma3ForCausalLM: {
    ...HALVES,
    name: "gemma3",
    parts: SANDWICH_NORM_PARTS,
    biases: "none",
    gainOffset: 1,
    hasWindow: true,
    settings: gemma,
  },
  Olmo2ForCausalLM: OLMO,
  Olmo3ForCausalLM: OLMO,
  GraniteForCausalLM: { ...LLAMA, name: "granite", dividesHiddenSize: true, settings: granite },
  Phi3ForCausalLM: { ...HALVES, name: "phi3", parts: FUSED_PARTS, biases: "none", dividesHiddenSize: true, settings: phi },
};

const float32 = (value: unknown): MetadataValue => ({ type: "float32", value: value as number });
const uint32 = (value: unknown): MetadataValue => ({ type: "uint32", value: value as number });

/** Returns the number of tokens that a token attends to in layers with a sliding window; null if no layer has a window. */
export function windowOf(raw: RawConfig, { contextLength }: ModelConfig): number | null {
  const { sliding_window: window, layer_types: types, use_sliding_window: isUsed } = raw;
  if (isUsed === false || typeof window !== "number" || window >= contextLength) return null;
  return Array.isArray(types) && !types.includes("sliding_attention") ? null : window;
}

/** Returns window and pattern of the layers; without `layer_types`, every `period`-th layer has no window. */
function windowSettings(raw: RawConfig, config: ModelConfig, period: number): GgufSettings {
  const window = windowOf(raw, config);
  if (window === null) return {};
  const { layer_types: types } = raw;
  const isWindowed = (layer: number) => (Array.isArray(types) ? types[layer] === "sliding_attention" : (layer + 1) % period !== 0);
  return {
    "attention.sliding_window": uint32(window),
    "attention.sliding_window_pattern": { type: "bools", value: Array.from({ length: config.layers }, (_, layer) => isWindowed(layer)) },
  };
}

/** Returns the base of the rotary frequencies in layers with a window, if `rope_parameters` has settings per type of layer. */
function windowTheta(raw: RawConfig): number | undefined {
  const byType = raw["rope_parameters"] as { readonly sliding_attention?: { readonly rope_theta?: number } } | null | undefined;
  return byType?.sliding_attention?.rope_theta;
}

/** Returns the metadata of OLMo 2 and 3. */
function olmo(raw: RawConfig, config: ModelConfig): GgufSettings {
  const theta = windowTheta(raw);
  return { ...windowSettings(raw, config, 4), ...(theta === undefined ? {} : { "rope.freq_base_swa": float32(theta) }) };
}

/** Layers of the model for which llama.cpp scales attention by hidden size / heads instead of the size of a head. */
const GEMMA_27B_LAYERS = 62;

/** Returns the metadata of Gemma 3. @throws UnsupportedError `E_UNSUPPORTED` for another attention scale than llama.cpp computes with. */
function gemma(raw: RawConfig, config: ModelConfig): GgufSettings {
  const { headSize, hiddenSize, heads, layers } = config;
  const expectedScalar = layers === GEMMA_27B_LAYERS ? hiddenSize / heads : headSize;
  const scalar = raw["query_pre_attn_scalar"] ?? 256;
  if (scalar !== expectedScalar)
    throw new UnsupportedError(
      `llama.cpp has no gemma3 model of ${layers} layers with \`query_pre_attn_scalar\` ${String(scalar)}, only ${expectedScalar}; export another format`,
      { param: "format" },
    );
  const cap = raw["final_logit_softcapping"] ?? null;
  return {
    ...windowSettings(raw, config, 6),
    "rope.freq_base_swa": float32(windowTheta(raw) ?? raw["rope_local_base_freq"] ?? 10_000),
    ...(cap === null ? {} : { final_logit_softcapping: float32(cap) }),
  };
}

/** Returns the metadata of Granite. */
function granite(raw: RawConfig): GgufSettings {
  return {
    "attention.scale": float32(raw["attention_multiplier"] ?? 1),
    embedding_scale: float32(raw["embedding_multiplier"] ?? 1),
    residual_scale: float32(raw["residual_multiplier"] ?? 1),
    logit_scale: float32(raw["logits_scaling"] ?? 1),
  };
}

/** Returns the metadata of Ministral 3. */
function ministral(raw: RawConfig): GgufSettings {
  const { llama_4_scaling_beta: beta = 0 } = (raw["rope_parameters"] ?? {}) as { readonly llama_4_scaling_beta?: number };
  return beta === 0 ? {} : { "attention.temperature_scale": float32(beta) };
}

/** Returns the metadata of Phi 3 and 4. */
function phi(raw: RawConfig, { headSize, contextLength: engineLength }: ModelConfig): GgufSettings {
  // The engine computes sequences up to the original context length, llama.cpp also longer ones.
  const contextLength = (raw["max_position_embeddings"] ?? engineLength) as number;
  const rope = (raw["rope_parameters"] ?? raw["rope_scaling"] ?? {}) as RawConfig;
  const rotatedFraction = (rope["partial_rotary_factor"] ?? raw["partial_rotary_factor"] ?? 1) as number;
  const originalLength = (rope["original_max_position_embeddings"] ?? raw["original_max_position_embeddings"] ?? contextLength) as number;
  const attention =
    "long_factor" in rope ? { "rope.scaling.attn_factor": float32(longRopeAttention(rope, contextLength, originalLength)) } : {};
  return {
    "rope.dimension_count": uint32(Math.trunc(rotatedFraction * headSize)),
    context_length: uint32(contextLength),
    "rope.scaling.original_context_length": uint32(originalLength),
    // llama.cpp ignores the window of this architecture; 0 disables it.
    "attention.sliding_window": uint32(0),
    ...attention,
  };
}

/** Returns the factor of `cos` and `sin` for rotary scaling of type "longrope". @source transformers, `_compute_longrope_parameters`. */
function longRopeAttention(rope: RawConfig, contextLength: number, originalLength: number): number {
  const scale = contextLength / originalLength;
  const defaultFactor = scale <= 1 ? 1 : Math.sqrt(1 + Math.log(scale) / Math.log(originalLength));
  return (rope["attention_factor"] ?? defaultFactor) as number;
}

/** Returns the divisors of the rotary frequencies by tensor name for rotary scaling of type "longrope"; none for other types. */
export function longRopeFactors(raw: RawConfig): ReadonlyMap<string, Float32Array> {
  const rope = (raw["rope_parameters"] ?? raw["rope_scaling"] ?? {}) as {
    readonly long_factor?: number[];
    readonly short_factor?: number[];
  };
  if (rope.long_factor === undefined || rope.short_factor === undefined) return new Map();
  return new Map([
    ["rope_factors_long.weight", Float32Array.from(rope.long_factor)],
    ["rope_factors_short.weight", Float32Array.from(rope.short_factor)],
  ]);
}
