/** Rotary settings in GGUF metadata, as `rope_parameters` of transformers. */
import { DataError, UnsupportedError } from "../errors.ts";
import type { GgufFile } from "./file.ts";
import type { MetadataKeys } from "./keys.ts";
import { zip } from "../util/values.ts";

/** Object for `rope_parameters` of a `config.json`. */
export type RopeParameters = Readonly<Record<string, unknown>>;

/** Tensor with the divisors of the rotary frequencies of Llama 3.1. */
const LLAMA3_DIVISORS = "rope_freqs.weight";
/** Tensors with the divisors of type "longrope", for contexts up to the original length and for longer ones. */
const SHORT_DIVISORS = "rope_factors_short.weight";
const LONG_DIVISORS = "rope_factors_long.weight";
/** Original context length of the published models with {@link LLAMA3_DIVISORS}, in tokens. */
const USUAL_ORIGINAL_LENGTH = 8192;
/** `low_freq_factor` and `high_freq_factor` of the published models. */
const [LOW_FREQ_FACTOR, HIGH_FREQ_FACTOR] = [1, 4];
/** Maximum relative difference of a divisor from its formula, which was computed in float32. */
const TOLERANCE = 1e-4;

/**
 * Returns the rotary settings of a model with one set of frequencies for all layers.
 *
 * @param rotated - Rotated elements of a head.
 * @param theta - Base of the frequencies.
 * @throws UnsupportedError `E_UNSUPPORTED` for a scaling type that is not supported, and for `rope_freqs.weight` with divisors that are
 *   not of type "llama3".
 */
export async function ropeParameters(file: GgufFile, keys: MetadataKeys, rotated: number, theta: number): Promise<RopeParameters> {
  const base = { rope_theta: theta };
  if (file.tensors.has(LLAMA3_DIVISORS)) return { ...base, ...(await llama3(file, rotated, theta)) };
  const legacyFactor = keys.number("rope.scale_linear");
  const defaultType = legacyFactor === undefined ? "none" : "linear";
  // The converter writes no type for Phi 3 and 4.
  const type = file.tensors.has(LONG_DIVISORS) ? "longrope" : (keys.string("rope.scaling.type") ?? defaultType);
  switch (type) {
    case "none":
      return { ...base, rope_type: "default" };
    case "linear":
      return { ...base, rope_type: "linear", factor: legacyFactor ?? keys.requireNumber("rope.scaling.factor") };
    case "yarn":
      return { ...base, ...yarn(keys) };
    case "longrope":
      return { ...base, ...(await longRope(file, keys, rotated)) };
    default:
      throw new UnsupportedError(
        `${file.label}: ${keys.name("rope.scaling.type")}: "${type}" is not supported; "none", "linear", "yarn" and "longrope" are`,
      );
  }
}

/** Returns the settings of type "yarn". @source transformers, `_compute_yarn_parameters`. */
function yarn(keys: MetadataKeys): RopeParameters {
  const factor = keys.requireNumber("rope.scaling.factor");
  const magnitude = 0.1 * Math.log(Math.max(factor, 1)) + 1;
  // llama.cpp multiplies `rope.scaling.attn_factor` by `magnitude`; transformers expects the product.
  const relativeFactor = keys.number("rope.scaling.attn_factor");
  const product = relativeFactor === undefined ? undefined : relativeFactor * magnitude;
  const attentionFactor = keys.number("rope.scaling.yarn_attn_factor") ?? product;
  const logMultiplier = keys.number("rope.scaling.yarn_log_multiplier");
  const extrapolation = keys.number("rope.scaling.yarn_ext_factor") ?? 1;
  if (extrapolation !== 1 && extrapolation !== -1)
    throw new UnsupportedError(`${keys.label}: ${keys.name("rope.scaling.yarn_ext_factor")}: ${extrapolation} is not supported; only 1 is`);
  return {
    rope_type: "yarn",
    factor,
    original_max_position_embeddings: keys.requireNumber("rope.scaling.original_context_length"),
    beta_fast: keys.number("rope.scaling.yarn_beta_fast") ?? 32,
    beta_slow: keys.number("rope.scaling.yarn_beta_slow") ?? 1,
    ...(logMultiplier === undefined ? {} : { mscale: 1, mscale_all_dim: logMultiplier }),
    ...(attentionFactor === undefined ? {} : { attention_factor: attentionFactor }),
  };
}

