/** Percentile bootstrap of a mean, with draws that depend only on seed and sample size. */
import { ArgumentError } from "../../base/errors.ts";
import { checkLevel } from "../../base/trajectory/interval.ts";
import { quantile } from "../../base/trajectory/statistics.ts";
import { philox4x32 } from "../../base/util/rng.ts";

/** Options of {@link bootstrapMean}. */
export interface BootstrapOptions {
  /** Confidence level, in (0, 1). @default 0.95 */
  readonly level?: number | undefined;
  /** Number of bootstrap replicates `B`, from 1 to 2^32 − 1. @default 10_000 */
  readonly draws?: number | undefined;
  /** Seed of the draws, an integer; the same seed gives the same interval. @default 0 */
  readonly seed?: number | undefined;
}

/** Mean with a percentile bootstrap interval. Without values all numbers are NaN; with one value, `standardError`, `low` and `high`. */
export interface BootstrapEstimate {
  /** Mean of the values. */
  readonly mean: number;
  /** Standard deviation of the replicates, with denominator `B − 1`. */
  readonly standardError: number;
  /** Quantile `(1 − level) / 2` of the replicates. */
  readonly low: number;
  /** Quantile `(1 + level) / 2` of the replicates. */
  readonly high: number;
  /** Confidence level of the interval. */
  readonly level: number;
  /** Number of values. */
  readonly count: number;
}

/** RNG domain of the draws; other draws with the same seed use other domains. */
const BOOTSTRAP_DOMAIN = 0xb0075;

/**
 * Computes the mean and its percentile bootstrap interval.
 *
 * Replicate `b` is the mean of `n` values drawn with replacement: `θ*(b) = 1/n · Σ_j x[i(b, j)]`. The interval has the quantiles
 * `(1 ∓ level) / 2` of `θ*(0) … θ*(B − 1)`, interpolated linearly between order statistics as by `numpy.quantile`. The draws depend only on
 * the seed and on `n`: `i(b, j) = ⌊w · n / 2^32⌋`, with `w` word `j mod 4` of Philox4x32-10 for the counter `(b, ⌊j / 4⌋, 0, 0xb0075)` and the
 * seed modulo 2^64 as key. Two samples of equal size therefore use the same draws.
 *
 * @param values - One value per independent unit, finite: for a paired comparison, the difference of each pair. Not modified.
 * @param options - Level, number of replicates and seed.
 * @returns Mean, standard error and interval.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds, or a value that is not finite.
 * @source Efron, Tibshirani, An Introduction to the Bootstrap (1993), algorithm 6.1 (standard error) and section 13.3 (percentile interval).
 * @example
 * ```ts
 * const { mean, low, high } = bootstrapMean([0.2, 0.1, -0.1, 0.4, 0.3]); // differences of five scenarios
 * ```
 */
export function bootstrapMean(
  values: readonly number[],
  { level = 0.95, draws = 10_000, seed = 0 }: BootstrapOptions = {},
): BootstrapEstimate {
  checkLevel(level);
  if (!(Number.isInteger(draws) && draws >= 1 && draws < 2 ** 32))
    throw new ArgumentError(`Expected \`draws\` to be an integer from 1 to 2^32 − 1, got \`${draws}\``, { param: "draws" });
  if (!Number.isSafeInteger(seed)) throw new ArgumentError(`Expected \`seed\` to be an integer, got \`${seed}\``, { param: "seed" });
  const invalidIndex = values.findIndex((value) => !Number.isFinite(value));
  if (invalidIndex !== -1)
    throw new ArgumentError(`Expected finite values, got \`${values[invalidIndex]}\` at index ${invalidIndex}`, { param: "values" });
  const count = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / count;
  if (count < 2) return { mean, standardError: Number.NaN, low: Number.NaN, high: Number.NaN, level, count };
  const replicates = replicateMeans(values, draws, BigInt.asUintN(64, BigInt(seed)));
  const center = replicates.reduce((sum, value) => sum + value, 0) / draws;
  const squares = replicates.reduce((sum, value) => sum + (value - center) ** 2, 0);
  replicates.sort();
  return {
    mean,
    standardError: Math.sqrt(squares / (draws - 1)),
    low: quantile(replicates, (1 - level) / 2),
    high: quantile(replicates, (1 + level) / 2),
    level,
    count,
  };
}

/** Returns the means of the replicates, in the order of their draws. */
function replicateMeans(values: readonly number[], draws: number, seed: bigint): Float64Array {
  const key = [Number(seed & 0xffff_ffffn), Number(seed >> 32n)] as const;
  const count = values.length;
  const means = new Float64Array(draws);
  for (let b = 0; b < draws; b++) {
    let sum = 0;
    for (let drawn = 0; drawn < count; drawn += 4) {
      const words = philox4x32([b, drawn / 4, 0, BOOTSTRAP_DOMAIN], key);
      const used = Math.min(4, count - drawn);
      // The product is exact: `count` is far below 2^21, so that the product of both integers is below 2^53.
      for (let j = 0; j < used; j++) sum += values[Math.floor(((words[j] as number) * count) / 2 ** 32)] as number;
    }
    means[b] = sum / count;
  }
  return means;
}
