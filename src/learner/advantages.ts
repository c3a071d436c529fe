/** From rewards to advantages and weights. All in float64. */

import { DataError } from "../errors.ts";
import { isTrainableGroup } from "../trajectory/trainable.ts";

/** Added to the deviation before dividing by it. */
export const DEVIATION_EPSILON = 1e-6;
/** Added to a trajectory's token count before dividing by it. */
const COUNT_EPSILON = 1e-6;

/** Options of {@link groupAdvantages}. */
export interface AdvantageOptions {
  /** Divide by the deviation. @default true */
  readonly scale?: boolean | undefined;
  /** What a reward is compared with: the mean of the group, or of the group's others. @default "mean" */
  readonly baseline?: "mean" | "leave_one_out" | undefined;
  /** Divided by the group's size, or by one less. @default "population" */
  readonly deviation?: "population" | "sample" | undefined;
  /** Only a difference of exactly 0 teaches nothing: rounding then makes advantages too. @default false */
  readonly exactZero?: boolean | undefined;
}

/**
 * Group-relative advantages: `A[g] = r[g] − mean(r)`, by default over `std(r) + 1e-6` with the population deviation. With the
 * baseline `leave_one_out` the mean is that of the other rewards, which is `G / (G − 1)` times the difference.
 *
 * Exactly 0 where a reward differs from the mean by no more than the mean's own rounding, `G·2^-52·max|r|`: such a trajectory
 * has nothing to teach and is not trained. The bound is that small on purpose: dropping anything larger from one side of the
 * mean would leave the others with a sum that is not 0.
 *
 * @param rewards - Shape `[G]`, all finite. Not modified.
 * @returns Shape `[G]`; sums to 0 within rounding. All zeros where `isTrainableGroup` is false (unless `exactZero`).
 * @throws DataError `E_DATA` for a reward that is not finite.
 * @source GRPO, arXiv:2402.03300, §4.1.2; without the division, Dr. GRPO, arXiv:2503.20783; leave-one-out, RLOO, arXiv:2402.14740.
 * @example
 * ```ts
 * groupAdvantages([1, 0], { scale: false }); // Float64Array [0.5, -0.5]
 * groupAdvantages([1, 0], { scale: false, baseline: "leave_one_out" }); // Float64Array [1, -1]
 * ```
 */
export function groupAdvantages(rewards: readonly number[], options: AdvantageOptions = {}): Float64Array {
  const { scale = true, baseline = "mean", deviation = "population", exactZero = false } = options;
  const bad = rewards.findIndex((reward) => !Number.isFinite(reward));
  if (bad >= 0) throw new DataError(`Expected finite rewards, got ${rewards[bad]} at index ${bad}.`);
  const size = rewards.length;
  const result = new Float64Array(size);
  if (exactZero ? size < 2 : !isTrainableGroup(rewards)) return result;
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / size;
  const squares = rewards.reduce((sum, reward) => sum + (reward - mean) ** 2, 0);
  const spread = Math.sqrt(squares / (deviation === "sample" ? size - 1 : size));
  const divisor = scale ? spread + DEVIATION_EPSILON : 1;
  const factor = baseline === "leave_one_out" ? size / (size - 1) : 1;
  const rounding = exactZero ? 0 : size * Number.EPSILON * rewards.reduce((largest, reward) => Math.max(largest, Math.abs(reward)), 0);
  for (const [index, reward] of rewards.entries()) {
    const difference = reward - mean;
    result[index] = Math.abs(difference) <= rounding ? 0 : (difference * factor) / divisor;
  }
  return result;
}

/** One trajectory of a batch, or a part of one with an advantage of its own, as {@link normalizeBatch} sees it. */
export interface BatchEntry {
  /** Its advantage; that of a whole trajectory is not 0. */
  readonly advantage: number;
  /** Its trained tokens over all its rows; at least 1. */
  readonly tokens: number;
  /** For a part of a trajectory, such as a turn: the trained tokens of the whole. @default `tokens` */
  readonly trajectoryTokens?: number | undefined;
}

/** What {@link normalizeBatch} gives for each entry. */
export interface NormalizedEntry {
  /** Weight of each trained token; its mean over all trained tokens is 1. */
  readonly weight: number;
  /** Advantage of each trained token; the mean of `|advantage|·weight` over all trained tokens is 1, or 0 if balancing left nothing. */
  readonly advantage: number;
}

/**
 * Normalises over the `M` trained tokens of a whole batch, so that every trajectory (or with `token_mean` every token) has the
 * same total weight and the gradient's size does not depend on the scale of the rewards:
 *
 * - `w = 1 / (tokens + 1e-6)`, or 1 with the reduction `token_mean`, then `w / mean_M(w)`;
 * - a balance `b > 0` multiplies negative advantages by `1 − b`, `b < 0` positive ones by `1 + b`;
 * - `A / mean_M(|A|·w)`.
 *
 * @param entries - Not modified.
 * @param balance - In [−1, 1].
 * @param reduction - What has the same weight: each trajectory, or each token.
 * @returns One per entry, in the same order.
 */
export function normalizeBatch(
  entries: readonly BatchEntry[],
  balance: number,
  reduction: "trajectory_mean" | "token_mean" = "trajectory_mean",
): NormalizedEntry[] {
  const tokens = entries.reduce((sum, entry) => sum + entry.tokens, 0);
  const raw = entries.map((entry) => (reduction === "token_mean" ? 1 : 1 / ((entry.trajectoryTokens ?? entry.tokens) + COUNT_EPSILON)));
  const meanWeight = entries.reduce((sum, entry, index) => sum + entry.tokens * (raw[index] as number), 0) / tokens;
  const weights = raw.map((weight) => weight / meanWeight);
  const balanced = entries.map(({ advantage }) => {
    if (balance > 0 && advantage < 0) return advantage * (1 - balance);
    if (balance < 0 && advantage > 0) return advantage * (1 + balance);
    return advantage;
  });
  const scale =
    entries.reduce((sum, entry, index) => sum + entry.tokens * Math.abs(balanced[index] as number) * (weights[index] as number), 0) /
    tokens;
  return entries.map((_, index) => ({
    weight: weights[index] as number,
    // Balance 1 or −1 can leave no advantage at all; 0 / 0 would poison every weight of the model.
    advantage: scale === 0 ? 0 : (balanced[index] as number) / scale,
  }));
}
