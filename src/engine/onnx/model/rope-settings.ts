/** Rotary settings of a `config.json`; `rope.ts` computes the tables from them. */
import { DataError, UnsupportedError } from "../../../base/errors.ts";
import type { Raw } from "./layer-windows.ts";
import type { QueryGrowth, Rope, RopeScaling } from "./rope.ts";
import { isRecord } from "../../../base/util/values.ts";

/** Properties of an architecture that decide how its rotary settings are read. */
export interface RopeRule {
  /** Default of `rope_theta`. */
  readonly defaultTheta: number;
  /**
   * Separate base of the frequencies in layers with a sliding window: its key in older files, and its default. Null if all layers have the
   * same settings.
   */
  readonly localTheta: { readonly key: string; readonly defaultTheta: number } | null;
  /** Whether `partial_rotary_factor` is read, and types other than "default" are "longrope". */
  readonly isPhi: boolean;
  /** Whether queries grow with their position, by `llama_4_scaling_beta`. */
  readonly growsQueries: boolean;
}

/** Rotary settings of a model. */
export interface RopeSettings extends Rope {
  readonly rotarySize: number;
  readonly localRope: Rope | null;
  readonly queryGrowth: QueryGrowth | null;
}

/**
 * Parses the rotary settings of a `config.json`: `rope_theta`, `rope_scaling` and the newer `rope_parameters`, with the same precedence
 * as transformers. A non-empty `rope_scaling` replaces `rope_parameters` completely. `rope_theta` inside the object takes precedence over
 * the top-level key; for `original_max_position_embeddings`, the top-level key takes precedence.
 *
 * Architectures with a rotary embedding per type of layer have `rope_parameters.full_attention` and `rope_parameters.sliding_attention`;
 * `rope_scaling` then changes the layers without a window only.
 *
 * Type "dynamic" is treated as "none": it changes frequencies only beyond `max_position_embeddings`, which is the maximum length here.
 *
 * @param raw - Parsed file.
 * @param where - Name of the file for error messages.
 * @throws UnsupportedError `E_UNSUPPORTED` for another type, for partially rotated heads, and for settings per layer type that the
 *   architecture does not have.
 * @throws DataError `E_DATA` if a number that the type requires is missing.
 * @source transformers, `modeling_rope_utils.py`, `RotaryEmbeddingConfigMixin.convert_rope_params_to_dict`.
 */
export function parseRope(
  raw: Raw,
  where: string,
  { contextLength, headSize }: { readonly contextLength: number; readonly headSize: number },
  rule: RopeRule,
): RopeSettings {
  const { defaultTheta, localTheta } = rule;
  // No architecture has both a rotary embedding per type of layer and growing queries.
  if (localTheta !== null)
    return { ...parseByType(raw, where, contextLength, { defaultTheta, localTheta }), rotarySize: headSize, queryGrowth: null };
  const key = isEmpty(raw["rope_scaling"]) ? "rope_parameters" : "rope_scaling";
  const given = objectOf(raw[key], `${where}: expected "${key}"`);
  const original = raw["original_max_position_embeddings"] ?? given["original_max_position_embeddings"] ?? contextLength;
  const theta = given["rope_theta"] ?? raw["rope_theta"] ?? defaultTheta;
  if (rule.isPhi) return parsePhi(raw, given, theta, { contextLength, headSize, where, key });
  return {
    ...ropeOf(given, theta, { contextLength, original, where, key }),
    rotarySize: headSize,
    localRope: null,
    queryGrowth: rule.growsQueries ? growthOf(given, `${where}: expected "${key}.`) : null,
  };
}

/**
 * Parses the rotary settings of Phi 3 and 4: partially rotated heads, and the type "longrope", which older files call "su" or "yarn".
 */
function parsePhi(
  raw: Raw,
  given: Raw,
  theta: unknown,
  { contextLength, headSize, where, key }: { contextLength: number; headSize: number; where: string; key: string },
): RopeSettings {
  const part = positive(given["partial_rotary_factor"] ?? raw["partial_rotary_factor"] ?? 1, `${where}: expected "partial_rotary_factor"`);
  const rotarySize = Math.floor(headSize * part);
  if (part > 1 || rotarySize % 2 !== 0 || rotarySize === 0)
    throw new DataError(
      `${where}: expected "partial_rotary_factor" to give an even number of at most ${headSize} rotated elements, got ${rotarySize}`,
    );
  const settings = { ropeTheta: positive(theta, `${where}: expected "rope_theta"`), rotarySize, localRope: null, queryGrowth: null };
  const type = given["rope_type"] ?? given["type"] ?? "default";
  if (type === "default") return { ...settings, rope: { kind: "none" } };
  if (type !== "longrope" && type !== "su" && type !== "yarn")
    throw new UnsupportedError(`${where}: "${key}": type ${JSON.stringify(type)} is not supported; "default" and "longrope" are`);
  const original = positive(
    raw["original_max_position_embeddings"] ?? given["original_max_position_embeddings"] ?? 4096,
    `${where}: expected "original_max_position_embeddings"`,
  );
  if (!Number.isInteger(original))
    throw new DataError(`${where}: expected "original_max_position_embeddings" to be a whole number, got ${original}`);
  const factor = positive(given["factor"] ?? contextLength / original, `${where}: expected "${key}.factor"`);
  const defaultAttentionFactor = factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(original));
  const rope: RopeScaling = {
    kind: "longrope",
    shortFactors: factorsOf(given["short_factor"], `${where}: expected "${key}.short_factor"`, rotarySize / 2),
    longFactors: factorsOf(given["long_factor"], `${where}: expected "${key}.long_factor"`, rotarySize / 2),
    originalContextLength: original,
    attentionFactor: positive(given["attention_factor"] ?? defaultAttentionFactor, `${where}: expected "${key}.attention_factor"`),
  };
  return { ...settings, rope };
}

