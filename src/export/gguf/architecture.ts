/** Names, metadata and tensors of llama.cpp for the supported architectures. */
import type { ModelConfig } from "../../engine/onnx/model/config.ts";
import { MODEL_CONFIG_FILE } from "../../engine/onnx/model/model-files.ts";
import { ropeFrequencies } from "../../engine/onnx/model/rope.ts";
import { InternalError, UnsupportedError } from "../../base/errors.ts";
import { readModelFile } from "../../base/gguf/model-files.ts";
import { ggufTensorName } from "../../base/gguf/tensor-names.ts";
import { MAX_CONFIG_BYTES, parseFileJson } from "../../base/util/regular-file.ts";
import { GGUF_FAMILIES, type GgufFamily, longRopeFactors, type RawConfig, type GgufSettings, windowOf } from "./families.ts";
import type { MetadataValue } from "./writer.ts";
import { zip } from "../../base/util/values.ts";

/** Tensor of a GGUF file, and the changes that make it from the tensor in Hugging Face layout. */
export interface MappedTensor {
  /** Name in the GGUF file. */
  readonly name: string;
  /** Name in Hugging Face layout. */
  readonly hubName: string;
  /** Number of heads whose rows are reordered for interleaved rotation; 0 = none. */
  readonly interleavedHeads: number;
  /** Number to add to the elements. */
  readonly offset: number;
}

/** Mapping of a model to llama.cpp. */
export interface GgufModel {
  /** Value of `general.architecture`. */
  readonly name: string;
  readonly metadata: readonly (readonly [string, MetadataValue])[];
  /** Returns the mapping of a tensor in Hugging Face layout. */
  readonly tensorOf: (hubName: string) => MappedTensor;
  /** Divisors of the rotary frequencies by tensor name, shape `[d/2]`; none if the metadata describe the frequencies. */
  readonly ropeFactors: ReadonlyMap<string, Float32Array>;
}

/** Reads the keys of the `config.json` of a directory that the engine has accepted. */
export async function readRawConfig(base: string): Promise<RawConfig> {
  const text = (await readModelFile(base, MODEL_CONFIG_FILE, { maxBytes: MAX_CONFIG_BYTES })) ?? "{}";
  return parseFileJson(MODEL_CONFIG_FILE, text) as RawConfig;
}

/**
 * Maps a model to llama.cpp.
 *
 * @param raw - Keys of its `config.json`.
 * @param config - The same configuration, parsed.
 * @throws UnsupportedError `E_UNSUPPORTED` for a setting that llama.cpp does not have; the message names it.
 */
export function ggufModel(raw: RawConfig, config: ModelConfig): GgufModel {
  const [architecture] = raw["architectures"] as readonly string[];
  const family = Object.entries(GGUF_FAMILIES).find(([name]) => name === architecture)?.[1];
  if (family === undefined)
    throw new UnsupportedError(
      `Expected an architecture that can be written as GGUF, ${Object.keys(GGUF_FAMILIES).join(", ")}, got ${architecture}; export another format`,
      { param: "format" },
    );
  requireSupported(family, raw, config);
  const { name } = family;
  const uint32 = (value: number): MetadataValue => ({ type: "uint32", value });
  const float32 = (value: number): MetadataValue => ({ type: "float32", value });
  const settings: GgufSettings = {
    block_count: uint32(config.layers),
    context_length: uint32(config.contextLength),
    embedding_length: uint32(config.hiddenSize),
    feed_forward_length: uint32(config.innerSize),
    "attention.head_count": uint32(config.heads),
    "attention.head_count_kv": uint32(config.kvHeads),
    "attention.key_length": uint32(config.headSize),
    "attention.value_length": uint32(config.headSize),
    "attention.layer_norm_rms_epsilon": float32(config.normEpsilon),
    vocab_size: uint32(config.vocabularySize),
    "rope.dimension_count": uint32(config.headSize),
    "rope.freq_base": float32(config.ropeTheta),
    ...ropeSettings(config),
    ...family.settings(raw, config),
  };
  return {
    name,
    metadata: [
      ["general.architecture", { type: "string", value: name }],
      ...Object.entries(settings).map(([key, value]) => [`${name}.${key}`, value] as const),
    ],
    tensorOf: (hubName) => mapTensor(hubName, family, config),
    ropeFactors: config.rope.kind === "llama3" ? new Map([["rope_freqs.weight", llama3Factors(config)]]) : longRopeFactors(raw),
  };
}

