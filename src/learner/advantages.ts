/** Computation of advantages and token weights from rewards, in float64. */

import { DataError } from "../base/errors.ts";
import { isTrainableGroup } from "../base/trajectory/trainable.ts";
import { getOrInsert } from "../base/util/values.ts";

/** Added to the standard deviation before the division. */
export const DEVIATION_EPSILON = 1e-6;
/** Added to a trajectory's token count before the division. */
const COUNT_EPSILON = 1e-6;

/** Options of {@link groupAdvantages}. */
export interface AdvantageOptions {
  /** Whether advantages are divided by the standard deviation. @default true */
  readonly scale?: boolean | undefined;
  /** Baseline subtracted from a reward: the mean of the group, or of the group's other rewards. @default "mean" */
  readonly baseline?: "mean" | "leave_one_out" | undefined;
  /** Divisor of the variance: the group size (`population`), or the group size minus 1 (`sample`). @default "population" */
  readonly deviation?: "population" | "sample" | undefined;
  /** Whether only differences of exactly 0 give an advantage of 0; rounding errors then give nonzero advantages. @default false */
  readonly exactZero?: boolean | undefined;
}

/**
 * Computes group-relative advantages: `A[g] = r[g] − mean(r)`, by default divided by `std(r) + 1e-6` with the population deviation. The
 * baseline `leave_one_out` uses the mean of the other rewards, which multiplies the difference by `G / (G − 1)`.
 *
 * An advantage is exactly 0 if the reward differs from the mean by no more than the rounding error of the mean, `G·2^-52·max|r|`; such a
 * trajectory is not trained. A larger bound would drop trajectories on one side of the mean and leave advantages with a sum other than 0.
 *
 * @param rewards - Shape `[G]`, all finite. Not modified.
 * @returns Shape `[G]`; sums to 0 within rounding. All zeros for fewer than two rewards, and for rewards that `isTrainableGroup` counts as
 *   equal (unless `exactZero`).
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
  const invalidIndex = rewards.findIndex((reward) => !Number.isFinite(reward));
  if (invalidIndex >= 0) throw new DataError(`Expected finite rewards, got ${rewards[invalidIndex]} at index ${invalidIndex}.`);
  const size = rewards.length;
  const result = new Float64Array(size);
  if (exactZero ? size < 2 : !isTrainableGroup(rewards)) return result;
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / size;
  const sumOfSquares = rewards.reduce((sum, reward) => sum + (reward - mean) ** 2, 0);
  const spread = Math.sqrt(sumOfSquares / (deviation === "sample" ? size - 1 : size));
  const divisor = scale ? spread + DEVIATION_EPSILON : 1;
  const factor = baseline === "leave_one_out" ? size / (size - 1) : 1;
  const roundingError = exactZero ? 0 : size * Number.EPSILON * rewards.reduce((largest, reward) => Math.max(largest, Math.abs(reward)), 0);
  for (const [index, reward] of rewards.entries()) {
    const difference = reward - mean;
    result[index] = Math.abs(difference) <= roundingError ? 0 : (difference * factor) / divisor;
  }
  return result;
}

/** Input of {@link normalizeBatch}: a trajectory of a batch, or a part of a trajectory with a separate advantage. */
export interface BatchEntry {
  /** Advantage of the entry, unless it has `advantages`. The caller leaves out whole trajectories with advantage 0. */
  readonly advantage: number;
  /** Advantage of each trained token, shape `[tokens]`, in place of `advantage`. @default `advantage` for every token */
  readonly advantages?: Float64Array | undefined;
  /** Name of the set of entries that share a normalization of advantages. @default one set with all entries without a name */
  readonly set?: string | null | undefined;
  /** Trained tokens of the entry over all rows; at least 1. */
  readonly tokens: number;
  /** Trained tokens of the whole trajectory, if the entry is a part such as a turn. @default `tokens` */
  readonly trajectoryTokens?: number | undefined;
}

/** Output of {@link normalizeBatch} for an entry. */
export interface NormalizedEntry {
  /**
   * Weight of each trained token, before the division by the number of trained tokens of the batch. Unless the reduction is constant, the
   * mean weight over all trained tokens of the batch is 1.
   */
  readonly weight: number;
  /**
   * Advantage of each trained token. Unless the reduction is constant, the mean of `|advantage|·weight` over the trained tokens of a set is
   * 1, or 0 if balancing left only zeros.
   */
  readonly advantage: number;
  /** Advantage of each trained token, if the entry had one per token. */
  readonly advantages?: Float64Array | undefined;
}