/** Returns a list of `count` numbers > 0. @param expected - Start of the error message. */
function factorsOf(factors: unknown, expected: string, count: number): readonly number[] {
  if (!Array.isArray(factors) || factors.length !== count)
    throw new DataError(`${expected} to be ${count} numbers, got ${JSON.stringify(factors)?.slice(0, 100)}`);
  return factors.map((factor) => positive(factor, `${expected} to hold numbers; expected each`));
}

/** Parses rotary settings per type of layer. */
function parseByType(
  raw: Raw,
  where: string,
  contextLength: number,
  { defaultTheta, localTheta }: { readonly defaultTheta: number; readonly localTheta: NonNullable<RopeRule["localTheta"]> },
): Omit<RopeSettings, "queryGrowth" | "rotarySize"> {
  const byType = objectOf(raw["rope_parameters"], `${where}: expected "rope_parameters"`);
  const unknownType = Object.keys(byType).find((name) => name !== FULL && name !== LOCAL);
  if (unknownType !== undefined)
    throw new UnsupportedError(
      `${where}: "rope_parameters.${unknownType}": this architecture has settings per type of layer, expected only "${FULL}" and "${LOCAL}"`,
    );
  const parse = (type: string, scaling: Raw, theta: unknown) => {
    const key = `rope_parameters.${type}`;
    const given = { ...objectOf(byType[type], `${where}: expected "${key}"`), ...scaling };
    const original = given["original_max_position_embeddings"] ?? contextLength;
    return ropeOf(given, given["rope_theta"] ?? theta, { contextLength, original, where, key });
  };
  const scaling = objectOf(raw["rope_scaling"], `${where}: expected "rope_scaling"`);
  return {
    ...parse(FULL, scaling, raw["rope_theta"] ?? defaultTheta),
    localRope: parse(LOCAL, {}, raw[localTheta.key] ?? localTheta.defaultTheta),
  };
}

/** Keys of the settings of layers without and with a window. */
const FULL = "full_attention";
const LOCAL = "sliding_attention";

/** Parses base and rescaling of one set of rotary settings. */
function ropeOf(given: Raw, theta: unknown, source: ScalingSource): Rope {
  const { where, key } = source;
  refuseUnsupported(given, `${where}: "${key}.`);
  const number = (name: string, fallback?: number): number => positive(given[name] ?? fallback, `${where}: expected "${key}.${name}"`);
  return {
    ropeTheta: positive(theta, `${where}: expected "rope_theta"`),
    rope: parseScaling(given, number, source),
  };
}

/** Parses the growth of queries; null for a factor of 0. @param expected - Start of the error message, up to the name of the setting. */
function growthOf(given: Raw, expected: string): QueryGrowth | null {
  const beta = given["llama_4_scaling_beta"];
  if (beta === 0) return null;
  return {
    beta: positive(beta, `${expected}llama_4_scaling_beta"`),
    originalContextLength: positive(given["original_max_position_embeddings"], `${expected}original_max_position_embeddings"`),
  };
}

/** Returns a value that must be an object; `{}` if it is absent. @param expected - Start of the error message. */
function objectOf(value: unknown, expected: string): Raw {
  const given = value ?? {};
  if (!isRecord(given)) throw new DataError(`${expected} to be an object or null, got ${JSON.stringify(given)}`);
  return given;
}

/** Whether a value is absent, null or an object without keys. */
function isEmpty(value: unknown): boolean {
  return value === undefined || value === null || (isRecord(value) && Object.keys(value).length === 0);
}

/** Refuses settings that are unsupported with every type of scaling. @param start - Start of the error message, up to the name of the setting. */
function refuseUnsupported(given: Raw, start: string): void {
  const part = given["partial_rotary_factor"] ?? 1;
  if (part !== 1)
    throw new UnsupportedError(
      `${start}partial_rotary_factor": ${JSON.stringify(part)} is not supported: heads are rotated as a whole, expected 1 or no such key`,
    );
  for (const [name, value] of Object.entries(given)) {
    if (isRecord(value))
      throw new UnsupportedError(`${start}${name}": settings per type of layer are not supported, expected one set for all layers`);
  }
}

/** Location of rotary settings in a file for error messages, and lengths that defaults of the settings depend on. */
interface ScalingSource {
  readonly contextLength: number;
  /** `original_max_position_embeddings`, unchecked. */
  readonly original: unknown;
  /** Name of the file, and of the key with the settings. */
  readonly where: string;
  readonly key: string;
}

/**
 * Parses the rescaling of frequencies.
 *
 * @param number - Returns a number > 0 of the settings, or its default.
 */
function parseScaling(
  given: Raw,
  number: (name: string, fallback?: number) => number,
  { contextLength, original, where: file, key }: ScalingSource,
): RopeScaling {
  const where = `${file}: "${key}"`;
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
        // 0 counts as missing, as in transformers.
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

/**
 * Returns `value`, a number > 0.
 *
 * @param message - Start of the error message, such as `config.json: expected "factor"`.
 * @throws DataError `E_DATA` for any other value.
 */
export function positive(value: unknown, message: string): number {
  if (typeof value !== "number" || !Number.isFinite(value) || value <= 0)
    throw new DataError(`${message} to be a number > 0, got ${JSON.stringify(value)}`);
  return value;
}
