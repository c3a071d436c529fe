/**
 * Architectures of llama.cpp that can be read, and their configuration in the form of transformers. {@link modelConfig} combines the keys
 * that all architectures share with those that the architecture's own function returns.
 */
import { DataError, UnsupportedError } from "../errors.ts";
import type { GgufFile } from "./file.ts";
import { MetadataKeys } from "./keys.ts";
import { ropeParameters, type RopeParameters } from "./rope.ts";
import { FUSED_PARTS, type LayerParts, POST_NORM_PARTS, PRE_NORM_PARTS, SANDWICH_NORM_PARTS } from "./tensor-names.ts";

/** Keys of a `config.json`. */
export type Config = Readonly<Record<string, unknown>>;

/** Mapping of an architecture to transformers. */
export interface GgufArchitecture {
  /** Names of the parts of a layer. */
  readonly parts: LayerParts;
  /**
   * Whether the rows of query and key projections are in the order for rotation of interleaved pairs `(2i, 2i + 1)`. transformers rotates
   * halves `(i, i + d/2)`.
   */
  readonly isInterleaved: boolean;
  /**
   * Number that the converter of llama.cpp adds to the gains of norms; reading subtracts it. For Gemma it is 1: the model multiplies by
   * `1 + gain`, llama.cpp by the stored number.
   */
  readonly gainOffset: number;
  /** Returns the keys that differ between architectures. */
  readonly config: (model: ArchitectureInput) => Promise<Config>;
}

/** Values for {@link GgufArchitecture.config}. */
interface ArchitectureInput {
  readonly file: GgufFile;
  readonly keys: MetadataKeys;
  /** Number of layers. */
  readonly layers: number;
  /** Elements of a query or key of one head. */
  readonly headSize: number;
}

const LLAMA: GgufArchitecture = {
  parts: PRE_NORM_PARTS,
  isInterleaved: true,
  gainOffset: 0,
  async config({ file, keys, headSize }) {
    const window = keys.number("attention.sliding_window") ?? 0;
    // Converters write both families as "llama"; only Mistral has a sliding window.
    const name = window === 0 ? named("LlamaForCausalLM", "llama") : { ...named("MistralForCausalLM", "mistral"), sliding_window: window };
    return {
      ...name,
      ...biases(file),
      rope_parameters: await wholeRope({ file, keys, headSize }, keys.number("rope.freq_base") ?? 10_000),
    };
  },
};

/**
 * Architectures by `general.architecture`.
 *
 * @source https://github.com/ggml-org/llama.cpp, `conversion/` and `src/models/`
 */
const ARCHITECTURES: Readonly<Record<string, GgufArchitecture>> = {
  llama: LLAMA,
  mistral3: {
    ...LLAMA,
    async config({ file, keys, headSize }) {
      const temperature = keys.number("attention.temperature_scale") ?? 0;
      const rope = await wholeRope({ file, keys, headSize });
      const name = temperature === 0 ? named("MistralForCausalLM", "mistral") : named("Ministral3ForCausalLM", "ministral3");
      const scaling = temperature === 0 ? {} : { llama_4_scaling_beta: temperature };
      return { ...name, sliding_window: null, rope_parameters: { ...rope, ...scaling } };
    },
  },
  qwen2: {
    ...LLAMA,
    isInterleaved: false,
    config: (model) => withWholeRope(model, named("Qwen2ForCausalLM", "qwen2"), { use_sliding_window: false }),
  },
  qwen3: {
    ...LLAMA,
    isInterleaved: false,
    config: (model) =>
      withWholeRope(model, named("Qwen3ForCausalLM", "qwen3"), {
        use_sliding_window: false,
        attention_bias: biases(model.file).attention_bias,
      }),
  },
  smollm3: {
    ...LLAMA,
    config: (model) =>
      withWholeRope(model, named("SmolLM3ForCausalLM", "smollm3"), {
        use_sliding_window: false,
        attention_bias: biases(model.file).attention_bias,
        // The file has no key for this interval: in llama.cpp it is a constant.
        no_rope_layers: Array.from({ length: model.layers }, (_, layer) => ((layer + 1) % 4 === 0 ? 0 : 1)),
      }),
  },
  gemma3: { parts: SANDWICH_NORM_PARTS, isInterleaved: false, gainOffset: 1, config: gemma3 },
  phi3: { parts: FUSED_PARTS, isInterleaved: false, gainOffset: 0, config: phi3 },
  olmo2: { parts: POST_NORM_PARTS, isInterleaved: false, gainOffset: 0, config: olmo },
  granite: { ...LLAMA, config: granite },
};

/** Maximum number of layers. */
const MAX_LAYERS = 1024;

