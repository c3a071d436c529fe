/** Configuration of a transformer: sizes and variants, parsed from the `config.json` of its directory. */
import { DataError, UnsupportedError, WhetstoneError } from "../../../base/errors.ts";
import { readModelFile } from "../../../base/gguf/model-files.ts";
import { MAX_CONFIG_BYTES, parseFileJson, reasonOf } from "../../../base/util/regular-file.ts";
import {
  type Activation,
  ARCHITECTURES,
  type Architecture,
  type ModuleNames,
  type NormPlacement,
  type QueryKeyNorm,
} from "./architectures.ts";
import { parseWindow, type Raw, shown, type SlidingWindow, wholeNumber } from "./layer-windows.ts";
import { tableStart, type QueryGrowth, type Rope } from "./rope.ts";
import { parseRope } from "./rope-settings.ts";
import { parseScales, type Scales } from "./scales.ts";
import { isRecord } from "../../../base/util/values.ts";

/** Base model that an identifier resolved to. */
export interface BaseSource {
  readonly id: string;
  /** Directory in Hugging Face layout, or GGUF file. */
  readonly directory: string;
}

/** Configuration of a transformer. Comments in this directory use the letters H, L, h, kv, d, F, V for its sizes. */
export interface ModelConfig extends Rope {
  /** Vocabulary size, V. */
  readonly vocabularySize: number;
  /** Hidden size, H. */
  readonly hiddenSize: number;
  /** Number of layers, L. */
  readonly layers: number;
  /** Number of query heads, h. */
  readonly heads: number;
  /** Number of key and value heads, kv; divides h. */
  readonly kvHeads: number;
  /** Size of a head, d; even, and not necessarily H / h. */
  readonly headSize: number;
  /** Inner size of the feed-forward layers, F. */
  readonly innerSize: number;
  /** Rotated elements at the start of a head, r; even. */
  readonly rotarySize: number;
  /** Rotary embedding of the layers with a window, if they have another. */
  readonly localRope: Rope | null;
  /** Factor of queries that grows with their position; null = none. */
  readonly queryGrowth: QueryGrowth | null;
  /** Sliding window; null if every token attends to all tokens before it. */
  readonly window: SlidingWindow | null;
  /** Indices of layers without rotary position embeddings. */
  readonly unrotatedLayers: readonly number[];
  /** Attention projections with a bias: none; queries, keys and values (`qkv`); or all, including the output. */
  readonly attentionBias: "none" | "qkv" | "all";
  /** Whether the feed-forward projections have a bias. */
  readonly hasMlpBias: boolean;
  /** RMS normalization of queries and keys before rotation: none, each head, or all heads of a token together. */
  readonly queryKeyNorm: QueryKeyNorm;
  /** Norms of attention and feed-forward layers: of their inputs, of their outputs, or both. */
  readonly norms: NormPlacement;
  /** Whether norms multiply by `1 + gain` instead of `gain`. */
  readonly hasUnitOffset: boolean;
  readonly normEpsilon: number;
  readonly activation: Activation;
  readonly scales: Scales;
  /** Names of a layer's modules in weight files. */
  readonly modules: ModuleNames;
  /** Whether the output head is the embedding transposed. */
  readonly isTied: boolean;
  /** Maximum number of tokens in a sequence. */
  readonly contextLength: number;
  /** Standard deviation of random initial weights. */
  readonly initializerRange: number;
}

/**
 * Maximum values of settings that determine memory and time before any tensor is read. The limits are several times the values of the
 * largest published models of the supported architectures.
 */
const MAX_VALUES: Readonly<Record<string, number>> = {
  vocab_size: 2 ** 20,
  hidden_size: 2 ** 16,
  num_hidden_layers: 1024,
  num_attention_heads: 1024,
  num_key_value_heads: 1024,
  head_dim: 1024,
  intermediate_size: 2 ** 20,
  shared_intermediate_size: 2 ** 20,
  max_position_embeddings: 2 ** 20,
};

/** Maximum of `max_position_embeddings · head_dim`, because the rotary tables take 4 bytes per element of this product. */
const MAX_ROTARY_SIZE = 2 ** 27;

/** Supported values of keys that would otherwise change the computation. Null and absent keys are accepted as well. */
const REQUIRED_VALUES: Readonly<Record<string, unknown>> = {
  quantization_config: null,
  attn_logit_softcapping: null,
  final_logit_softcapping: null,
  use_bidirectional_attention: false,
  dual_chunk_attention_config: null,
};

