/** Policy losses with terms that couple tokens: value, and gradient with respect to every new log-probability. */

import { runSteps, type Steps } from "../base/util/steps.ts";
import type { ImportanceLevel } from "./types.ts";
import { policyLossTerms, type PolicyLoss, type Row } from "../base/training-rows.ts";

/**
 * Policy loss with all optional terms of a job; {@link policyObjective} defines the symbols. With all options off it equals the plain
 * {@link PolicyLoss}.
 */
export interface PolicyObjective extends PolicyLoss {
  /** Granularity of the importance ratio. */
  readonly level: ImportanceLevel;
  /** Coefficient `τ ≥ 0` of the log-ratio `d` in the advantage `A − τ·sg(d)`. 0 = off. */
  readonly tau: number;
  /** Whether tokens with a ratio outside the clip range have no loss. */
  readonly masksRatio: boolean;
  /** Upper bound `c` of the ratio where the advantage is negative. Null = no bound. */
  readonly maxNegativeRatio: number | null;
  /** Truncated importance sampling: upper bound `T` of the factor `min(ρ', T)` of a token's loss. Null = no such factor. */
  readonly truncation: number | null;
  /** Whether the old log-probabilities come from the weights before the step instead of the sampler. */
  readonly precalculates: boolean;
  /** KL penalty with respect to a reference policy. Null = off. */
  readonly kl: { readonly coefficient: number; readonly source: "current_learner" | "sample" } | null;
  /** `art`: computes the loss as the client OpenPipe ART does, where that client differs from its own documentation. */
  readonly compat: "art" | null;
}

/** Input row of {@link policyObjective}; all arrays have shape `[T]`. */
export interface PolicyRow {
  /** Loss weights; 0 where the token is not trained. */
  readonly weights: ArrayLike<number>;
  readonly advantages: ArrayLike<number>;
  /** Log-probabilities under the weights being trained. */
  readonly newLogprobs: ArrayLike<number>;
  /** Log-probabilities at sampling time; NaN where unknown, which makes the ratio 1. */
  readonly sampledLogprobs: ArrayLike<number>;
  /** Log-probabilities under the reference policy; required with a KL penalty. */
  readonly referenceLogprobs?: ArrayLike<number> | undefined;
}

/** Result of {@link policyObjective}. */
export interface PolicyGradient {
  /** Loss of the batch, `Σ weights·L`, without the entropy bonus. */
  readonly loss: number;
  /** Derivatives `∂ loss / ∂ newLogprobs`, shape `[T]` per row; 0 where a token is not trained. */
  readonly derivatives: readonly Float64Array[];
  /** KL estimate: mean of `s − q` over all trained tokens, in nats; null without a KL penalty. */
  readonly kl: number | null;
}

/**
 * Computes value and gradient of a policy loss over a whole batch, in float64. With `n` the new log-probability of a token, `o` the old
 * log-probability (`n` where unknown), `q` the log-probability under the reference policy, `A` the advantage, and `sg` the stop-gradient
 * operator:
 *
 * ```text
 * d = n − o          d̄ = mean of d over the trained tokens of the row
 * ρ = e^d | e^d̄ | (e^d + e^d̄)/2 | e^((d + d̄)/2)      token | sequence | average | geometric_average
 * ρ ← min(ρ, c)  where A < 0                           maxNegativeRatio c
 * no loss  unless 1 − ε < ρ < 1 + ε_high               masksRatio
 * A ← A − τ·sg(d)                                      tau
 * A ← A + β·(k̄ − k),  k = sg(s) − q,  k̄ = mean of k over the batch;  s = o (sample) or n (current_learner)
 * L = −sg(clip(ρ))·A·n  or  −min(ρ·A, clip(ρ)·A)       cispo or ppo
 * L ← L·sg(min(ρ', T)),  ρ' = ρ, or e^(o − o_sampled) when precalculated
 * ```
 *
 * With `compat: "art"` the bound `c` applies to every token, `k̄` is the mean of each row, and a masked ratio becomes 0 before clipping:
 * CISPO with ε < 1 then trains a masked token with the ratio 1 − ε, except under truncated importance sampling, where the factor
 * `min(ρ', T)` is also 0 unless log-probabilities are precalculated.
 *
 * The gradient with respect to the model's parameters is `Σ derivative·∂n`, so any engine with a plain policy gradient can compute it; see
 * {@link linearRows}.
 *
 * The entropy bonus depends on whole distributions and not only on `n`: the engine adds it in the pass with {@link linearLoss}.
 *
 * @param rows - All rows of the batch. Not modified.
 * @param objective - Loss and its optional terms.
 * @returns Loss, derivatives and KL estimate.
 * @source sequence: GSPO, arXiv:2507.18071; tau: Kimi K2, arXiv:2507.20534; truncation: Ionides, JCGS 17 (2008).
 */
export function policyObjective(rows: readonly PolicyRow[], objective: PolicyObjective): PolicyGradient {
  return runSteps(policyObjectiveSteps(rows, objective));
}