/** Returns the configuration of a model for `config.json`. @throws UnsupportedError `E_UNSUPPORTED`, DataError `E_DATA` naming the key. */
export async function modelConfig(file: GgufFile): Promise<Config> {
  const { name, architecture } = architectureOf(file);
  const keys = new MetadataKeys(file.metadata, name);
  const embedding = file.tensors.get("token_embd.weight");
  if (embedding === undefined)
    throw new DataError(`${file.label}: expected tensor "token_embd.weight", found none: the file has no weights`);
  for (const key of ["expert_count", "attention.clamp_kqv", "attention.max_alibi_bias", "attn_logit_softcapping"])
    keys.refuseUnlessZero(key);
  const heads = keys.requireSameInAllLayers("attention.head_count");
  const hiddenSize = keys.requireNumber("embedding_length");
  const layers = keys.requireNumber("block_count");
  if (!Number.isInteger(layers) || layers < 1 || layers > MAX_LAYERS)
    throw new DataError(`${file.label}: ${keys.name("block_count")}: expected a whole number from 1 to ${MAX_LAYERS}, got ${layers}`);
  const headSize = keys.number("attention.key_length") ?? hiddenSize / heads;
  const valueSize = keys.number("attention.value_length") ?? hiddenSize / heads;
  if (valueSize !== headSize)
    throw new UnsupportedError(
      `${file.label}: ${keys.name("attention.value_length")}: expected the length of keys, ${headSize}, got ${valueSize}`,
    );
  return {
    ...(await architecture.config({ file, keys, layers, headSize })),
    vocab_size: embedding.shape[0],
    hidden_size: hiddenSize,
    intermediate_size: keys.requireSameInAllLayers("feed_forward_length"),
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: keys.sameInAllLayers("attention.head_count_kv") ?? heads,
    head_dim: headSize,
    max_position_embeddings: keys.requireNumber("context_length"),
    rms_norm_eps: keys.requireNumber("attention.layer_norm_rms_epsilon"),
    tie_word_embeddings: !file.tensors.has("output.weight"),
    dtype: "float32",
  };
}

/**
 * Returns the architecture of a file.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` with the supported ones for any other.
 */
export function architectureOf({ metadata, label }: GgufFile): { readonly name: string; readonly architecture: GgufArchitecture } {
  const name = metadata.required("general.architecture", metadata.string("general.architecture"));
  const architecture = Object.hasOwn(ARCHITECTURES, name) ? ARCHITECTURES[name] : undefined;
  if (architecture !== undefined) return { name, architecture };
  throw new UnsupportedError(
    `${label}: general.architecture: expected one of ${Object.keys(ARCHITECTURES).join(", ")}, got ${JSON.stringify(name.slice(0, 100))}; other families are not supported`,
  );
}

/** Returns the keys that name an architecture with the activation SiLU. */
function named(architecture: string, type: string): Config {
  return { architectures: [architecture], model_type: type, hidden_act: "silu" };
}

/** Returns the configuration of an architecture with one rotation of whole heads. */
async function withWholeRope(model: ArchitectureInput, name: Config, familyKeys: Config): Promise<Config> {
  return { ...name, ...familyKeys, rope_parameters: await wholeRope(model) };
}

/**
 * Returns the rotation of whole heads.
 *
 * @param theta - Base of the frequencies. @default the key `rope.freq_base`, which must then be present
 * @throws UnsupportedError `E_UNSUPPORTED` for a model that rotates a part of each head.
 */
async function wholeRope(
  { file, keys, headSize }: Pick<ArchitectureInput, "file" | "keys" | "headSize">,
  theta?: number,
): Promise<RopeParameters> {
  const rotated = keys.number("rope.dimension_count") ?? headSize;
  if (rotated !== headSize)
    throw new UnsupportedError(
      `${keys.label}: ${keys.name("rope.dimension_count")}: expected the size of a head, ${headSize}, got ${rotated}`,
    );
  return ropeParameters(file, keys, headSize, theta ?? keys.requireNumber("rope.freq_base"));
}

/** Returns whether attention and feed-forward layers have biases, judged by the first layer. */
function biases({ tensors }: GgufFile): { readonly attention_bias: boolean; readonly mlp_bias: boolean } {
  return { attention_bias: tensors.has("blk.0.attn_q.bias"), mlp_bias: tensors.has("blk.0.ffn_gate.bias") };
}

/**
 * Returns the type of each layer: with or without a sliding window. The file has a value per layer (0 for a layer without a window), or a
 * period: every `period`-th layer has no window.
 *
 * @param defaultPeriod - Period for files that have neither.
 */
