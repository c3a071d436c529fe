/** Estimate of pass@k over trajectory groups. */

import { ArgumentError } from "../errors.ts";
import { clusteredMean, type Estimate, type IntervalOptions } from "./interval.ts";
import { byScenario, type ScenarioInput } from "./scenarios.ts";

/** Input of {@link passAtK}: a `TrajectoryGroup` or any object of this shape. */
export interface PassInput<T> extends ScenarioInput {
  /** Rollouts that ended with a reward. */
  readonly trajectories: readonly (T & ScenarioInput["trajectories"][number])[];
  /** Rollouts that failed, with the reasons. @default [] */
  readonly exceptions?: readonly unknown[] | undefined;
}

/** Options of {@link passAtK}; exactly one of `threshold` and `isPass` is required. */
export interface PassAtKOptions<T> extends IntervalOptions {
  /** Number of attempts, at least 1. */
  readonly k: number;
  /** Minimum reward of a passing trajectory. */
  readonly threshold?: number | undefined;
  /** Whether a trajectory passes. */
  readonly isPass?: ((trajectory: T) => boolean) | undefined;
  /** Whether a failed rollout counts as a failing attempt; otherwise it is ignored. @default false */
  readonly countExceptions?: boolean | undefined;
}

/** Result of {@link passAtK}. `mean` is pass@k; `clusters` and `count` are the number of evaluated scenarios. */
export interface PassAtK extends Estimate {
  /** Number of attempts. */
  readonly k: number;
  /** Scenarios left out because they have fewer than `k` attempts. */
  readonly skipped: number;
}

/**
 * Estimates pass@k: the probability that at least one of `k` attempts at a scenario passes, averaged over scenarios.
 *
 * A scenario with `n` attempts, `c` of them passing, contributes the unbiased `1 − C(n−c, k) / C(n, k)`. Scenarios are the independent
 * samples: the interval is computed by {@link clusteredMean} with one value per scenario and clipped to [0, 1].
 *
 * @param groups - Groups to evaluate; groups of the same scenario are merged.
 * @param options - `k`, the pass criterion and the confidence level.
 * @returns pass@k with its confidence interval; NaN without groups.
 * @throws ArgumentError `E_ARGUMENT` for a `k` below 1, not exactly one of `threshold` and `isPass`, or when no scenario has `k` attempts.
 * @source Chen et al., "Evaluating large language models trained on code", arXiv:2107.03374, section 2.1.
 * @example
 * ```ts
 * const { mean, low, high } = passAtK(groups, { k: 4, threshold: 1 });
 * ```
 */
export function passAtK<
  T extends {
    /** Reward, compared with `threshold`. */
    readonly reward: number;
  },
>(groups: readonly PassInput<T>[], options: PassAtKOptions<T>): PassAtK {
  const { k, level, countExceptions = false } = options;
  if (!Number.isInteger(k) || k < 1) throw new ArgumentError(`Expected \`k\` to be an integer of at least 1, got \`${k}\``, { param: "k" });
  const passes = passTest(options);
  const scenarios = byScenario(groups).map((scenarioGroups) => {
    const trajectories = scenarioGroups.flatMap((group) => group.trajectories);
    const exceptions = countExceptions ? scenarioGroups.flatMap((group) => group.exceptions ?? []) : [];
    return { n: trajectories.length + exceptions.length, c: trajectories.filter(passes).length };
  });
  const evaluated = scenarios.filter(({ n }) => n >= k);
  if (evaluated.length === 0 && scenarios.length > 0) {
    const maxSamples = scenarios.reduce((max, { n }) => Math.max(max, n), 0);
    throw new ArgumentError(`Expected \`k\` attempts at some scenario: \`k\` is ${k}, the most attempts at one are ${maxSamples}`, {
      param: "k",
    });
  }
  const estimate = clusteredMean(
    evaluated.map(({ n, c }) => [chanceOfPass(n, c, k)]),
    { level },
  );
  const { low, high } = estimate;
  return { ...estimate, low: Math.max(0, low), high: Math.min(1, high), k, skipped: scenarios.length - evaluated.length };
}

/** Returns the pass criterion of the options. @throws ArgumentError `E_ARGUMENT` unless exactly one is given. */
function passTest<T extends { readonly reward: number }>({ threshold, isPass }: PassAtKOptions<T>): (trajectory: T) => boolean {
  if (isPass !== undefined && threshold === undefined) return isPass;
  if (isPass === undefined && threshold !== undefined && Number.isFinite(threshold)) return ({ reward }) => reward >= threshold;
  throw new ArgumentError("Expected either `threshold`, a finite number, or `isPass`, a function", { param: "threshold" });
}

/**
 * Returns `1 − C(n−c, k) / C(n, k)` for `n` attempts of which `c` pass, computed as a product because the binomials alone would overflow.
 */
function chanceOfPass(n: number, c: number, k: number): number {
  if (n - c < k) return 1;
  let chanceOfFailure = 1;
  for (let i = n - c + 1; i <= n; i++) chanceOfFailure *= 1 - k / i;
  return 1 - chanceOfFailure;
}
