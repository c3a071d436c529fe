/** What an optimizer step says of the policy, from the log-probabilities that it was computed with. All in float64. */

import { runSteps, type Steps } from "../util/steps.ts";
import { tokenRatios } from "./policy-objective.ts";
import type { RlBatch } from "./rl.ts";
import type { TrainingRow, TurnSpan } from "./types.ts";

/** Larger log-ratios count as this: `e^60` is far beyond any clip, and every metric stays finite. */
const MAX_LOG_RATIO = 60;

/** Options of {@link policyDiagnostics}. */
export interface DiagnosticOptions {
  /** Step of the checkpoint that the weights before the step are. */
  readonly startStep: number;
}

/**
 * The diagnostics of one RL step. Over the `M` trained tokens, with `n` the log-probability under the weights before the step, `o` the
 * sampler's, `d = n − o` (tokens whose `o` is unknown are left out of what is made of it) and `r = e^d`:
 *
 * ```text
 * advantage/mean, advantage/std    mean and population deviation of the advantages as they enter the loss
 * policy/kl_k1                     mean of −d                    estimates KL(sampler ‖ policy), unbiased
 * policy/kl_k3                     mean of r − 1 − d             the same with less variance, never below 0
 * policy/ratio_p99                 99th percentile of r, linear between ranks
 * policy/clip_fraction             share of tokens whose ratio, as the loss takes it, lies outside [1 − ε, 1 + ε_high]
 * policy/ess                       (Σ r)² / (M·Σ r²), the effective sample size as a share of the tokens
 * sampler/mismatch_kl              policy/kl_k3 over the turns sampled by the very weights that are trained
 * staleness/mean, staleness/max    optimizer jobs between the checkpoint that sampled a turn and the one trained, over trained turns
 * ```
 *
 * To the loss, and so to `policy/clip_fraction`, `d` of a token whose `o` is unknown is 0. A turn that does not say what sampled it
 * counts as sampled by the weights that are trained, and has no staleness; one that a later checkpoint sampled has the staleness 0. What no
 * token speaks of is 0, and 1 for `policy/ratio_p99` and `policy/ess`.
 *
 * @param logprobs - Under the weights before the step, shape `[T]` per row.
 * @source k1, k3: J. Schulman, "Approximating KL divergence" (2020); effective sample size: Kong, Technical Report 348, University of Chicago (1992).
 */
export function policyDiagnostics(
  batch: Pick<RlBatch, "rows" | "sources" | "loss" | "objective">,
  logprobs: readonly Float32Array[],
  options: DiagnosticOptions,
): Record<string, number> {
  return runSteps(policyDiagnosticsSteps(batch, logprobs, options));
}

/** {@link policyDiagnostics}, one row at a time, for whoever shares the thread. */
export function* policyDiagnosticsSteps(
  { rows, sources, loss, objective }: Pick<RlBatch, "rows" | "sources" | "loss" | "objective">,
  logprobs: readonly Float32Array[],
  { startStep }: DiagnosticOptions,
): Steps<Record<string, number>> {
  const advantages: number[] = [];
  const differences: number[] = [];
  const mismatches: number[] = [];
  const ages: number[] = [];
  let clipped = 0;
  const [low, high] = loss.kind === "cross-entropy" ? [0, Infinity] : [1 - loss.epsilon, 1 + loss.epsilonHigh];
  for (const [index, row] of rows.entries()) {
    const fresh = logprobs[index] as Float32Array;
    const turns = sources[index]?.turns ?? [];
    for (const turn of turns) {
      const { policyVersion = null } = turn;
      if (policyVersion !== null) ages.push(Math.max(0, startStep - policyVersion));
      const known = knownDifferences(row, fresh, turn);
      for (const difference of known) differences.push(difference);
      if (policyVersion === null || policyVersion === startStep) for (const difference of known) mismatches.push(difference);
    }
    for (let t = 0; t < row.weights.length; t++) if (row.weights[t] !== 0) advantages.push(row.advantages?.[t] ?? 0);
    for (const ratio of tokenRatios(row, fresh, objective)) if (ratio < low || ratio > high) clipped++;
    yield;
  }
  const center = mean(advantages);
  return {
    "advantage/mean": center,
    "advantage/std": Math.sqrt(mean(advantages.map((advantage) => (advantage - center) ** 2))),
    "policy/kl_k1": -mean(differences),
    "policy/kl_k3": mean(differences.map(k3)),
    "policy/ratio_p99": differences.length === 0 ? 1 : percentile(differences.map(Math.exp), 0.99),
    "policy/clip_fraction": clipped / Math.max(advantages.length, 1),
    "policy/ess": effectiveShare(differences),
    "sampler/mismatch_kl": mean(mismatches.map(k3)),
    "staleness/mean": mean(ages),
    "staleness/max": ages.reduce((most, age) => Math.max(most, age), 0),
  };
}

/** `n − o` of a turn's trained tokens whose `o` is known. */
function knownDifferences({ weights, logprobs }: TrainingRow, fresh: Float32Array, { start, length }: TurnSpan): number[] {
  const result: number[] = [];
  for (let t = start; t < start + length; t++) {
    const sampled = logprobs?.[t] ?? Number.NaN;
    if (weights[t] !== 0 && !Number.isNaN(sampled)) result.push(Math.min((fresh[t] as number) - sampled, MAX_LOG_RATIO));
  }
  return result;
}

function k3(difference: number): number {
  // Not `exp(d) − 1 − d`, which loses what matters where d is small; never below 0 but for rounding.
  return Math.max(0, Math.expm1(difference) - difference);
}

/** Ratios are scaled by the largest first: their size does not matter, and their squares stay finite. */
function effectiveShare(differences: readonly number[]): number {
  if (differences.length === 0) return 1;
  const largest = differences.reduce((most, difference) => Math.max(most, difference), -Infinity);
  let sum = 0;
  let squares = 0;
  for (const difference of differences) {
    const ratio = Math.exp(difference - largest);
    sum += ratio;
    squares += ratio * ratio;
  }
  return (sum * sum) / (differences.length * squares);
}

/** Linear between the two nearest ranks. */
function percentile(values: readonly number[], share: number): number {
  const sorted = Float64Array.from(values).sort();
  const rank = share * (sorted.length - 1);
  const below = sorted[Math.floor(rank)] as number;
  const above = sorted[Math.ceil(rank)] as number;
  return below + (above - below) * (rank - Math.floor(rank));
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}
