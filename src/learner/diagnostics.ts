/** Policy diagnostics of an optimizer step, from its log-probabilities, in float64. */

import { runSteps, type Steps } from "../base/util/steps.ts";
import { last } from "../base/util/values.ts";
import { quantile } from "../base/trajectory/statistics.ts";
import { mean, populationDeviation } from "./moments.ts";
import { tokenRatios } from "./policy-objective.ts";
import type { RlBatch } from "./rl.ts";
import type { TurnSpan } from "./types.ts";
import type { Row } from "../base/training-rows.ts";

/** Upper bound of log-ratios: `e^60` is far beyond any clip range, and every metric stays finite. */
const MAX_LOG_RATIO = 60;

/** Options of {@link policyDiagnostics}. */
export interface DiagnosticOptions {
  /** Step of the checkpoint with the weights before the optimizer step. */
  readonly startStep: number;
}

/**
 * Computes the diagnostics of one RL step. Over the `M` trained tokens, with `n` the log-probability under the weights before the step, `o`
 * the sampler's log-probability, `d = n − o` (tokens with unknown `o` are excluded from metrics based on `d`) and `r = e^d`:
 *
 * ```text
 * advantage/mean, advantage/std    mean and population deviation of the advantages as they enter the loss
 * policy/kl_k1                     mean of −d                    estimates KL(sampler ‖ policy), unbiased
 * policy/kl_k3                     mean of r − 1 − d             the same with less variance, never below 0
 * policy/ratio_mean                mean of r
 * policy/ratio_p99                 99th percentile of r, linear between ranks
 * policy/ratio_max                 largest r
 * policy/clip_fraction             fraction of tokens whose ratio, as used in the loss, lies outside [1 − ε, 1 + ε_high]
 * policy/ess                       (Σ r)² / (M·Σ r²), the effective sample size as a fraction of the tokens
 * sampler/mismatch_kl              policy/kl_k3 over the turns sampled by exactly the weights being trained
 * staleness/mean, staleness/max    optimizer jobs between a turn's sampling checkpoint and the trained checkpoint, over trained turns
 * ```
 *
 * In the loss, and therefore in `policy/clip_fraction`, `d` is 0 for a token with unknown `o`. A turn without a policy version counts as
 * sampled by the weights being trained, and is excluded from staleness; a turn sampled by a later checkpoint has staleness 0. A metric
 * without any token is 0, except the ratios and `policy/ess`, which are 1.
 *
 * @param batch - Batch of the step.
 * @param logprobs - Log-probabilities under the weights before the step, shape `[T]` per row.
 * @returns Metric values by name.
 * @source k1, k3: J. Schulman, "Approximating KL divergence" (2020); effective sample size: Kong, Technical Report 348, University of
 *   Chicago (1992).
 */
export function policyDiagnostics(
  batch: Pick<RlBatch, "rows" | "sources" | "loss" | "objective">,
  logprobs: readonly Float32Array[],
  options: DiagnosticOptions,
): Record<string, number> {
  return runSteps(policyDiagnosticsSteps(batch, logprobs, options));
}

/** Computes {@link policyDiagnostics} and yields after each row, so that a caller can run other work on the same thread. */
export function* policyDiagnosticsSteps(
  { rows, sources, loss, objective }: Pick<RlBatch, "rows" | "sources" | "loss" | "objective">,
  logprobs: readonly Float32Array[],
  { startStep }: DiagnosticOptions,
): Steps<Record<string, number>> {
  const advantages: number[] = [];
  /** Log-ratios `d` of all trained tokens with known `o`. */
  const differences: number[] = [];
  /** Log-ratios of the tokens that the weights being trained have sampled. */
  const mismatches: number[] = [];
  const staleness: number[] = [];
  let clipped = 0;
  const [minRatio, maxRatio] = loss.kind === "cross-entropy" ? [0, Infinity] : [1 - loss.epsilon, 1 + loss.epsilonHigh];
  for (const [index, row] of rows.entries()) {
    const newLogprobs = logprobs[index] as Float32Array;
    const turns = sources[index]?.turns ?? [];
    for (const turn of turns) {
      const { policyVersion = null } = turn;
      if (policyVersion !== null) staleness.push(Math.max(0, startStep - policyVersion));
      const turnDifferences = knownDifferences(row, newLogprobs, turn);
      for (const difference of turnDifferences) differences.push(difference);
      if (policyVersion === null || policyVersion === startStep) for (const difference of turnDifferences) mismatches.push(difference);
    }
    for (let t = 0; t < row.weights.length; t++) if (row.weights[t] !== 0) advantages.push(row.advantages?.[t] ?? 0);
    for (const ratio of tokenRatios(row, newLogprobs, objective)) if (ratio < minRatio || ratio > maxRatio) clipped++;
    yield;
  }
  return {
    "advantage/mean": mean(advantages),
    "advantage/std": populationDeviation(advantages),
    "policy/kl_k1": -mean(differences),
    "policy/kl_k3": mean(differences.map(k3)),
    ...ratioMetrics(differences),
    "policy/clip_fraction": clipped / Math.max(advantages.length, 1),
    "policy/ess": effectiveSampleFraction(differences),
    "sampler/mismatch_kl": mean(mismatches.map(k3)),
    "staleness/mean": mean(staleness),
    "staleness/max": staleness.reduce((max, steps) => Math.max(max, steps), 0),
  };
}

/** Returns mean, 99th percentile and maximum of the ratios `e^d`; 1 without differences. */
function ratioMetrics(differences: readonly number[]): Record<string, number> {
  const ratios = differences.length === 0 ? [1] : differences.map(Math.exp).sort((a, b) => a - b);
  return { "policy/ratio_mean": mean(ratios), "policy/ratio_p99": quantile(ratios, 0.99), "policy/ratio_max": last(ratios) };
}

/** Returns `n − o` of a turn's trained tokens with known `o`. */
function knownDifferences({ weights, logprobs }: Row, newLogprobs: Float32Array, { start, length }: TurnSpan): number[] {
  const result: number[] = [];
  for (let t = start; t < start + length; t++) {
    const sampled = logprobs?.[t] ?? Number.NaN;
    if (weights[t] !== 0 && !Number.isNaN(sampled)) result.push(Math.min((newLogprobs[t] as number) - sampled, MAX_LOG_RATIO));
  }
  return result;
}

/** Returns the k3 estimate of the KL divergence, `e^d − 1 − d`, for one log-ratio `d`. */
function k3(difference: number): number {
  // `exp(d) − 1 − d` would lose precision for small d. The value is mathematically never below 0; the max removes rounding errors.
  return Math.max(0, Math.expm1(difference) - difference);
}

/**
 * Computes the effective sample size as a fraction of the tokens; 1 without tokens. Ratios are divided by the largest, which cancels out
 * and keeps squares finite.
 */
function effectiveSampleFraction(differences: readonly number[]): number {
  if (differences.length === 0) return 1;
  const largest = differences.reduce((max, difference) => Math.max(max, difference), -Infinity);
  let sum = 0;
  let squares = 0;
  for (const difference of differences) {
    const ratio = Math.exp(difference - largest);
    sum += ratio;
    squares += ratio * ratio;
  }
  return (sum * sum) / (differences.length * squares);
}
