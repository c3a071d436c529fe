/**
 * Rotary position embeddings: frequencies of a head's pairs, optionally rescaled for a longer context.
 *
 * Every supported variant is a table over positions, which training, prefill and decoding share. Variants with frequencies that depend
 * on the sequence length cannot be tabulated and are refused.
 */
import { DataError, UnsupportedError } from "../../../errors.ts";

/** Rescaling of rotary frequencies. */
export type RopeScaling =
  | { readonly kind: "none" }
  /** Divides every frequency by `factor`. */
  | { readonly kind: "linear"; readonly factor: number }
  /** Divides low frequencies by `factor`, keeps high ones, and interpolates between. */
  | {
      readonly kind: "llama3";
      readonly factor: number;
      readonly lowFrequencyFactor: number;
      readonly highFrequencyFactor: number;
      /** Context length before rescaling, in tokens. */
      readonly originalContextLength: number;
    }
  /** Interpolates over the pairs between kept and divided frequencies, and scales `cos` and `sin` by `attentionFactor`. */
  | {
      readonly kind: "yarn";
      readonly factor: number;
      /** Context length before rescaling, in tokens. */
      readonly originalContextLength: number;
      readonly attentionFactor: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      readonly isTruncated: boolean;
    };

/** Parameters of the rotary tables, part of a model's configuration. */
export interface RopeConfig {
  readonly headSize: number;
  readonly contextLength: number;
  readonly ropeTheta: number;
  readonly rope: RopeScaling;
}

type Raw = Readonly<Record<string, unknown>>;

/**
 * Parses the rotary settings of a `config.json`: `rope_theta`, `rope_scaling` and the newer `rope_parameters`, with the same precedence
 * as transformers. A non-empty `rope_scaling` replaces `rope_parameters` completely. `rope_theta` inside the object takes precedence over
 * the top-level key; for `original_max_position_embeddings`, the top-level key takes precedence.
 *
 * Type "dynamic" is treated as "none": it changes frequencies only beyond `max_position_embeddings`, which is the maximum length here.
 *
 * @param raw - Parsed file.
 * @param where - Name of the file for error messages.
 * @throws UnsupportedError `E_UNSUPPORTED` for another type, for partially rotated heads, and for settings per layer type.
 * @throws DataError `E_DATA` if a number that the type requires is missing.
 * @source transformers, `modeling_rope_utils.py`, `RotaryEmbeddingConfigMixin.convert_rope_params_to_dict`.
 */
export function parseRope(raw: Raw, where: string, contextLength: number, defaultTheta: number): Pick<RopeConfig, "rope" | "ropeTheta"> {
  const key = isEmpty(raw["rope_scaling"]) ? "rope_parameters" : "rope_scaling";
  const given = raw[key] ?? {};
  if (!isObject(given)) throw new DataError(`${where}: expected "${key}" to be an object or null, got ${JSON.stringify(given)}`);
  refuseUnsupported(given, `${where}: "${key}.`);
  const number = (name: string, fallback?: number): number => positive(given[name] ?? fallback, `${where}: expected "${key}.${name}"`);
  const theta = given["rope_theta"] ?? raw["rope_theta"] ?? defaultTheta;
  const original = raw["original_max_position_embeddings"] ?? given["original_max_position_embeddings"] ?? contextLength;
  return {
    ropeTheta: positive(theta, `${where}: expected "rope_theta"`),
    rope: parseScaling(given, number, { contextLength, original, where: `${where}: "${key}"` }),
  };
}

function isEmpty(value: unknown): boolean {
  return value === undefined || value === null || (isObject(value) && Object.keys(value).length === 0);
}

/** Refuses unsupported settings that do not depend on the type. */
function refuseUnsupported(given: Raw, where: string): void {
  const part = given["partial_rotary_factor"] ?? 1;
  if (part !== 1)
    throw new UnsupportedError(
      `${where}partial_rotary_factor": ${JSON.stringify(part)} is not supported: heads are rotated as a whole, expected 1 or no such key`,
    );
  for (const [name, value] of Object.entries(given)) {
    if (isObject(value))
      throw new UnsupportedError(`${where}${name}": settings per type of layer are not supported, expected one set for all layers`);
  }
}

interface ScalingPlace {
  readonly contextLength: number;
  /** `original_max_position_embeddings`, unchecked. */
  readonly original: unknown;
  readonly where: string;
}