function layerTypes(keys: MetadataKeys, layers: number, defaultPeriod: number): string[] {
  const pattern = keys.numbers("attention.sliding_window_pattern");
  if (pattern !== undefined && pattern.length < layers)
    throw new DataError(
      `${keys.label}: ${keys.name("attention.sliding_window_pattern")}: expected ${layers} values, got ${pattern.length}`,
    );
  // `number` rejects arrays, so the period is read only if there is no pattern.
  const period = pattern === undefined ? (keys.number("attention.sliding_window_pattern") ?? defaultPeriod) : 0;
  const hasWindow = (layer: number) => (pattern === undefined ? (layer + 1) % period !== 0 : pattern[layer] !== 0);
  return Array.from({ length: layers }, (_, layer) => (hasWindow(layer) ? "sliding_attention" : "full_attention"));
}

/** Layers of Gemma 3 27B, which scales attention by hidden size / heads instead of the size of a head. */
const GEMMA_27B_LAYERS = 62;

/** Returns the keys of Gemma 3, text models only. */
async function gemma3({ file, keys, layers, headSize }: ArchitectureInput): Promise<Config> {
  const windowTheta = keys.number("rope.freq_base_swa") ?? 10_000;
  const window = keys.number("attention.sliding_window") ?? 0;
  return {
    architectures: ["Gemma3ForCausalLM"],
    model_type: "gemma3_text",
    hidden_activation: "gelu_pytorch_tanh",
    query_pre_attn_scalar:
      layers === GEMMA_27B_LAYERS ? keys.requireNumber("embedding_length") / keys.requireSameInAllLayers("attention.head_count") : headSize,
    sliding_window: window === 0 ? null : window,
    layer_types: window === 0 ? Array.from({ length: layers }, () => "full_attention") : layerTypes(keys, layers, 6),
    attention_bias: false,
    attn_logit_softcapping: null,
    final_logit_softcapping: keys.number("final_logit_softcapping") ?? null,
    rope_parameters: {
      full_attention: await wholeRope({ file, keys, headSize }),
      sliding_attention: { rope_type: "default", rope_theta: windowTheta },
    },
  };
}

/** Returns the keys of Phi 3 and 4, which rotate a part of each head. */
async function phi3({ file, keys, headSize }: ArchitectureInput): Promise<Config> {
  const rotated = keys.requireNumber("rope.dimension_count");
  const window = keys.number("attention.sliding_window") ?? 0;
  const rotatedFraction = rotated / headSize;
  return {
    ...named("Phi3ForCausalLM", "phi3"),
    sliding_window: window === 0 ? null : window,
    partial_rotary_factor: rotatedFraction,
    original_max_position_embeddings: keys.number("rope.scaling.original_context_length") ?? keys.requireNumber("context_length"),
    rope_parameters: {
      ...(await ropeParameters(file, keys, rotated, keys.requireNumber("rope.freq_base"))),
      partial_rotary_factor: rotatedFraction,
    },
  };
}

/** Returns the keys of OLMo 3, or, for a file without a sliding window, of OLMo 2. */
async function olmo({ file, keys, layers, headSize }: ArchitectureInput): Promise<Config> {
  const theta = keys.requireNumber("rope.freq_base");
  const rope = await wholeRope({ file, keys, headSize }, theta);
  const window = keys.number("attention.sliding_window") ?? 0;
  if (window === 0) return { ...named("Olmo2ForCausalLM", "olmo2"), attention_bias: false, rope_parameters: rope };
  return {
    ...named("Olmo3ForCausalLM", "olmo3"),
    attention_bias: false,
    sliding_window: window,
    layer_types: layerTypes(keys, layers, 4),
    rope_parameters: {
      full_attention: rope,
      sliding_attention: { rope_type: "default", rope_theta: keys.number("rope.freq_base_swa") ?? theta },
    },
  };
}

/** Returns the keys of Granite without experts. */
async function granite({ file, keys, headSize }: ArchitectureInput): Promise<Config> {
  if (keys.boolean("rope.scaling.finetuned") === false)
    throw new UnsupportedError(
      `${file.label}: ${keys.name("rope.scaling.finetuned")}: false (no rotary position embeddings) is not supported`,
    );
  keys.refuseUnlessZero("expert_shared_feed_forward_length");
  return {
    ...named("GraniteForCausalLM", "granite"),
    ...biases(file),
    attention_multiplier: keys.requireNumber("attention.scale"),
    embedding_multiplier: keys.requireNumber("embedding_scale"),
    residual_multiplier: keys.requireNumber("residual_scale"),
    logits_scaling: keys.requireNumber("logit_scale"),
    rope_parameters: await wholeRope({ file, keys, headSize }),
  };
}
