/** Loss of one token and its derivatives in float64, the reference that engines are tested against. */
import { entropyCoefficientOf, policyLossTerms, type LossSpec } from "../base/training-rows.ts";

/** Input of the loss of one token. */
export interface TokenLossInput {
  /** Log-probability under the weights being trained. */
  readonly newLogprob: number;
  /** Log-probability at sampling time; NaN if unknown (the ratio is then 1). Unused by cross-entropy. */
  readonly oldLogprob: number;
  /** Advantage of the token. Unused by cross-entropy. */
  readonly advantage: number;
  /** Entropy of the predictive distribution, in nats; required with an entropy coefficient. @default 0 */
  readonly entropy?: number | undefined;
}

/** Result of {@link tokenLoss}. */
export interface TokenLoss {
  /** Loss of the token, before its weight is applied. */
  readonly value: number;
  /** Derivative by the new log-probability. */
  readonly derivative: number;
  /** Derivative by the entropy. */
  readonly byEntropy: number;
}

/**
 * Computes the loss of one token as {@link LossSpec} defines it, and its derivatives, in float64. Engines are tested against this
 * reference.
 */
export function tokenLoss(spec: LossSpec, input: TokenLossInput): TokenLoss {
  const { newLogprob, oldLogprob, advantage, entropy = 0 } = input;
  if (spec.kind === "cross-entropy") return { value: -newLogprob, derivative: -1, byEntropy: 0 };
  const coefficient = entropyCoefficientOf(spec);
  const ratio = Number.isNaN(oldLogprob) ? 1 : Math.exp(newLogprob - oldLogprob);
  const { value, byLogprob, byRatio } = policyLossTerms(spec, { factor: 1, ratio, advantage, newLogprob });
  const derivative = byRatio === 0 ? byLogprob : byLogprob + byRatio * ratio;
  return { value: value - coefficient * entropy, derivative, byEntropy: coefficient === 0 ? 0 : -coefficient };
}

/** Input of {@link logitsLoss}. */
export interface LogitsLossInput extends Pick<TokenLossInput, "oldLogprob" | "advantage"> {
  /** Logits of the predictive distribution, shape `[V]`. */
  readonly logits: Float64Array;
  /** Token id, the index of its logit. */
  readonly target: number;
}

/** Result of {@link logitsLoss}. */
export interface LogitsLoss {
  readonly value: number;
  /** Log-probability of the target. */
  readonly logprob: number;
  /** Entropy of the predictive distribution, in nats. */
  readonly entropy: number;
  /** Derivatives of the loss by the logits, shape `[V]`. */
  readonly gradient: Float64Array;
}

/**
 * Computes the loss of one token from the logits `z`, with its gradient. For the log-probability `n` of the target and the entropy `H` of
 * the distribution `p`: `∂n/∂z_v = [v = target] − p_v` and `∂H/∂z_v = −p_v·(log p_v + H)`.
 */
export function logitsLoss(spec: LossSpec, { logits, target, oldLogprob, advantage }: LogitsLossInput): LogitsLoss {
  const max = logits.reduce((largest, logit) => Math.max(largest, logit), -Infinity);
  const logSum = max + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - max), 0));
  const logprobs = logits.map((logit) => logit - logSum);
  const logprob = logprobs[target] ?? Number.NaN;
  const entropy = logprobs.reduce((sum, logp) => sum - Math.exp(logp) * logp, 0);
  const { value, derivative, byEntropy } = tokenLoss(spec, { newLogprob: logprob, oldLogprob, advantage, entropy });
  const gradient = logprobs.map((logp, v) => {
    const probability = Math.exp(logp);
    return derivative * ((v === target ? 1 : 0) - probability) - byEntropy * probability * (logp + entropy);
  });
  return { value, logprob, entropy, gradient };
}
