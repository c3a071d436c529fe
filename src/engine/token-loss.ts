import type { LossSpec } from "./port.ts";

/** The loss `L` of one token and its derivative by the new log-probability. */
export interface TokenLoss {
  readonly value: number;
  /** `∂L/∂n`. */
  readonly slope: number;
}

/**
 * The loss of one token, as {@link LossSpec} defines it.
 *
 * @param n - The new log-probability.
 * @param old - The one at sampling time; NaN where unknown, then the ratio is 1.
 */
export function tokenLoss(loss: LossSpec, n: number, old: number, advantage: number): TokenLoss {
  if (loss.kind === "cross-entropy") return { value: -n, slope: -1 };
  const ratio = Number.isNaN(old) ? 1 : Math.exp(n - old);
  const clipped = Math.min(Math.max(ratio, 1 - loss.epsilon), 1 + loss.epsilonHigh);
  if (loss.kind === "cispo") return { value: -clipped * advantage * n, slope: -clipped * advantage };
  // Where clipping wins, the loss no longer depends on the new log-probability.
  const isClipped = ratio * advantage > clipped * advantage;
  return { value: -Math.min(ratio * advantage, clipped * advantage), slope: isClipped ? 0 : -ratio * advantage };
}
