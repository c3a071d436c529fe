/** Conversion of rows to the data of a loss on the server, scaled so that the server's reduction yields the port's weighted sum. */
import { UnsupportedError } from "../../base/errors.ts";
import { entropyCoefficientOf } from "../../base/training-rows.ts";
import type { LossSpec, Row } from "../port.ts";
import { tokenLoss } from "../token-loss.ts";

/**
 * Loss reduction of a server. `sum` adds the losses of all tokens. `sequence-mean` divides each sequence's loss by the sum of its
 * weights, and at the optimizer step divides the gradient by the number of sequences since the last step.
 */
export type GradientReduction = "sum" | "sequence-mean";

/** Sequence of `T` tokens. `targets` and all of `inputs` have shape `[T − 1]` and are aligned with the predicted token. */
export interface Datum {
  readonly input: Int32Array;
  readonly targets: Int32Array;
  /** Inputs of the loss: `weights`, or `logprobs` and `advantages`, or all three. */
  readonly inputs: Readonly<Record<string, Float32Array>>;
}

/** Name of a loss on the server, its parameters, and its data. */
export interface LossCall {
  readonly name: "cross_entropy" | "cispo" | "ppo";
  readonly config: Readonly<Record<string, number>> | null;
  readonly data: readonly Datum[];
}

/** Cispo loss with a clipped ratio that is always 1: `−A·n` for a token with advantage `A` and new log-probability `n`. */
const LINEAR = { name: "cispo", config: { clip_low_threshold: 1, clip_high_threshold: 1 } } as const;

/** Whether the old log-probabilities of all trained tokens of a row are unknown. */
function isUnsampled(row: Row): boolean {
  return row.weights.every((weight, t) => weight === 0 || Number.isNaN(row.logprobs?.[t] ?? NaN));
}

/** Whether some but not all old log-probabilities are known, so that the missing ones must be computed before the loss. */
export function needsOldLogprobs(rows: readonly Row[], loss: LossSpec): boolean {
  if (loss.kind === "cross-entropy" || rows.every(isUnsampled)) return false;
  return rows.some((row) => row.weights.some((weight, t) => weight !== 0 && Number.isNaN(row.logprobs?.[t] ?? NaN)));
}

/**
 * Checks that a loss has no entropy bonus, which the losses of the protocol lack.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for an entropy coefficient above 0.
 */
export function requireNoEntropyBonus(loss: LossSpec): void {
  const coefficient = entropyCoefficientOf(loss);
  if (coefficient === 0) return;
  throw new UnsupportedError(
    `A Tinker server's losses have no entropy bonus; leave \`entropy_coef\` out, or send 0 instead of ${coefficient}`,
    { param: "entropy_coef" },
  );
}

/** Returns the data of a forward pass, with weight 1 for every trained token. */
export function forwardCall(rows: readonly Row[]): LossCall {
  const data = rows.map((row) => datumOf(row, { weights: row.weights.map((weight) => (weight === 0 ? 0 : 1)) }));
  return { name: "cross_entropy", config: null, data };
}

/**
 * Returns the loss call for which the server computes the gradient `∂ Σ weights·L`.
 *
 * @param rows - Rows with at least one trained token each.
 * @param scale - For `sequence-mean`, the number of sequences that the server will divide by.
 * @throws UnsupportedError `E_UNSUPPORTED` for a negative weight with `ppo`, because it would turn the minimum into a maximum.
 */
export function lossCall(rows: readonly Row[], loss: LossSpec, reduction: GradientReduction, scale: number): LossCall {
  if (loss.kind === "cross-entropy" && reduction === "sum")
    return { name: "cross_entropy", config: null, data: rows.map((row) => datumOf(row, { weights: row.weights })) };
  // At ratio 1 every policy loss has the gradient of −A·n; cross-entropy equals −A·n with advantage 1.
  const isLinear = loss.kind === "cross-entropy" || rows.every(isUnsampled);
  const data = rows.map((row) => {
    if (loss.kind === "ppo" && row.weights.some((weight) => weight < 0))
      throw new UnsupportedError("A Tinker server cannot weigh a ppo loss negatively", { param: "rows" });
    const mask = row.weights.map((weight) => (weight === 0 ? 0 : 1));
    const maskSum = mask.reduce((sum, bit) => sum + bit, 0);
    // Cancels both divisions of the server: by the sum of the sequence's mask, and by the number of sequences.
    const factor = reduction === "sum" ? 1 : scale * maskSum;
    const advantage = (t: number) => (loss.kind === "cross-entropy" ? 1 : row.advantages![t]!);
    return datumOf(row, {
      ...(reduction === "sum" ? {} : { weights: mask }),
      logprobs: row.weights.map((weight, t) => (weight === 0 || isLinear ? 0 : row.logprobs![t]!)),
      advantages: row.weights.map((weight, t) => (weight === 0 ? 0 : weight * advantage(t) * factor)),
    });
  });
  if (isLinear) return { ...LINEAR, data };
  return { name: loss.kind, config: { clip_low_threshold: 1 - loss.epsilon, clip_high_threshold: 1 + loss.epsilonHigh }, data };
}

/** Shifts a row: the input is all tokens except the last, the targets are all tokens except the first. */
function datumOf({ tokens }: Row, inputs: Readonly<Record<string, Float32Array>>): Datum {
  const shifted = Object.entries(inputs).map(([name, values]) => [name, values.subarray(1)]);
  return { input: tokens.subarray(0, -1), targets: tokens.subarray(1), inputs: Object.fromEntries(shifted) as Datum["inputs"] };
}

/** Computes `Σ weights·L` from returned log-probabilities, in float64. */
export function lossValue(rows: readonly Row[], loss: LossSpec, logprobs: readonly Float32Array[]): number {
  let sum = 0;
  for (const [i, row] of rows.entries()) {
    for (const [t, weight] of row.weights.entries()) {
      if (weight === 0) continue;
      const token = { newLogprob: logprobs[i]![t]!, oldLogprob: row.logprobs?.[t] ?? NaN, advantage: row.advantages?.[t] ?? 0 };
      sum += weight * tokenLoss(loss, token).value;
    }
  }
  return sum;
}
