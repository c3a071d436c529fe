import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { DataError, UnsupportedError } from "../../../errors.ts";

/** What the Llama family needs to know of a model. Names follow the paper's letters in comments: H, L, h, kv, d, F, V. */
export interface ModelConfig {
  /** V. */
  readonly vocabularySize: number;
  /** H. */
  readonly hiddenSize: number;
  /** L. */
  readonly layers: number;
  /** h, query heads. */
  readonly heads: number;
  /** kv, key and value heads; divides h. */
  readonly kvHeads: number;
  /** d, width of a head; even. */
  readonly headSize: number;
  /** F, inner width of the feed-forward part. */
  readonly innerSize: number;
  readonly ropeTheta: number;
  readonly normEpsilon: number;
  /** Whether the output head is the embedding transposed. */
  readonly isTied: boolean;
  /** Most tokens in a sequence. */
  readonly contextLength: number;
  /** Standard deviation of freshly made weights. */
  readonly initializerRange: number;
}

/** Keys whose other values would change the computation: the one value that is carried out. */
const REQUIRED_VALUES: Readonly<Record<string, readonly unknown[]>> = {
  hidden_act: ["silu"],
  attention_bias: [false],
  mlp_bias: [false],
  rope_scaling: [null],
  sliding_window: [null],
  partial_rotary_factor: [1],
};

/**
 * Reads `config.json` of a directory in Hugging Face layout.
 *
 * @throws DataError `E_DATA` when the file is missing, is not JSON, or lacks a number.
 * @throws UnsupportedError `E_UNSUPPORTED` for another architecture, or a setting this build does not carry out.
 */
export async function readModelConfig(directory: string): Promise<ModelConfig> {
  const path = join(directory, "config.json");
  let raw: Record<string, unknown>;
  try {
    raw = JSON.parse(await readFile(path, "utf8")) as Record<string, unknown>;
  } catch (cause) {
    throw new DataError(
      `Expected a model configuration at ${path}; it could not be read: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  }
  return parseModelConfig(raw, path);
}

/** The same from parsed JSON; `where` names the source in messages. */
export function parseModelConfig(raw: Readonly<Record<string, unknown>>, where: string): ModelConfig {
  const architectures = raw["architectures"];
  if (!Array.isArray(architectures) || architectures[0] !== "LlamaForCausalLM") {
    throw new UnsupportedError(
      `${where}: expected architectures ["LlamaForCausalLM"], got ${JSON.stringify(architectures)}; other families are not carried out yet`,
    );
  }
  for (const [key, allowed] of Object.entries(REQUIRED_VALUES)) {
    const value = raw[key];
    if (value !== undefined && !allowed.includes(value) && !(value === null || isPlainRope(key, value))) {
      throw new UnsupportedError(
        `${where}: "${key}": ${JSON.stringify(value)} is not carried out yet; only ${JSON.stringify(allowed[0])} is`,
      );
    }
  }
  const number = (key: string, fallback?: number): number => {
    const value = raw[key] ?? fallback;
    if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) {
      throw new DataError(`${where}: expected "${key}" to be a number > 0, got ${JSON.stringify(raw[key])}`);
    }
    return value;
  };
  const hiddenSize = number("hidden_size");
  const heads = number("num_attention_heads");
  const config: ModelConfig = {
    vocabularySize: number("vocab_size"),
    hiddenSize,
    layers: number("num_hidden_layers"),
    heads,
    kvHeads: number("num_key_value_heads", heads),
    headSize: number("head_dim", hiddenSize / heads),
    innerSize: number("intermediate_size"),
    ropeTheta: ropeTheta(raw) ?? number("rope_theta", 10_000),
    normEpsilon: number("rms_norm_eps", 1e-6),
    isTied: raw["tie_word_embeddings"] === true,
    contextLength: number("max_position_embeddings"),
    initializerRange: number("initializer_range", 0.02),
  };
  if (config.heads % config.kvHeads !== 0 || config.headSize % 2 !== 0) {
    throw new DataError(
      `${where}: expected num_key_value_heads to divide num_attention_heads and an even head_dim, got ${config.kvHeads}, ${config.heads} and ${config.headSize}`,
    );
  }
  return config;
}

/** Newer files write plain rotary embeddings as `rope_parameters` or `rope_scaling` of type "default". */
function isPlainRope(key: string, value: unknown): boolean {
  return (
    key === "rope_scaling" && typeof value === "object" && value !== null && (value as { rope_type?: unknown }).rope_type === "default"
  );
}

function ropeTheta(raw: Readonly<Record<string, unknown>>): number | undefined {
  const parameters = raw["rope_parameters"];
  if (typeof parameters !== "object" || parameters === null) return undefined;
  const { rope_type: type, rope_theta: theta } = parameters as { rope_type?: unknown; rope_theta?: unknown };
  if (type !== undefined && type !== "default")
    throw new UnsupportedError(`"rope_parameters.rope_type": ${JSON.stringify(type)} is not carried out yet; only "default" is`);
  return typeof theta === "number" ? theta : undefined;
}
