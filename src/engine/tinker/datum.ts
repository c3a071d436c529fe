/** Rows as the data of a loss on the server, weighted so that its reduction gives the port's sum. */
import { UnsupportedError } from "../../errors.ts";
import type { LossSpec, Row } from "../port.ts";
import { tokenLoss } from "../token-loss.ts";

/**
 * What a server makes of the losses of a batch. `sum` adds all tokens. `sequence-mean` divides each sequence by the sum of its
 * weights, and at the optimizer step the gradient by the number of sequences since the last one.
 */
export type Reduction = "sum" | "sequence-mean";

/** One sequence of `T` tokens: `input` and all of `inputs` have shape `[T − 1]` and belong to the token that is predicted. */
export interface Datum {
  readonly input: Int32Array;
  readonly targets: Int32Array;
  /** `weights`, or `logprobs` and `advantages`, or all three. */
  readonly inputs: Readonly<Record<string, Float32Array>>;
}

/** A loss as the server names it, and the data of it. */
export interface LossCall {
  readonly name: "cross_entropy" | "cispo" | "ppo";
  readonly config: Readonly<Record<string, number>> | null;
  readonly data: readonly Datum[];
}

/** The cispo loss whose ratio is 1 whatever the old log-probabilities: `−A·n`. */
const LINEAR = { name: "cispo", config: { clip_low_threshold: 1, clip_high_threshold: 1 } } as const;

/** Whether a row's old log-probabilities are all unknown where it is trained. */
function isUnsampled(row: Row): boolean {
  return row.weights.every((weight, t) => weight === 0 || Number.isNaN(row.logprobs?.[t] ?? NaN));
}

/** Whether old log-probabilities are missing that the server must be told: some are known, so that ratios count. */
export function needsOldLogprobs(rows: readonly Row[], loss: LossSpec): boolean {
  if (loss.kind === "cross-entropy" || rows.every(isUnsampled)) return false;
  return rows.some((row) => row.weights.some((weight, t) => weight !== 0 && Number.isNaN(row.logprobs?.[t] ?? NaN)));
}

/** A forward pass: nothing is weighed. */
export function forwardCall(rows: readonly Row[]): LossCall {
  const data = rows.map((row) => datumOf(row, { weights: row.weights.map((weight) => (weight === 0 ? 0 : 1)) }));
  return { name: "cross_entropy", config: null, data };
}

/**
 * The loss of `rows` such that the server's gradient is `∂ Σ weights·L`.
 *
 * @param rows - Each with at least one trained token.
 * @param scale - Under `sequence-mean`: how many sequences the server will divide by.
 * @throws UnsupportedError `E_UNSUPPORTED` for a negative weight under `ppo`, whose minimum would be a maximum.
 */
export function lossCall(rows: readonly Row[], loss: LossSpec, reduction: Reduction, scale: number): LossCall {
  if (loss.kind === "cross-entropy" && reduction === "sum")
    return { name: "cross_entropy", config: null, data: rows.map((row) => datumOf(row, { weights: row.weights })) };
  // At the ratio 1 every policy loss has the gradient of −A·n; cross-entropy is that loss with the advantage 1.
  const isLinear = loss.kind === "cross-entropy" || rows.every(isUnsampled);
  const data = rows.map((row) => {
    if (loss.kind === "ppo" && row.weights.some((weight) => weight < 0))
      throw new UnsupportedError("A Tinker server cannot weigh a ppo loss negatively", { param: "rows" });
    const mask = row.weights.map((weight) => (weight === 0 ? 0 : 1));
    // Undoes both divisions; the sum of the mask is what the sequence's loss is divided by.
    const factor = reduction === "sum" ? 1 : scale * mask.reduce((a, b) => a + b, 0);
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

/** Everything but the first token is predicted, from everything but the last. */
function datumOf({ tokens }: Row, inputs: Readonly<Record<string, Float32Array>>): Datum {
  const shifted = Object.entries(inputs).map(([name, values]) => [name, values.subarray(1)]);
  return { input: tokens.subarray(0, -1), targets: tokens.subarray(1), inputs: Object.fromEntries(shifted) as Datum["inputs"] };
}

/** `Σ weights·L` of log-probabilities that came back, in float64. */
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