/**
 * Reads `config.json` of a directory in Hugging Face layout, or the same settings from the metadata of a GGUF file.
 *
 * @throws DataError `E_DATA` if the file is missing, is not JSON, or lacks a required number.
 * @throws UnsupportedError `E_UNSUPPORTED` for an unsupported architecture or setting.
 */
export async function readModelConfig(directory: string): Promise<ModelConfig> {
  const text = await readModelFile(directory, "config.json", { maxBytes: MAX_CONFIG_BYTES }).catch((cause: unknown) => {
    if (WhetstoneError.isInstance(cause)) throw cause;
    throw new DataError(`Expected a model configuration in config.json; it could not be read: ${reasonOf(cause)}`, { cause });
  });
  if (text === undefined) throw new DataError("Expected a model configuration in config.json; there is no such file");
  const raw = parseFileJson("config.json", text);
  if (!isRecord(raw)) throw new DataError("config.json: expected a JSON object");
  return parseModelConfig(raw, "config.json");
}

/** Parses the JSON of a `config.json`; `where` names the source in error messages. Throws the errors of {@link readModelConfig}. */
export function parseModelConfig(raw: Raw, where: string): ModelConfig {
  const architecture = architectureOf(raw, where);
  refuseUnsupported(raw, where, architecture);
  const number = (key: string, fallback?: number): number => positiveSetting(raw, where, key, fallback);
  const hiddenSize = number("hidden_size");
  const heads = number("num_attention_heads");
  const layers = number("num_hidden_layers");
  const headSize = number("head_dim", architecture.defaultHeadSize ?? hiddenSize / heads);
  const contextLength = number("max_position_embeddings");
  const rope = parseRope(raw, where, { contextLength, headSize }, architecture);
  const unrotated = unrotatedLayers(raw, where, architecture, layers);
  const windowedModel = { layers, contextLength, unrotatedLayers: unrotated, hasLocalRope: rope.localRope !== null };
  const config: ModelConfig = {
    vocabularySize: number("vocab_size"),
    hiddenSize,
    layers,
    heads,
    kvHeads: number("num_key_value_heads", architecture.defaultKvHeads ?? heads),
    headSize,
    innerSize: number(architecture.innerSizeKey),
    ...rope,
    unrotatedLayers: unrotated,
    window: parseWindow(raw, where, architecture.window, windowedModel),
    attentionBias: attentionBias(raw, architecture),
    hasMlpBias: raw["mlp_bias"] === true,
    queryKeyNorm: architecture.queryKeyNorm,
    norms: architecture.norms,
    hasUnitOffset: architecture.hasUnitOffset,
    normEpsilon: number("rms_norm_eps", architecture.defaultNormEpsilon),
    activation: architecture.activation.kind,
    scales: parseScales(raw, where, architecture.scales, { hiddenSize, headSize }),
    modules: architecture.modules,
    isTied: raw["tie_word_embeddings"] === undefined ? architecture.isTiedByDefault : raw["tie_word_embeddings"] === true,
    contextLength,
    initializerRange: number("initializer_range", 0.02),
  };
  checkSizes(config, where);
  return config;
}

/** Returns a number > 0 of the file, within the limit of its key. */
function positiveSetting(raw: Raw, where: string, key: string, fallback?: number): number {
  const value = raw[key] ?? fallback;
  if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) {
    throw new DataError(`${where}: expected "${key}" to be a number > 0, got ${shown(raw[key])}`);
  }
  const max = MAX_VALUES[key];
  if (max !== undefined && !(Number.isInteger(value) && value <= max))
    throw new DataError(`${where}: expected "${key}" to be a whole number of at most ${max}, got ${value}`);
  return value;
}

/** Returns the attention projections that have a bias. */
function attentionBias(raw: Raw, { alwaysHasQkvBias }: Architecture): ModelConfig["attentionBias"] {
  if (alwaysHasQkvBias) return "qkv";
  return raw["attention_bias"] === true ? "all" : "none";
}

/** @throws DataError `E_DATA` for sizes that do not fit each other, and for rotary tables that would be too large. */
function checkSizes(config: ModelConfig, where: string): void {
  if (config.heads % config.kvHeads !== 0 || config.headSize % 2 !== 0) {
    throw new DataError(
      `${where}: expected num_key_value_heads to divide num_attention_heads and an even head_dim, got ${config.kvHeads}, ${config.heads} and ${config.headSize}`,
    );
  }
  // "longrope" has the rows of short sequences in addition.
  if ((config.contextLength + tableStart(config, Infinity)) * config.headSize > MAX_ROTARY_SIZE) {
    throw new DataError(
      `${where}: expected max_position_embeddings · head_dim to be at most ${MAX_ROTARY_SIZE}, got ${config.contextLength} · ${config.headSize}`,
    );
  }
}

