/** Direct preference optimization (DPO): the loss of a batch of pairs, and its derivative by every log-probability. */

import { ArgumentError } from "../base/errors.ts";
import type { LossSpec, Row } from "../base/training-rows.ts";
import { itemAt, zip } from "../base/util/values.ts";
import { mean } from "./moments.ts";
import { countTrained, fillTrained } from "./sequences.ts";
import type { TokenSequence } from "./types.ts";

/** Parameters of {@link preferenceLoss}. */
export interface PreferenceObjective {
  /** Scale β > 0 of the log-ratios: the larger β, the closer the policy stays to the reference. */
  readonly beta: number;
  /** Probability ε that the label of a pair is wrong, in [0, 0.5). */
  readonly labelSmoothing: number;
  /** Whether a sequence counts with the mean over its trained tokens instead of the sum. */
  readonly normalizesLength: boolean;
}

/** Token sequences of a preference pair. Both begin with the tokens of the prompt. */
export interface SequencePair {
  readonly chosen: TokenSequence;
  readonly rejected: TokenSequence;
}

/** Values of a pair's two sequences. */
export interface PairValues {
  readonly chosen: number;
  readonly rejected: number;
}

/** Loss of one pair, and its parts. */
export interface PairLoss {
  readonly loss: number;
  /** Implicit rewards: β times the log-ratio to the reference, as a sum or a mean over the trained tokens. */
  readonly rewards: PairValues;
  /** Derivative of the loss by the log-probability of each trained token of a sequence. */
  readonly derivatives: PairValues;
}

/** Sums of log-probabilities over the trained tokens of a pair's sequences, and the numbers of these tokens. */
export interface PairLogprobs {
  readonly policy: PairValues;
  readonly reference: PairValues;
  readonly tokens: PairValues;
}

/** Metrics of a batch of pairs, named as in TRL. */
export interface PreferenceMetrics {
  /** Mean loss of the pairs. */
  readonly loss: number;
  /** Mean rewards. */
  readonly "rewards/chosen": number;
  readonly "rewards/rejected": number;
  /** Fraction of the pairs whose chosen sequence has the larger reward. */
  readonly "rewards/accuracies": number;
  /** Mean of the chosen reward minus the rejected one. */
  readonly "rewards/margins": number;
  /** Mean sums of log-probabilities over the trained tokens, without β and reference. */
  readonly "logps/chosen": number;
  readonly "logps/rejected": number;
}

/** Rows of a batch of pairs: for each pair the chosen row, then the rejected one. */
export interface PreferenceBatch {
  /** Rows with the weight 1 on trained tokens, for a forward pass. */
  readonly rows: readonly Row[];
  /** Number of tokens in all rows. */
  readonly tokens: number;
  /** Number of trained tokens in all rows. */
  readonly trainedTokens: number;
}

/** Result of {@link preferenceGradient}. */
export interface PreferenceGradient {
  readonly metrics: PreferenceMetrics;
  /** Rows whose weighted cross-entropy `Σ weights·(−n)` has the gradient of the mean loss of the pairs. */
  readonly rows: readonly Row[];
  readonly loss: LossSpec;
}

/**
 * Computes the loss of one pair and its derivatives in float64. With `n` and `q` the log-probabilities of a token under the policy and the
 * reference, and `Σ` the sum over the trained tokens of a sequence (with `normalizesLength` the mean):
 *
 * ```text
 * r = β·Σ(n − q)          reward of a sequence
 * h = r_chosen − r_rejected
 * L = −(1 − ε)·log σ(h) − ε·log σ(−h)
 * ∂L/∂h = ε·σ(h) − (1 − ε)·σ(−h)
 * ∂L/∂n = ±β·∂L/∂h        + chosen, − rejected; divided by the number of trained tokens with `normalizesLength`
 * ```
 *
 * @param logprobs - Sums over the trained tokens, and numbers of trained tokens.
 * @source DPO: arXiv:2305.18290, equation 7; label smoothing: Mitchell, "A note on DPO with noisy preferences" (2023); mean over tokens:
 *   Tülu 3, arXiv:2411.15124, section 5.
 */
export function preferenceLoss({ policy, reference, tokens }: PairLogprobs, objective: PreferenceObjective): PairLoss {
  const { beta, labelSmoothing: epsilon, normalizesLength } = objective;
  const scale = (side: keyof PairValues) => beta / (normalizesLength ? tokens[side] : 1);
  const reward = (side: keyof PairValues) => scale(side) * (policy[side] - reference[side]);
  const rewards = { chosen: reward("chosen"), rejected: reward("rejected") };
  const margin = rewards.chosen - rewards.rejected;
  const derivativeByMargin = epsilon * sigmoid(margin) - (1 - epsilon) * sigmoid(-margin);
  return {
    loss: (1 - epsilon) * softplus(-margin) + epsilon * softplus(margin),
    rewards,
    derivatives: { chosen: derivativeByMargin * scale("chosen"), rejected: -derivativeByMargin * scale("rejected") },
  };
}