/** Returns the settings of type "longrope", with the two tensors of divisors. */
async function longRope(file: GgufFile, keys: MetadataKeys, rotated: number): Promise<RopeParameters> {
  const original = keys.requireNumber("rope.scaling.original_context_length");
  const scale = keys.requireNumber("context_length") / original;
  const attention = keys.number("rope.scaling.attn_factor");
  // The value that transformers computes if `attention_factor` is missing.
  const defaultAttention = scale <= 1 ? 1 : Math.sqrt(1 + Math.log(scale) / Math.log(original));
  const isDefault = attention === undefined || Math.abs(attention - defaultAttention) < 1e-5;
  return {
    rope_type: "longrope",
    original_max_position_embeddings: original,
    short_factor: await readVector(file, SHORT_DIVISORS, rotated / 2),
    long_factor: await readVector(file, LONG_DIVISORS, rotated / 2),
    ...(isDefault ? {} : { attention_factor: attention }),
  };
}

/** Returns the settings of type "llama3" that result in the divisors of the file, which has no key for them. */
async function llama3(file: GgufFile, rotated: number, theta: number): Promise<RopeParameters> {
  const divisors = await readVector(file, LLAMA3_DIVISORS, rotated / 2);
  if (divisors.every((divisor) => divisor === 1)) return { rope_type: "default" };
  const factor = Math.max(...divisors);
  const frequencies = divisors.map((_, i) => theta ** ((-2 * i) / rotated));
  for (const original of [USUAL_ORIGINAL_LENGTH, originalLength(divisors, frequencies, factor)]) {
    const resultsInDivisors = zip(divisors, frequencies).every(
      ([divisor, frequency]) => Math.abs(divisor / llama3Divisor(frequency, factor, original) - 1) < TOLERANCE,
    );
    if (resultsInDivisors)
      return {
        rope_type: "llama3",
        factor,
        low_freq_factor: LOW_FREQ_FACTOR,
        high_freq_factor: HIGH_FREQ_FACTOR,
        original_max_position_embeddings: original,
      };
  }
  throw new UnsupportedError(
    `${file.label}: tensor "${LLAMA3_DIVISORS}": expected the divisors of rotary scaling of type "llama3" with \`low_freq_factor\` ${LOW_FREQ_FACTOR} and \`high_freq_factor\` ${HIGH_FREQ_FACTOR}, got others, which are not supported`,
  );
}

/**
 * Inverts {@link llama3Divisor}: returns the original context length, from a frequency that is neither kept nor divided by the whole
 * factor.
 */
function originalLength(divisors: readonly number[], frequencies: readonly number[], factor: number): number {
  const index = divisors.findIndex((divisor) => divisor > 1 && divisor < factor);
  const keptShare = (1 / (divisors[index] ?? 1) - 1 / factor) / (1 - 1 / factor);
  const rotations = keptShare * (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR) + LOW_FREQ_FACTOR;
  return Math.round((rotations * 2 * Math.PI) / (frequencies[index] ?? 1));
}

/**
 * Returns the divisor of a frequency: 1 above {@link HIGH_FREQ_FACTOR} rotations within the original context, `factor` below
 * {@link LOW_FREQ_FACTOR}, interpolated between them.
 *
 * @source Grattafiori et al. 2024, arXiv:2407.21783; transformers, `_compute_llama3_parameters`.
 */
function llama3Divisor(frequency: number, factor: number, original: number): number {
  const rotations = (original * frequency) / (2 * Math.PI);
  const keptShare = Math.min(1, Math.max(0, (rotations - LOW_FREQ_FACTOR) / (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR)));
  return 1 / ((1 - keptShare) / factor + keptShare);
}

/** Reads a small tensor of a known length. */
async function readVector(file: GgufFile, name: string, length: number): Promise<number[]> {
  const tensor = file.tensors.get(name);
  if (tensor === undefined) throw new DataError(`${file.label}: expected tensor "${name}", found none`);
  if (tensor.shape.join() !== `${length}`)
    throw new DataError(`${file.label}: expected tensor "${name}" of shape [${length}], got [${tensor.shape.join(", ")}]`);
  const values: number[] = [];
  await file.readPieces(tensor, (piece) => values.push(...piece));
  return values;
}
