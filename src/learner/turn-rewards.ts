/** From rewards of turns to an advantage of each turn. All in float64. */

import { DataError } from "../errors.ts";
import { isTrainableGroup } from "../trajectory/trainable.ts";
import { type AdvantageOptions, DEVIATION_EPSILON } from "./advantages.ts";

/**
 * What each turn of a trajectory leads to: its own reward and those of the turns after it. The rewards of the turns are parts of the
 * trajectory's reward; what they leave of it belongs to the end, and so to every turn. The first turn's return is the reward itself.
 *
 * @param reward - Of the trajectory.
 * @param turnRewards - One per turn, in order; 0 where a turn has none of its own.
 * @example
 * ```ts
 * turnReturns(1, [0, 0]); // [1, 1]
 * turnReturns(1, [0.75, 0]); // [1, 0.25]
 * ```
 */
export function turnReturns(reward: number, turnRewards: readonly number[]): number[] {
  let before = 0;
  return turnRewards.map((own) => {
    const result = reward - before;
    before += own;
    return result;
  });
}

/**
 * Advantages of the turns of one group: `A[g,k] = R[g,k] − mean(R)` over the deviation, with `R` the returns. Every trajectory
 * counts the same in mean and deviation, however many turns it has, so that without rewards of turns each turn has the advantage that
 * `groupAdvantages` gives its trajectory.
 *
 * @param returns - Per trajectory one return per turn, at least one.
 * @param options - As for `groupAdvantages`; `leave_one_out` compares with the other trajectories.
 * @returns Per trajectory one advantage per turn.
 * @throws DataError `E_DATA` for a return that is not finite.
 */
export function groupTurnAdvantages(returns: readonly (readonly number[])[], options: AdvantageOptions = {}): Float64Array[] {
  const { scale = true, baseline = "mean", deviation = "population", exactZero = false } = options;
  const size = returns.length;
  const all = returns.flat();
  const bad = all.find((value) => !Number.isFinite(value));
  if (bad !== undefined) throw new DataError(`Expected rewards of turns with finite sums, got ${bad}.`);
  if (size < 2 || (!exactZero && !isTrainableGroup(all))) return returns.map((turns) => new Float64Array(turns.length));
  const means = returns.map(meanOf);
  const total = means.reduce((sum, value) => sum + value, 0);
  const mean = total / size;
  const squares = returns.reduce((sum, turns) => sum + meanOf(turns.map((value) => (value - mean) ** 2)), 0);
  const divisor = scale ? Math.sqrt(squares / (deviation === "sample" ? size - 1 : size)) + DEVIATION_EPSILON : 1;
  const rounding = exactZero ? 0 : all.length * Number.EPSILON * all.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
  return returns.map((turns, index) => {
    const center = baseline === "leave_one_out" ? (total - (means[index] as number)) / (size - 1) : mean;
    return Float64Array.from(turns, (value) => (Math.abs(value - center) <= rounding ? 0 : (value - center) / divisor));
  });
}

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