/** Requires that llama.cpp has the model's settings. @throws UnsupportedError `E_UNSUPPORTED` naming the setting. */
function requireSupported(family: GgufFamily, raw: RawConfig, config: ModelConfig): void {
  const refuse = (setting: string): never => {
    throw new UnsupportedError(`llama.cpp has no ${family.name} model with ${setting}; export another format`, { param: "format" });
  };
  const { attentionBias, hasMlpBias, rope, layers, unrotatedLayers } = config;
  if (family.biases === "none" && attentionBias !== "none") refuse("biases of the attention layers (`attention_bias`)");
  if (family.biases === "qkv" && attentionBias === "all") refuse("a bias of the attention output (`attention_bias`)");
  if (family.biases !== "all" && hasMlpBias) refuse("biases of the feed-forward layers (`mlp_bias`)");
  if (!family.hasRopeFactors && rope.kind === "llama3") refuse('rotary scaling of type "llama3"');
  if (rope.kind === "yarn" && !rope.isTruncated) refuse('rotary scaling of type "yarn" with `truncate: false`');
  if (family.dividesHiddenSize && config.heads * config.headSize !== config.hiddenSize)
    refuse("a `head_dim` other than hidden size / heads");
  if (family.isUntied && config.isTied) refuse("`tie_word_embeddings: true`");
  const window = family.hasWindow ? null : windowOf(raw, config);
  if (window !== null) refuse(`a sliding window (\`sliding_window\`: ${window})`);
  const { unrotatedEvery } = family;
  const isUnrotated = (layer: number) => unrotatedEvery > 0 && (layer + 1) % unrotatedEvery === 0;
  const expectedUnrotated = Array.from({ length: layers }, (_, layer) => layer).filter(isUnrotated);
  if (expectedUnrotated.join() !== unrotatedLayers.join())
    refuse(`layers ${unrotatedLayers.join(", ") || "(none)"} without rotation (\`no_rope_layers\`)`);
}

/** Returns the metadata of linear and YaRN scaling. */
function ropeSettings({ rope }: ModelConfig): GgufSettings {
  const type = (value: string): GgufSettings => ({ "rope.scaling.type": { type: "string", value } });
  const float32 = (value: number): MetadataValue => ({ type: "float32", value });
  switch (rope.kind) {
    case "linear":
      return { ...type("linear"), "rope.scaling.factor": float32(rope.factor) };
    case "yarn":
      return {
        ...type("yarn"),
        "rope.scaling.factor": float32(rope.factor),
        "rope.scaling.original_context_length": { type: "uint32", value: rope.originalContextLength },
        // llama.cpp multiplies this value with its own magnitude, 0.1 · ln(factor) + 1.
        "rope.scaling.attn_factor": float32(rope.attentionFactor / (0.1 * Math.log(Math.max(rope.factor, 1)) + 1)),
        "rope.scaling.yarn_beta_fast": float32(rope.betaFast),
        "rope.scaling.yarn_beta_slow": float32(rope.betaSlow),
      };
    default:
      // Tensors describe the frequencies of types "llama3" and "longrope".
      return {};
  }
}

/** Returns the quotients of plain and rescaled frequencies, by which llama.cpp divides its plain frequencies. */
function llama3Factors(config: ModelConfig): Float32Array {
  const plain = ropeFrequencies({ ...config, rope: { kind: "none" } });
  return Float32Array.from(zip(plain, ropeFrequencies(config)), ([plainFrequency, frequency]) => plainFrequency / frequency);
}

/** Returns the mapping of a tensor. Every tensor of a supported family has a name in GGUF. */
function mapTensor(hubName: string, { parts, isInterleaved, gainOffset }: GgufFamily, { heads, kvHeads }: ModelConfig): MappedTensor {
  const tensorName = ggufTensorName(hubName, parts);
  if (tensorName === undefined) throw new InternalError(`Tensor ${hubName} has no name in GGUF`);
  const { name, part = "" } = tensorName;
  const headsByPart: Readonly<Record<string, number>> = { "self_attn.q_proj": heads, "self_attn.k_proj": kvHeads };
  return {
    name,
    hubName,
    interleavedHeads: isInterleaved ? (headsByPart[part] ?? 0) : 0,
    offset: hubName.endsWith("norm.weight") ? gainOffset : 0,
  };
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
      const half = headSize / 2;
      const newRow = row < half ? 2 * row : 2 * (row - half) + 1;
      const start = (head * headSize + row) * rowLength;
      reordered.set(data.subarray(start, start + rowLength), (head * headSize + newRow) * rowLength);
    }
  }
  return reordered;
}
