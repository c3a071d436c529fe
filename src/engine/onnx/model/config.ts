import { DataError, UnsupportedError, WhetstoneError } from "../../../errors.ts";
import { readModelFile } from "../../../gguf/model-files.ts";
import { MAX_CONFIG_BYTES, parseFileJson, reasonOf } from "../../../util/regular-file.ts";
import { ARCHITECTURES, type Architecture } from "./architectures.ts";
import { parseRope, type RopeScaling } from "./rope.ts";

/** Base model that an identifier resolved to. */
export interface BaseSource {
  readonly id: string;
  /** Directory in Hugging Face layout, or GGUF file. */
  readonly directory: string;
}

/** Configuration of a transformer. Comments in this directory use the letters H, L, h, kv, d, F, V for its sizes. */
export interface ModelConfig {
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
  readonly ropeTheta: number;
  readonly rope: RopeScaling;
  /** Indices of layers without rotary position embeddings. */
  readonly unrotatedLayers: readonly number[];
  /** Attention projections with a bias: none; queries, keys and values (`qkv`); or all, including the output. */
  readonly attentionBias: "none" | "qkv" | "all";
  /** Whether the feed-forward projections have a bias. */
  readonly hasMlpBias: boolean;
  /** Whether each query and key head is RMS-normalized before rotation. */
  readonly hasQueryKeyNorm: boolean;
  readonly normEpsilon: number;
  /** Whether the output head is the embedding transposed. */
  readonly isTied: boolean;
  /** Maximum number of tokens in a sequence. */
  readonly contextLength: number;
  /** Standard deviation of random initial weights. */
  readonly initializerRange: number;
}

type Raw = Readonly<Record<string, unknown>>;

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
  max_position_embeddings: 2 ** 20,
};

/** Maximum of `max_position_embeddings · head_dim`, because the rotary tables take 4 bytes per element of this product. */
const MAX_ROTARY_SIZE = 2 ** 27;

/** Supported values of keys that would otherwise change the computation. Null and absent keys are accepted as well. */
const REQUIRED_VALUES: Readonly<Record<string, unknown>> = {
  hidden_act: "silu",
  partial_rotary_factor: 1,
  quantization_config: null,
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
  if (typeof raw !== "object" || raw === null || Array.isArray(raw)) throw new DataError("config.json: expected a JSON object");
  return parseModelConfig(raw as Raw, "config.json");
}

/** Parses the JSON of a `config.json`; `where` names the source in error messages. Throws the errors of {@link readModelConfig}. */
export function parseModelConfig(raw: Raw, where: string): ModelConfig {
  const architecture = architectureOf(raw, where);
  refuseUnsupported(raw, where, architecture);
  const number = (key: string, fallback?: number): number => {
    const value = raw[key] ?? fallback;
    if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) {
      throw new DataError(`${where}: expected "${key}" to be a number > 0, got ${shown(raw[key])}`);
    }
    const max = MAX_VALUES[key];
    if (max !== undefined && !(Number.isInteger(value) && value <= max))
      throw new DataError(`${where}: expected "${key}" to be a whole number of at most ${max}, got ${value}`);
    return value;
  };
  const hiddenSize = number("hidden_size");
  const heads = number("num_attention_heads");
  const layers = number("num_hidden_layers");
  const contextLength = number("max_position_embeddings");
  const config: ModelConfig = {
    vocabularySize: number("vocab_size"),
    hiddenSize,
    layers,
    heads,
    kvHeads: number("num_key_value_heads", heads),
    headSize: number("head_dim", architecture.defaultHeadSize ?? hiddenSize / heads),
    innerSize: number("intermediate_size"),
    ...parseRope(raw, where, contextLength, architecture.defaultTheta),
    unrotatedLayers: architecture.mayLeaveLayersUnrotated ? unrotatedLayers(raw, where, layers) : [],
    attentionBias: architecture.alwaysHasQkvBias ? "qkv" : raw["attention_bias"] === true ? "all" : "none",
    hasMlpBias: raw["mlp_bias"] === true,
    hasQueryKeyNorm: architecture.hasQueryKeyNorm,
    normEpsilon: number("rms_norm_eps", 1e-6),
    isTied: raw["tie_word_embeddings"] === undefined ? architecture.isTiedByDefault : raw["tie_word_embeddings"] === true,
    contextLength,
    initializerRange: number("initializer_range", 0.02),
  };
  if (config.heads % config.kvHeads !== 0 || config.headSize % 2 !== 0) {
    throw new DataError(
      `${where}: expected num_key_value_heads to divide num_attention_heads and an even head_dim, got ${config.kvHeads}, ${config.heads} and ${config.headSize}`,
    );
  }
  if (config.contextLength * config.headSize > MAX_ROTARY_SIZE) {
    throw new DataError(
      `${where}: expected max_position_embeddings · head_dim to be at most ${MAX_ROTARY_SIZE}, got ${config.contextLength} · ${config.headSize}`,
    );
  }
  return config;
}

/** Formats a value of the file for error messages, with at most 100 characters. */
function shown(value: unknown): string {
  return String(JSON.stringify(value)).slice(0, 100);
}

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

function refuseUnsupported(raw: Raw, where: string, architecture: Architecture): void {
  const refuse = (key: string, expected: unknown): never => {
    throw new UnsupportedError(`${where}: "${key}": ${shown(raw[key])} is not supported; only ${JSON.stringify(expected)} is`);
  };
  const given = (key: string) => raw[key] !== undefined && raw[key] !== null;
  for (const [key, allowed] of Object.entries(REQUIRED_VALUES)) if (given(key) && raw[key] !== allowed) refuse(key, allowed);
  for (const key of ["attention_bias", "mlp_bias"]) {
    const isRead = key === "attention_bias" ? !architecture.alwaysHasQkvBias : architecture.mayHaveMlpBias;
    if (given(key) && raw[key] !== false && !(isRead && raw[key] === true)) refuse(key, false);
  }
  // Most files of these architectures have `sliding_window` together with `use_sliding_window: false`.
  const isWindowUsed = architecture.readsUseSlidingWindow ? raw["use_sliding_window"] === true : true;
  if (given("sliding_window") && isWindowUsed) refuse("sliding_window", null);
  // Without the key, these architectures use a default window.
  if (raw["sliding_window"] === undefined && architecture.hasDefaultWindow && isWindowUsed) refuse("use_sliding_window", false);
  const types = raw["layer_types"];
  if (given("layer_types") && !(Array.isArray(types) && types.every((type) => type === "full_attention")))
    refuse("layer_types", ["full_attention"]);
}

/** Returns the layers that `no_rope_layers` marks with 0, or every `no_rope_layer_interval`-th layer if the key is missing. */
function unrotatedLayers(raw: Raw, where: string, layers: number): number[] {
  const marks = raw["no_rope_layers"] ?? null;
  const interval = raw["no_rope_layer_interval"] ?? 4;
  if (marks === null) {
    if (typeof interval !== "number" || !Number.isInteger(interval) || interval < 1)
      throw new DataError(`${where}: expected "no_rope_layer_interval" to be a whole number from 1, got ${shown(interval)}`);
    return Array.from({ length: layers }, (_, layer) => layer).filter((layer) => (layer + 1) % interval === 0);
  }
  if (!Array.isArray(marks) || marks.length !== layers || !marks.every((mark) => mark === 0 || mark === 1))
    throw new DataError(`${where}: expected "no_rope_layers" to be ${layers} numbers, each 0 or 1, got ${shown(marks)}`);
  return marks.flatMap((mark, layer) => (mark === 0 ? [layer] : []));
}
