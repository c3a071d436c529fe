/** Means with confidence intervals for correlated rollouts. */

import { ArgumentError } from "../errors.ts";

/**
 * Mean with a confidence interval. Without values, `mean`, `standardError`, `low` and `high` are NaN; with a single cluster, all of these
 * except `mean`.
 */
export interface Estimate {
  /** Mean of all values. */
  readonly mean: number;
  /** Standard error of the mean, with scenarios as independent samples. */
  readonly standardError: number;
  /** `mean − t · standardError`, with `t` the quantile of Student's t distribution with `clusters − 1` degrees of freedom. */
  readonly low: number;
  /** `mean + t · standardError`. */
  readonly high: number;
  /** Confidence level of the interval, e.g. 0.95. */
  readonly level: number;
  /** Number of independent samples (scenarios); empty ones are excluded. */
  readonly clusters: number;
  /** Number of values. */
  readonly count: number;
}

/** Options of functions that return an {@link Estimate}. */
export interface IntervalOptions {
  /** Confidence level, in (0, 1). @default 0.95 */
  readonly level?: number | undefined;
}

/**
 * Computes the mean of clustered values and its confidence interval. Rollouts of one scenario are correlated, and treating them as
 * independent would make the interval too narrow; only scenarios count as independent.
 *
 * With `N` values in `m` clusters: `SE² = m/(m−1) · Σ_c (Σ_i (x_ci − x̄))² / N²`. With one value per cluster this is the usual `s²/m`.
 *
 * @param clusters - One list of values per scenario; empty lists are ignored.
 * @param options - Confidence level.
 * @returns Mean, standard error and interval.
 * @throws ArgumentError `E_ARGUMENT` for a level outside (0, 1).
 * @source Clustered standard errors: Liang, Zeger, Biometrika 73 (1986); for evaluations: Miller, arXiv:2411.00640, section 2.2.
 * @example
 * ```ts
 * const { mean, low, high } = clusteredMean([[1, 0], [1, 1], [0, 0]]); // one list per scenario
 * ```
 */
export function clusteredMean(clusters: readonly (readonly number[])[], { level = 0.95 }: IntervalOptions = {}): Estimate {
  checkLevel(level);
  const nonEmpty = clusters.filter((values) => values.length > 0);
  const m = nonEmpty.length;
  const count = sumOf(nonEmpty.map((values) => values.length));
  const mean = sumOf(nonEmpty.map(sumOf)) / count;
  const squares = sumOf(nonEmpty.map((values) => sumOf(values.map((value) => value - mean)) ** 2));
  const standardError = m < 2 ? Number.NaN : Math.sqrt(((m / (m - 1)) * squares) / count ** 2);
  const margin = m < 2 ? Number.NaN : studentQuantile(m - 1, level) * standardError;
  return { mean, standardError, low: mean - margin, high: mean + margin, level, clusters: m, count };
}

/** Returns the sum of numbers; 0 without any. */
function sumOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/** Checks a confidence level. @throws ArgumentError `E_ARGUMENT` for a level outside (0, 1). */
export function checkLevel(level: number): void {
  if (level > 0 && level < 1) return;
  throw new ArgumentError(`Expected \`level\` to be above 0 and below 1, got \`${level}\``, { param: "level" });
}

/**
 * Returns the `t` with `P(|T| ≤ t) = level` for Student's t distribution.
 *
 * @param degrees - Degrees of freedom, an integer of at least 1.
 * @source Abramowitz, Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4, inverted by bisection over the angle.
 */
export function studentQuantile(degrees: number, level: number): number {
  let low = 0;
  let high = Math.PI / 2;
  // 60 halvings of the interval exhaust the 53 bits of a double.
  for (let step = 0; step < 60; step++) {
    const middle = (low + high) / 2;
    if (withinAngle(degrees, middle) < level) low = middle;
    else high = middle;
  }
  return Math.sqrt(degrees) * Math.tan(low);
}

/** Returns `P(|T| ≤ √degrees · tan(angle))`. */
function withinAngle(degrees: number, angle: number): number {
  const sine = Math.sin(angle);
  const cosine = Math.cos(angle);
  const isOdd = degrees % 2 === 1;
  // The first term is cos θ (odd) or 1 (even); each further term multiplies by cos² and (i−1)/i, up to the power degrees − 2.
  let term = isOdd ? cosine : 1;
  let sum = 0;
  for (let power = isOdd ? 1 : 0; power <= degrees - 2; power += 2) {
    sum += term;
    term *= ((power + 1) / (power + 2)) * cosine ** 2;
  }
  return isOdd ? (2 / Math.PI) * (angle + sine * sum) : sine * sum;
}
