import { policyLossTerms, type LossSpec } from "../training-rows.ts";

/** Input of the loss of one token. */
export interface TokenLossInput {
  /** Log-probability under the weights being trained. */
  readonly newLogprob: number;
  /** Log-probability at sampling time; NaN if unknown (the ratio is then 1). Unused by cross-entropy. */
  readonly oldLogprob: number;
  /** Advantage of the token. Unused by cross-entropy. */
  readonly advantage: number;
}

/**
 * Computes the loss of one token as {@link LossSpec} defines it, and its derivative by the new log-probability, in float64. Engines are
 * tested against this reference.
 */
export function tokenLoss(spec: LossSpec, input: TokenLossInput): { readonly value: number; readonly derivative: number } {
  const { newLogprob, oldLogprob, advantage } = input;
  if (spec.kind === "cross-entropy") return { value: -newLogprob, derivative: -1 };
  const ratio = Number.isNaN(oldLogprob) ? 1 : Math.exp(newLogprob - oldLogprob);
  const { value, byLogprob, byRatio } = policyLossTerms(spec, { factor: 1, ratio, advantage, newLogprob });
  return { value, derivative: byRatio === 0 ? byLogprob : byLogprob + byRatio * ratio };
}
