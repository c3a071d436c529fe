import type { LossSpec } from "./port.ts";

/** One token, as a loss sees it. */
export interface TokenLossInput {
  /** Log-probability under the weights being trained. */
  readonly newLogprob: number;
  /** Log-probability at sampling time; NaN where unknown, then the ratio is 1. Unused by cross-entropy. */
  readonly oldLogprob: number;
  /** Unused by cross-entropy. */
  readonly advantage: number;
}

/**
 * The loss of one token as {@link LossSpec} defines it, and its derivative by the new log-probability, in float64: the
 * reference that engines are tested against.
 */
export function tokenLoss(spec: LossSpec, input: TokenLossInput): { readonly value: number; readonly derivative: number } {
  const { newLogprob, oldLogprob, advantage } = input;
  if (spec.kind === "cross-entropy") return { value: -newLogprob, derivative: -1 };
  const ratio = Number.isNaN(oldLogprob) ? 1 : Math.exp(newLogprob - oldLogprob);
  const clipped = Math.min(Math.max(ratio, 1 - spec.epsilon), 1 + spec.epsilonHigh);
  if (spec.kind === "cispo") return { value: -clipped * advantage * newLogprob, derivative: -clipped * advantage };
  // Where clipping wins, the loss no longer depends on the new log-probability.
  return ratio * advantage <= clipped * advantage
    ? { value: -ratio * advantage, derivative: -ratio * advantage }
    : { value: -clipped * advantage, derivative: 0 };
}
