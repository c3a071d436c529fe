import { ArgumentError } from "../errors.ts";

/** A mean with how sure it is. All NaN without a value; `standardError`, `low` and `high` NaN with a single cluster. */
export interface Estimate {
  readonly mean: number;
  readonly standardError: number;
  /** `mean − t · standardError`, t the quantile of Student's t with `clusters − 1` degrees of freedom. */
  readonly low: number;
  readonly high: number;
  /** Share of such intervals that hold the true mean, e.g. 0.95. */
  readonly level: number;
  /** Independent samples: scenarios. */
  readonly clusters: number;
  /** Values. */
  readonly count: number;
}

/** Options of whatever gives an {@link Estimate}. */
export interface IntervalOptions {
  /** In (0, 1). @default 0.95 */
  readonly level?: number | undefined;
}

/**
 * Mean of values that come in clusters, and its confidence interval. Rollouts of one scenario are alike, so that taking them for
 * independent would promise too much; only the scenarios are.
 *
 * With `N` values in `m` clusters: `SE² = m/(m−1) · Σ_c (Σ_i (x_ci − x̄))² / N²`. With one value in each that is the usual `s²/m`.
 *
 * @param clusters - One list of values per scenario; empty ones are left out.
 * @throws ArgumentError `E_ARGUMENT` for a level outside (0, 1).
 * @source Clustered standard errors: Liang, Zeger, Biometrika 73 (1986); for evaluations: Miller, arXiv:2411.00640, section 2.2.
 */
export function clusteredMean(clusters: readonly (readonly number[])[], { level = 0.95 }: IntervalOptions = {}): Estimate {
  if (!(level > 0 && level < 1))
    throw new ArgumentError(`Expected \`level\` to be above 0 and below 1, got \`${level}\``, { param: "level" });
  const filled = clusters.filter((values) => values.length > 0);
  const m = filled.length;
  const count = filled.reduce((sum, values) => sum + values.length, 0);
  const mean = filled.reduce((sum, values) => sum + values.reduce((inner, value) => inner + value, 0), 0) / count;
  const squares = filled.reduce((sum, values) => sum + values.reduce((inner, value) => inner + (value - mean), 0) ** 2, 0);
  const standardError = m < 2 ? Number.NaN : Math.sqrt(((m / (m - 1)) * squares) / count ** 2);
  const margin = m < 2 ? Number.NaN : studentQuantile(m - 1, level) * standardError;
  return { mean, standardError, low: mean - margin, high: mean + margin, level, clusters: m, count };
}

/**
 * The `t` with `P(|T| ≤ t) = level` for Student's t with a whole number of degrees of freedom.
 *
 * @source Abramowitz, Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4, inverted by bisection over the angle.
 */
export function studentQuantile(freedom: number, level: number): number {
  let low = 0;
  let high = Math.PI / 2;
  for (let step = 0; step < 60; step++) {
    const middle = (low + high) / 2;
    if (withinAngle(freedom, middle) < level) low = middle;
    else high = middle;
  }
  return Math.sqrt(freedom) * Math.tan(low);
}

/** `P(|T| ≤ √freedom · tan(angle))`. */
function withinAngle(freedom: number, angle: number): number {
  const sine = Math.sin(angle);
  const cosine = Math.cos(angle);
  const isOdd = freedom % 2 === 1;
  // The series goes on with cos² and the factors (i−1)/i up to the power freedom − 2; it starts at cos θ or at 1.
  let term = isOdd ? cosine : 1;
  let sum = 0;
  for (let power = isOdd ? 1 : 0; power <= freedom - 2; power += 2) {
    sum += term;
    term *= ((power + 1) / (power + 2)) * cosine ** 2;
  }
  return isOdd ? (2 / Math.PI) * (angle + sine * sum) : sine * sum;
}
