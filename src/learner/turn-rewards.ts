/** Computation of per-turn advantages from turn rewards, in float64. */

import { DataError } from "../base/errors.ts";
import { isTrainableGroup } from "../base/trajectory/trainable.ts";
import { mean } from "./moments.ts";
import { type AdvantageOptions, DEVIATION_EPSILON } from "./advantages.ts";

/**
 * Computes the return of each turn: the trajectory's reward minus the rewards of earlier turns. Turn rewards are parts of the trajectory's
 * reward; the remainder is earned at the end and thus included in every return. The first turn's return is the whole reward.
 *
 * @param reward - Reward of the trajectory.
 * @param turnRewards - Reward of each turn, in order; 0 for a turn without a reward.
 * @returns One return per turn.
 * @example
 * ```ts
 * turnReturns(1, [0, 0]); // [1, 1]
 * turnReturns(1, [0.75, 0]); // [1, 0.25]
 * ```
 */
export function turnReturns(reward: number, turnRewards: readonly number[]): number[] {
  let earlierRewards = 0;
  return turnRewards.map((turnReward) => {
    const turnReturn = reward - earlierRewards;
    earlierRewards += turnReward;
    return turnReturn;
  });
}

/**
 * Computes the advantages of the turns of one group: `A[g,k] = R[g,k] − mean(R)`, divided by the deviation, with `R` the returns. Every
 * trajectory has the same weight in mean and deviation, regardless of its number of turns. Without turn rewards, each turn therefore has
 * the advantage that `groupAdvantages` gives its trajectory.
 *
 * @param returns - One return per turn of each trajectory; at least one turn per trajectory.
 * @param options - Options of `groupAdvantages`; the baseline `leave_one_out` is the mean of the other trajectories.
 * @returns One advantage per turn of each trajectory.
 * @throws DataError `E_DATA` for a return that is not finite.
 */
export function groupTurnAdvantages(returns: readonly (readonly number[])[], options: AdvantageOptions = {}): Float64Array[] {
  const { scale = true, baseline = "mean", deviation = "population", exactZero = false } = options;
  const size = returns.length;
  const allReturns = returns.flat();
  const invalidReturn = allReturns.find((value) => !Number.isFinite(value));
  if (invalidReturn !== undefined) throw new DataError(`Expected rewards of turns with finite sums, got ${invalidReturn}.`);
  if (size < 2 || (!exactZero && !isTrainableGroup(allReturns))) return returns.map((turns) => new Float64Array(turns.length));
  const means = returns.map(mean);
  const sumOfMeans = means.reduce((sum, value) => sum + value, 0);
  const center = sumOfMeans / size;
  const squares = returns.reduce((sum, turns) => sum + mean(turns.map((value) => (value - center) ** 2)), 0);
  const divisor = scale ? Math.sqrt(squares / (deviation === "sample" ? size - 1 : size)) + DEVIATION_EPSILON : 1;
  const largest = allReturns.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  const roundingError = exactZero ? 0 : allReturns.length * Number.EPSILON * largest;
  return returns.map((turns, index) => {
    const expected = baseline === "leave_one_out" ? (sumOfMeans - (means[index] as number)) / (size - 1) : center;
    return Float64Array.from(turns, (value) => (Math.abs(value - expected) <= roundingError ? 0 : (value - expected) / divisor));
  });
}
