/**
 * What the learner hands to whatever trains. Structurally the shapes of the engine's port, defined here a second time so
 * that this room needs no engine.
 */

/** One training sequence of `T` tokens; `weights[t]` is the weight of predicting `tokens[t]`, so `weights[0]` is 0. */
export interface TrainingRow {
  /** Shape `[T]`, token ids. */
  readonly tokens: Int32Array;
  /** Shape `[T]`; 0 where the token is not trained. */
  readonly weights: Float32Array;
  /** Shape `[T]`; policy losses only. */
  readonly advantages?: Float32Array | undefined;
  /** Shape `[T]`, log-probabilities at sampling time, NaN where unknown; policy losses only. */
  readonly logprobs?: Float32Array | undefined;
}

/** Token-level cross-entropy. */
export interface CrossEntropyLoss {
  readonly kind: "cross-entropy";
}

/** A token-level policy loss: the ratio is clipped to `[1 − epsilon, 1 + epsilonHigh]`. See `policyObjective`. */
export interface PolicyLoss {
  readonly kind: "cispo" | "ppo";
  readonly epsilon: number;
  readonly epsilonHigh: number;
}

/** What an importance ratio is taken over: the token, its whole row, or a mean of both. */
export type ImportanceLevel = "token" | "sequence" | "average" | "geometric_average";

/** Which loss a batch is trained with. */
export type LossSpec = CrossEntropyLoss | PolicyLoss;

/** The optimizer's settings, defaults filled in: AdamW (arXiv:1711.05101) after clipping the global gradient norm. */
export interface AdamParams {
  readonly learningRate: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
  readonly weightDecay: number;
  /** 0 = off. */
  readonly maxGradNorm: number;
}

/** What training must fit into. */
export interface SequenceLimits {
  /** Tokens the model can read; longer sequences are dropped and counted. */
  readonly contextLength: number;
  /** Ids must be below it. @default no check */
  readonly vocabularySize?: number | undefined;
}

/** A token sequence and which of its tokens are trained. */
export interface TokenSequence {
  /** Shape `[T]`, token ids. */
  readonly tokens: Int32Array;
  /** Shape `[T]`; 1 where the token is trained. `mask[0]` is 0: nothing predicts the first token. */
  readonly mask: Uint8Array;
  /** What each of its trained tokens counts beside those of other sequences; supervised training only. @default 1 */
  readonly weight?: number | undefined;
}

/** Where one sampled turn stands in a sequence. */
export interface TurnSpan {
  /** Which of the turns that were merged, from 0. */
  readonly turn: number;
  /** Its first sampled token's position. */
  readonly start: number;
  /** Sampled tokens. */
  readonly length: number;
  /** Step of the checkpoint that sampled it; null where nothing says. @default null */
  readonly policyVersion?: number | null | undefined;
}

/** A sequence of sampled tokens with what the sampler thought of them. */
export interface SampledSequence extends TokenSequence {
  /** Shape `[T]`, log-probabilities at sampling time; NaN where the mask is 0. */
  readonly logprobs: Float64Array;
  /** Its turns in order. */
  readonly turns: readonly TurnSpan[];
}