/**
 * Reduction of token losses to the batch's loss: equal weight per trajectory, equal weight per token, or the sum over a constant divisor.
 */
export type LossReduction = "trajectory_mean" | "token_mean" | { readonly divisor: number };

/**
 * Normalizes over the `M` trained tokens of a whole batch, so that every trajectory (or with `token_mean` every token) has the
 * same total weight and the gradient norm does not depend on the scale of the rewards:
 *
 * - `w = 1 / (tokens + 1e-6)`, or 1 with the reduction `token_mean`, then `w / mean_M(w)`;
 * - a balance `b > 0` multiplies negative advantages by `1 − b`, `b < 0` positive ones by `1 + b`;
 * - `A / mean_M(|A|·w)`, over the `M` tokens of each set of entries.
 *
 * With a constant divisor `D`, `w = M / D`, so that the weight `w / M` of every token is `1 / D`; balanced advantages stay as they are.
 *
 * @param entries - All trajectories or parts of the batch. Not modified.
 * @param balance - Advantage balance, in [−1, 1].
 * @param reduction - Equal weight per trajectory or per token, or a constant divisor.
 * @returns One weight and advantage per entry, in the same order.
 * @source constant divisor: Dr. GRPO, arXiv:2503.20783.
 */
export function normalizeBatch(
  entries: readonly BatchEntry[],
  balance: number,
  reduction: LossReduction = "trajectory_mean",
): NormalizedEntry[] {
  const trainedTokens = entries.reduce((sum, entry) => sum + entry.tokens, 0);
  const balanced = entries.map((entry) => balanceEntry(entry, balance));
  if (typeof reduction === "object")
    return balanced.map((entry) => scaleEntry(entry, { weight: trainedTokens / reduction.divisor, scale: 1 }));
  const weights = entries.map((entry) => (reduction === "token_mean" ? 1 : 1 / ((entry.trajectoryTokens ?? entry.tokens) + COUNT_EPSILON)));
  const meanWeight = entries.reduce((sum, entry, index) => sum + entry.tokens * (weights[index] as number), 0) / trainedTokens;
  /** By set of entries: its trained tokens, and the sum of `|A|·w` over them. */
  const setSums = new Map<string | null, { tokens: number; weighted: number }>();
  for (const [index, { tokens, advantage, advantages, set = null }] of balanced.entries()) {
    const absoluteSum = advantages?.reduce((sum, each) => sum + Math.abs(each), 0) ?? tokens * Math.abs(advantage);
    const setSum = getOrInsert(setSums, set, () => ({ tokens: 0, weighted: 0 }));
    setSum.tokens += tokens;
    setSum.weighted += absoluteSum * ((weights[index] as number) / meanWeight);
  }
  return balanced.map((entry, index) => {
    const { tokens, weighted } = setSums.get(entry.set ?? null) as { tokens: number; weighted: number };
    return scaleEntry(entry, { weight: (weights[index] as number) / meanWeight, scale: weighted / tokens });
  });
}

/** Applies an advantage balance to the advantages of an entry. */
function balanceEntry(entry: BatchEntry, balance: number): BatchEntry {
  const balanced = (advantage: number): number => {
    if (balance > 0 && advantage < 0) return advantage * (1 - balance);
    if (balance < 0 && advantage > 0) return advantage * (1 + balance);
    return advantage;
  };
  return { ...entry, advantage: balanced(entry.advantage), advantages: entry.advantages?.map(balanced) };
}

/** Divides the advantages of an entry by `scale`; they are 0 if `scale` is. */
function scaleEntry(entry: BatchEntry, { weight, scale }: { readonly weight: number; readonly scale: number }): NormalizedEntry {
  // With balance 1 or −1 all advantages can be 0; 0 / 0 would then make every model weight NaN.
  const scaled = (advantage: number) => (scale === 0 ? 0 : advantage / scale);
  const perToken = entry.advantages === undefined ? {} : { advantages: entry.advantages.map(scaled) };
  return { weight, advantage: scaled(entry.advantage), ...perToken };
}