/** Computes {@link policyObjective} and yields after each row, so that a caller can run other work on the same thread. */
export function* policyObjectiveSteps(rows: readonly PolicyRow[], objective: PolicyObjective): Steps<PolicyGradient> {
  const divergence = klOf(rows, objective);
  const derivatives: Float64Array[] = [];
  let loss = 0;
  for (const [index, row] of rows.entries()) {
    const result = rowObjective(row, objective, divergence.centers[index] as number);
    loss += result.loss;
    derivatives.push(result.derivatives);
    yield;
  }
  return { loss, derivatives, kl: objective.kl === null ? null : divergence.mean };
}

/**
 * Combines training rows and log-probabilities to the input rows of {@link policyObjective}.
 *
 * @param rows - Rows of the batch; a row without advantages gets zeros, and without log-probabilities NaN.
 * @param newLogprobs - Log-probabilities from a forward pass over the rows, shape `[T]` per row.
 * @param referenceLogprobs - Log-probabilities under the reference policy, shape `[T]` per row. Null = no reference policy.
 */
export function policyRows(
  rows: readonly Row[],
  newLogprobs: readonly Float32Array[],
  referenceLogprobs: readonly Float32Array[] | null = null,
): PolicyRow[] {
  return rows.map(({ weights, advantages, logprobs }, index) => ({
    weights,
    advantages: advantages ?? new Float32Array(weights.length),
    newLogprobs: newLogprobs[index] as Float32Array,
    sampledLogprobs: logprobs ?? new Float32Array(weights.length).fill(Number.NaN),
    referenceLogprobs: referenceLogprobs?.[index],
  }));
}

/**
 * Builds rows on which the plain policy gradient `−A·n` has the given derivatives: without old log-probabilities the ratio is 1, and
 * {@link linearLoss} is linear in `n`. Weights are unchanged, so that the same tokens count as trained.
 *
 * @param rows - Rows of the batch. Not modified.
 * @param derivatives - Derivatives from {@link policyObjective}, shape `[T]` per row.
 */
export function linearRows(rows: readonly Row[], derivatives: readonly Float64Array[]): Row[] {
  return rows.map(({ tokens, weights }, index) => ({
    tokens,
    weights,
    advantages: weights.map((weight, t) => (weight === 0 ? 0 : -(derivatives[index]?.[t] ?? 0) / weight)),
    logprobs: new Float32Array(weights.length).fill(Number.NaN),
  }));
}

/** Returns the loss for {@link linearRows}, with the entropy bonus of the objective; the ratio 1 is inside its clip range [0, 2]. */
export function linearLoss({ entropyCoefficient }: Pick<PolicyObjective, "entropyCoefficient">): PolicyLoss {
  return { kind: "cispo", epsilon: 1, epsilonHigh: 1, ...(entropyCoefficient === undefined ? {} : { entropyCoefficient }) };
}

/**
 * Returns the importance ratio of each trained token of a row as used in the loss, before bounding, masking and clipping.
 *
 * @param objective - Null = the plain policy loss, which uses token-level ratios.
 */
export function tokenRatios(
  { weights, advantages, logprobs }: Row,
  newLogprobs: Float32Array,
  objective: Pick<PolicyObjective, "level" | "precalculates"> | null,
): number[] {
  const { level, precalculates } = objective ?? ({ level: "token", precalculates: false } as const);
  const [row] = policyRows([{ tokens: new Int32Array(0), weights, advantages, logprobs }], [newLogprobs]) as [PolicyRow];
  const { differences, meanDifference } = logRatios(row, trainedPositions(row), { precalculates });
  return differences.map((difference) => ratioOf(level, difference, meanDifference).value);
}

/** Returns `n − o` of each trained token of a row, and the mean. */
function logRatios(
  row: PolicyRow,
  trained: readonly number[],
  objective: Pick<PolicyObjective, "precalculates">,
): { readonly differences: readonly number[]; readonly meanDifference: number } {
  const differences = trained.map((t) => (row.newLogprobs[t] as number) - oldLogprob(row, objective, t));
  return { differences, meanDifference: differences.reduce((sum, difference) => sum + difference, 0) / Math.max(trained.length, 1) };
}

/**
 * Importance ratio ρ of a token. Its derivative is `∂ρ/∂n[s] = own·[s is this token] + shared/count`, with `count` trained tokens in the
 * row.
 */
interface Ratio {
  readonly value: number;
  /** Derivative by the token's own log-probability. */
  readonly own: number;
  /** Derivative by the mean log-ratio `d̄` of the row, on which every trained token has the influence `1/count`. */
  readonly shared: number;
}