/** Returns `1 / (1 + e^(−x))` without overflow. */
function sigmoid(x: number): number {
  const power = Math.exp(-Math.abs(x));
  return (x >= 0 ? 1 : power) / (1 + power);
}

/** Returns `log(1 + e^x) = −log σ(−x)` without overflow. */
function softplus(x: number): number {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}

/**
 * Builds the rows of a batch. The rows of a pair are neighbors, so that engines compute their common prompt once.
 *
 * @param pairs - At least one pair. Not modified.
 * @throws ArgumentError `E_ARGUMENT` without pairs.
 */
export function preferenceRows(pairs: readonly SequencePair[]): PreferenceBatch {
  if (pairs.length === 0) throw new ArgumentError("Expected at least one preference pair to train on, got none");
  const sequences = pairs.flatMap(({ chosen, rejected }) => [chosen, rejected]);
  return {
    rows: sequences.map((sequence) => ({ tokens: sequence.tokens, weights: fillTrained(sequence, 1) })),
    tokens: sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
    trainedTokens: sequences.reduce((sum, sequence) => sum + countTrained(sequence), 0),
  };
}

/**
 * Sums the log-probabilities of the rows of {@link preferenceRows} over their trained tokens, in float64 and in the order of the tokens.
 *
 * @param rows - Rows with a weight other than 0 on trained tokens.
 * @param logprobs - Log-probabilities of a forward pass, shape `[T]` per row.
 * @returns the values of each pair.
 */
export function pairSums(rows: readonly Row[], logprobs: readonly ArrayLike<number>[]): PairValues[] {
  const sums = rows.map(({ weights }, index) => {
    const values = itemAt(logprobs, index);
    return weights.reduce((sum, weight, t) => (weight === 0 ? sum : sum + (values[t] ?? NaN)), 0);
  });
  return Array.from({ length: rows.length / 2 }, (_, pair) => ({ chosen: itemAt(sums, 2 * pair), rejected: itemAt(sums, 2 * pair + 1) }));
}

/**
 * Computes the mean loss of a batch, its metrics, and rows with its gradient. The derivatives become the weights of a cross-entropy loss,
 * negative for tokens whose probability the step lowers: `Σ ∂L/∂n · ∂n` is the gradient of any loss of `n`, so every engine computes the
 * exact gradient.
 *
 * @param batch - Rows of the batch.
 * @param policy - Sums of the log-probabilities under the weights being trained, one entry per pair.
 * @param reference - Sums under the reference policy, one entry per pair.
 */
export function preferenceGradient(
  { rows }: Pick<PreferenceBatch, "rows">,
  { policy, reference }: { readonly policy: readonly PairValues[]; readonly reference: readonly PairValues[] },
  objective: PreferenceObjective,
): PreferenceGradient {
  const trainedCounts = rows.map(({ weights }) => weights.reduce((count, weight) => count + (weight === 0 ? 0 : 1), 0));
  const losses = zip(policy, reference).map(([policySums, referenceSums], pair) => {
    const tokens = { chosen: itemAt(trainedCounts, 2 * pair), rejected: itemAt(trainedCounts, 2 * pair + 1) };
    return preferenceLoss({ policy: policySums, reference: referenceSums, tokens }, objective);
  });
  const weightedRows = rows.map((row, index) => {
    // Rows alternate: the chosen row of a pair, then the rejected one.
    const { derivatives } = itemAt(losses, index >> 1);
    const factor = -(index % 2 === 0 ? derivatives.chosen : derivatives.rejected) / losses.length;
    return { tokens: row.tokens, weights: row.weights.map((weight) => (weight === 0 ? 0 : factor)) };
  });
  return { metrics: metricsOf(losses, policy), rows: weightedRows, loss: { kind: "cross-entropy" } };
}

/** Returns the metrics of at least one pair. */
function metricsOf(losses: readonly PairLoss[], policy: readonly PairValues[]): PreferenceMetrics {
  const margins = losses.map(({ rewards }) => rewards.chosen - rewards.rejected);
  return {
    loss: mean(losses.map(({ loss }) => loss)),
    "rewards/chosen": mean(losses.map(({ rewards }) => rewards.chosen)),
    "rewards/rejected": mean(losses.map(({ rewards }) => rewards.rejected)),
    "rewards/accuracies": mean(margins.map((margin) => (margin > 0 ? 1 : 0))),
    "rewards/margins": mean(margins),
    "logps/chosen": mean(policy.map(({ chosen }) => chosen)),
    "logps/rejected": mean(policy.map(({ rejected }) => rejected)),
  };
}