function parseScaling(
  given: Raw,
  number: (name: string, fallback?: number) => number,
  { contextLength, original, where }: ScalingPlace,
): RopeScaling {
  const type = given["rope_type"] ?? given["type"] ?? "default";
  const originalContextLength = () => positive(original, `${where}: expected "original_max_position_embeddings"`);
  switch (type) {
    case "default":
    case "dynamic":
      return { kind: "none" };
    case "linear":
      return { kind: "linear", factor: number("factor") };
    case "llama3":
      return {
        kind: "llama3",
        factor: number("factor"),
        lowFrequencyFactor: number("low_freq_factor"),
        highFrequencyFactor: number("high_freq_factor"),
        originalContextLength: originalContextLength(),
      };
    case "yarn": {
      const factor = given["factor"] === null ? contextLength / originalContextLength() : number("factor");
      const { truncate = true } = given;
      if (typeof truncate !== "boolean" && truncate !== null)
        throw new DataError(`${where}: expected "truncate" to be a boolean, got ${JSON.stringify(truncate)}`);
      return {
        kind: "yarn",
        factor,
        originalContextLength: originalContextLength(),
        attentionFactor: number("attention_factor", yarnAttentionFactor(given, factor, number)),
        betaFast: given["beta_fast"] === 0 ? 32 : number("beta_fast", 32),
        betaSlow: given["beta_slow"] === 0 ? 1 : number("beta_slow", 1),
        isTruncated: truncate === true,
      };
    }
    default:
      throw new UnsupportedError(
        `${where}: type ${JSON.stringify(type)} is not supported; "default", "linear", "dynamic", "llama3" and "yarn" are`,
      );
  }
}

/** Returns `m(mscale) / m(mscale_all_dim)` if both are given, otherwise `m(1)`, with `m(s) = 0.1·s·ln(factor) + 1`. */
function yarnAttentionFactor(given: Raw, factor: number, number: (name: string) => number): number {
  const magnitude = (scale: number) => (factor <= 1 ? 1 : 0.1 * scale * Math.log(factor) + 1);
  if (!given["mscale"] || !given["mscale_all_dim"]) return magnitude(1);
  return magnitude(number("mscale")) / magnitude(number("mscale_all_dim"));
}

/** Returns `cos` and `sin` of the angles `position · frequency`, each `[contextLength, d/2]`. */
export function rotaryTables(config: RopeConfig): { cos: Float32Array; sin: Float32Array } {
  const half = config.headSize / 2;
  const cos = new Float32Array(config.contextLength * half);
  const sin = new Float32Array(config.contextLength * half);
  const frequencies = ropeFrequencies(config);
  const amplitude = config.rope.kind === "yarn" ? config.rope.attentionFactor : 1;
  for (let position = 0; position < config.contextLength; position++) {
    for (let i = 0; i < half; i++) {
      const angle = position * frequencies[i]!;
      cos[position * half + i] = amplitude * Math.cos(angle);
      sin[position * half + i] = amplitude * Math.sin(angle);
    }
  }
  return { cos, sin };
}

/**
 * Returns the frequency of each pair in radians per position: `theta^(−2i/d)`, rescaled.
 *
 * @source Chen et al. 2023, arXiv:2306.15595 (linear); Grattafiori et al. 2024, arXiv:2407.21783, and the released
 * configurations (llama3); Peng et al. 2023, arXiv:2309.00071 (yarn).
 */
export function ropeFrequencies({ headSize: d, ropeTheta, rope }: RopeConfig): number[] {
  const plain = Array.from({ length: d / 2 }, (_, i) => ropeTheta ** ((-2 * i) / d));
  switch (rope.kind) {
    case "none":
      return plain;
    case "linear":
      return plain.map((frequency) => frequency / rope.factor);
    case "llama3":
      return plain.map((frequency) => {
        // Number of periods in the original context.
        const turns = (rope.originalContextLength * frequency) / (2 * Math.PI);
        const kept = clamp((turns - rope.lowFrequencyFactor) / (rope.highFrequencyFactor - rope.lowFrequencyFactor));
        return blend(frequency, rope.factor, kept);
      });
    case "yarn": {
      // Fractional index of the pair with `turns` periods in the original context.
      const pairOf = (turns: number) => (d * Math.log(rope.originalContextLength / (turns * 2 * Math.PI))) / (2 * Math.log(ropeTheta));
      const [first, last] = [pairOf(rope.betaFast), pairOf(rope.betaSlow)];
      const low = Math.max(rope.isTruncated ? Math.floor(first) : first, 0);
      const high = Math.min(rope.isTruncated ? Math.ceil(last) : last, d - 1);
      const width = low === high ? 0.001 : high - low;
      return plain.map((frequency, i) => blend(frequency, rope.factor, 1 - clamp((i - low) / width)));
    }
  }
}

function blend(frequency: number, factor: number, kept: number): number {
  return kept * frequency + ((1 - kept) * frequency) / factor;
}

function clamp(x: number): number {
  return Math.min(1, Math.max(0, x));
}

function isObject(value: unknown): value is Raw {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function positive(value: unknown, message: string): number {
  if (typeof value !== "number" || !Number.isFinite(value) || value <= 0)
    throw new DataError(`${message} to be a number > 0, got ${JSON.stringify(value)}`);
  return value;
}
