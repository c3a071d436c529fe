/** Input and losses of a training step, shared by the learner, which builds the input, and the engine, which trains on it. */

/**
 * Training sequence of `T` tokens. Each array is aligned with the predicted token, not with the position that predicts it:
 * `weights[t]` is the weight of predicting `tokens[t]` from `tokens[0..t-1]`, so `weights[0]` must be 0.
 */
export interface Row {
  /** Token ids, shape `[T]`. */
  readonly tokens: Int32Array;
  /** Loss weights, shape `[T]`; 0 for a token that is not trained. */
  readonly weights: Float32Array;
  /** Advantages, shape `[T]`; required by `cispo` and `ppo`. */
  readonly advantages?: Float32Array | undefined;
  /** Log-probabilities at sampling time, shape `[T]`; NaN if unknown (the ratio is then 1). Required by `cispo` and `ppo`. */
  readonly logprobs?: Float32Array | undefined;
}

/** Token-level policy loss with the importance ratio clipped to `[1 − epsilon, 1 + epsilonHigh]`; see {@link LossSpec}. */
export interface PolicyLoss {
  /** Name of the loss, see {@link LossSpec}. */
  readonly kind: "cispo" | "ppo";
  /** Lower clip distance, at least 0. */
  readonly epsilon: number;
  /** Upper clip distance, at least 0. */
  readonly epsilonHigh: number;
  /** Coefficient `β ≥ 0` of the entropy bonus. @default 0 */
  readonly entropyCoefficient?: number | undefined;
}

/**
 * Loss, always `Σ weights·L`. For each token, `n` is the new log-probability, `o` the log-probability at sampling time,
 * `ρ = exp(n − o)`, `A` the advantage, and `sg` a stop-gradient.
 *
 * - `cross-entropy`: `L = −n`.
 * - `cispo`: `L = −sg(clip(ρ, 1 − epsilon, 1 + epsilonHigh))·A·n` (MiniMax-M1, arXiv:2506.13585).
 * - `ppo`: `L = −min(ρ·A, clip(ρ, 1 − epsilon, 1 + epsilonHigh)·A)` (arXiv:1707.06347).
 *
 * With an `entropyCoefficient` β above 0, a policy loss is `L − β·H`, where `H = −Σ_v p_v·log p_v` is the entropy in nats of the token's
 * whole predictive distribution at temperature 1.
 */
export type LossSpec = { readonly kind: "cross-entropy" } | PolicyLoss;

/** Returns the coefficient of the entropy bonus of a loss; 0 without one. */
export function entropyCoefficientOf(loss: LossSpec | null): number {
  return loss === null || loss.kind === "cross-entropy" ? 0 : (loss.entropyCoefficient ?? 0);
}

/**
 * Computes `factor·L` of one token as {@link LossSpec} defines it, in float64, without the entropy bonus.
 *
 * @param token - Factor, ratio `ρ` before clipping, advantage and new log-probability.
 * @returns The value, its derivative by the new log-probability with the ratio held constant, and its derivative by the ratio.
 */
export function policyLossTerms(
  { kind, epsilon, epsilonHigh }: PolicyLoss,
  { factor, ratio, advantage, newLogprob }: Readonly<Record<"factor" | "ratio" | "advantage" | "newLogprob", number>>,
): { readonly value: number; readonly byLogprob: number; readonly byRatio: number } {
  const clipped = Math.min(Math.max(ratio, 1 - epsilon), 1 + epsilonHigh);
  switch (kind) {
    case "cispo": {
      const byLogprob = -factor * clipped * advantage;
      return { value: byLogprob * newLogprob, byLogprob, byRatio: 0 };
    }
    case "ppo": {
      const value = -factor * Math.min(ratio * advantage, clipped * advantage);
      // If the clipped term is the minimum, the loss does not depend on the ratio.
      return { value, byLogprob: 0, byRatio: ratio * advantage > clipped * advantage ? 0 : -factor * advantage };
    }
  }
}

/** New log-probabilities of one row, shape `[T]`, aligned with the row's tokens; 0 where the weight is 0. */
export type Logprobs = Float32Array;

/** Parameters of AdamW (arXiv:1711.05101), which is applied after the global gradient norm is clipped. */
export interface AdamParams {
  /** Learning rate of this step. */
  readonly learningRate: number;
  /** Decay rate of the first moment. @default 0.9 */
  readonly beta1?: number | undefined;
  /** Decay rate of the second moment. @default 0.99 */
  readonly beta2?: number | undefined;
  /** Term added to the denominator for numerical stability. @default 1e-8 */
  readonly epsilon?: number | undefined;
  /** Decoupled weight decay, applied to matrices but not to norm gains. @default 0 */
  readonly weightDecay?: number | undefined;
  /** Maximum global gradient norm; 0 = no clipping. @default 0 */
  readonly maxGradNorm?: number | undefined;
}

/** {@link AdamParams} with a value for every parameter. */
export type CompleteAdamParams = { readonly [Name in keyof AdamParams]-?: NonNullable<AdamParams[Name]> };

/** Defaults of {@link AdamParams}. `beta2` is OpenPipe ART's instead of PyTorch's 0.999, because RL runs are short. */
export const ADAM_DEFAULTS = { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 0 } as const;

/** Returns `params` with defaults for the parameters that are absent. */
export function completeAdam(params: AdamParams): CompleteAdamParams {
  const { learningRate, ...rest } = params;
  const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
  return { learningRate, ...ADAM_DEFAULTS, ...given };
}