/** Computes loss and derivatives of one row. `center` is `k̄` of the KL term, see {@link klOf}. */
function rowObjective(row: PolicyRow, objective: PolicyObjective, center: number): { loss: number; derivatives: Float64Array } {
  const { weights, newLogprobs } = row;
  const derivatives = new Float64Array(weights.length);
  const trained = trainedPositions(row);
  const { differences, meanDifference } = logRatios(row, trained, objective);
  let loss = 0;
  let sharedDerivative = 0;
  for (const [index, t] of trained.entries()) {
    const weight = weights[t] as number;
    const difference = differences[index] as number;
    const ratio = boundedRatio(ratioOf(objective.level, difference, meanDifference), row.advantages[t] as number, objective);
    if (ratio === null) continue;
    const penalty = objective.kl === null ? 0 : objective.kl.coefficient * (center - divergenceOf(row, objective, t));
    const advantage = (row.advantages[t] as number) - objective.tau * difference + penalty;
    const factor = weight * truncationOf(row, objective, { t, ratio: ratio.value });
    const terms = policyLossTerms(objective, { factor, ratio: ratio.value, advantage, newLogprob: newLogprobs[t] as number });
    loss += terms.value;
    derivatives[t]! += terms.byLogprob;
    if (terms.byRatio === 0) continue;
    derivatives[t]! += terms.byRatio * ratio.own;
    sharedDerivative += terms.byRatio * ratio.shared;
  }
  for (const t of trained) derivatives[t] = (derivatives[t] as number) + sharedDerivative / trained.length;
  return { loss, derivatives };
}

/** Returns the ratio of a token with the log-ratio `d`, in a row with the mean log-ratio `d̄`. */
function ratioOf(level: ImportanceLevel, difference: number, meanDifference: number): Ratio {
  const token = Math.exp(difference);
  const sequence = Math.exp(meanDifference);
  switch (level) {
    case "token":
      return { value: token, own: token, shared: 0 };
    case "sequence":
      return { value: sequence, own: 0, shared: sequence };
    case "average":
      return { value: (token + sequence) / 2, own: token / 2, shared: sequence / 2 };
    case "geometric_average": {
      const value = Math.exp((difference + meanDifference) / 2);
      return { value, own: value / 2, shared: value / 2 };
    }
  }
}

/** Applies `maxNegativeRatio` and `masksRatio` to a ratio. Returns null if the token has no loss. */
function boundedRatio(ratio: Ratio, advantage: number, objective: PolicyObjective): Ratio | null {
  const { maxNegativeRatio: bound, masksRatio, epsilon, epsilonHigh, compat } = objective;
  const isBounded = bound !== null && ratio.value > bound && (advantage < 0 || compat === "art");
  const result = isBounded ? { value: bound, own: 0, shared: 0 } : ratio;
  if (!masksRatio || (result.value > 1 - epsilon && result.value < 1 + epsilonHigh)) return result;
  return compat === "art" ? { value: 0, own: 0, shared: 0 } : null;
}

/** Returns the factor `min(ρ', T)` of a token's loss; 1 without truncated importance sampling. */
function truncationOf(row: PolicyRow, objective: PolicyObjective, { t, ratio }: { readonly t: number; readonly ratio: number }): number {
  if (objective.truncation === null) return 1;
  if (!objective.precalculates) return Math.min(ratio, objective.truncation);
  const sampled = row.sampledLogprobs[t] as number;
  return Math.min(Number.isNaN(sampled) ? 1 : Math.exp(oldLogprob(row, objective, t) - sampled), objective.truncation);
}

/** Returns the old log-probability of a token. A job takes one step, so precalculated log-probabilities equal the new ones. */
function oldLogprob(row: PolicyRow, objective: Pick<PolicyObjective, "precalculates">, t: number): number {
  const sampled = row.sampledLogprobs[t] as number;
  return objective.precalculates || Number.isNaN(sampled) ? (row.newLogprobs[t] as number) : sampled;
}

/** Returns the log-ratio `s − q` of a token to the reference policy. */
function divergenceOf(row: PolicyRow, objective: PolicyObjective, t: number): number {
  const policy = objective.kl?.source === "sample" ? oldLogprob(row, objective, t) : (row.newLogprobs[t] as number);
  return policy - (row.referenceLogprobs?.[t] ?? Number.NaN);
}

/** Returns the mean KL estimate over the batch, and per row the mean `k̄` that the KL term of its tokens is centered on. */
function klOf(rows: readonly PolicyRow[], objective: PolicyObjective): { readonly mean: number; readonly centers: readonly number[] } {
  if (objective.kl === null) return { mean: 0, centers: rows.map(() => 0) };
  const sums = rows.map((row) => {
    const trained = trainedPositions(row);
    return { sum: trained.reduce((sum, t) => sum + divergenceOf(row, objective, t), 0), count: trained.length };
  });
  const count = sums.reduce((total, row) => total + row.count, 0);
  const mean = sums.reduce((total, row) => total + row.sum, 0) / Math.max(count, 1);
  return { mean, centers: sums.map((row) => (objective.compat === "art" ? row.sum / Math.max(row.count, 1) : mean)) };
}

/** Returns the positions of the trained tokens of a row, ascending. */
function trainedPositions({ weights }: PolicyRow): number[] {
  const positions: number[] = [];
  for (let t = 0; t < weights.length; t++) if (weights[t] !== 0) positions.push(t);
  return positions;
}