/** Returns the architecture that the first entry of `architectures` names. */
function architectureOf(raw: Raw, where: string): Architecture {
  const names = raw["architectures"];
  const name: unknown = Array.isArray(names) ? names[0] : undefined;
  const known = typeof name === "string" && Object.hasOwn(ARCHITECTURES, name) ? ARCHITECTURES[name] : undefined;
  if (!known) {
    throw new UnsupportedError(
      `${where}: expected architectures to name one of ${Object.keys(ARCHITECTURES).join(", ")}, got ${shown(names)}; other families are not supported`,
    );
  }
  return known;
}

/** Throws UnsupportedError for a setting that would change the computation in an unsupported way. */
function refuseUnsupported(raw: Raw, where: string, architecture: Architecture): void {
  const refuse = (key: string, expected: unknown): never => {
    throw new UnsupportedError(`${where}: "${key}": ${shown(raw[key])} is not supported; only ${JSON.stringify(expected)} is`);
  };
  const isGiven = (key: string) => raw[key] !== undefined && raw[key] !== null;
  for (const [key, allowed] of Object.entries(REQUIRED_VALUES)) if (isGiven(key) && raw[key] !== allowed) refuse(key, allowed);
  if (isGiven("partial_rotary_factor") && raw["partial_rotary_factor"] !== 1 && !architecture.isPhi) refuse("partial_rotary_factor", 1);
  if (architecture.isHybrid) requireDense(raw, where);
  const { key: activationKey, name } = architecture.activation;
  if (isGiven(activationKey) && raw[activationKey] !== name) refuse(activationKey, name);
  const biases = { attention_bias: architecture.mayHaveAttentionBias, mlp_bias: architecture.mayHaveMlpBias };
  for (const [key, mayBeTrue] of Object.entries(biases)) {
    const isSupported = raw[key] === false || (mayBeTrue && raw[key] === true);
    if (isGiven(key) && !isSupported) refuse(key, false);
  }
}

/** Refuses Mamba layers and experts, which are the defaults of hybrid architectures. */
function requireDense(raw: Raw, where: string): void {
  const expected = (key: string, value: string) => `${where}: expected "${key}" to be ${value}, got ${shown(raw[key])}`;
  if (raw["num_local_experts"] !== 0)
    throw new UnsupportedError(`${expected("num_local_experts", "0")}: experts are not supported, only the dense models of this family`);
  if (raw["layer_types"] === undefined || raw["layer_types"] === null)
    throw new UnsupportedError(`${expected("layer_types", '"attention" for every layer')}: Mamba layers, the default, are not supported`);
}

/** Returns the layers without rotary embedding. */
function unrotatedLayers(raw: Raw, where: string, { unrotated }: Architecture, layers: number): number[] {
  const all = Array.from({ length: layers }, (_, layer) => layer);
  switch (unrotated) {
    case "none":
      return [];
    case "no-rope-layers":
      return markedLayers(raw, where, all);
    case "position-type": {
      const type = raw["position_embedding_type"] ?? null;
      if (type !== null && type !== "rope")
        throw new UnsupportedError(`${where}: "position_embedding_type": ${shown(type)} is not supported; "rope" and null are`);
      return type === null ? all : [];
    }
  }
}

/** Returns the layers that `no_rope_layers` marks with 0, or every `no_rope_layer_interval`-th layer if the key is missing. */
function markedLayers(raw: Raw, where: string, all: readonly number[]): number[] {
  const marks = raw["no_rope_layers"] ?? null;
  if (marks === null) {
    const interval = wholeNumber(raw, where, "no_rope_layer_interval", 4, 1);
    return all.filter((layer) => (layer + 1) % interval === 0);
  }
  if (!Array.isArray(marks) || marks.length !== all.length || !marks.every((mark) => mark === 0 || mark === 1))
    throw new DataError(`${where}: expected "no_rope_layers" to be ${all.length} numbers, each 0 or 1, got ${shown(marks)}`);
  return marks.flatMap((mark, layer) => (mark === 0 ? [layer] : []));
}
