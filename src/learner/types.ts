/** Token sequences between reading a trajectory and building the rows of a batch. */

/**
 * Importance ratio of a token: the ratio of the token itself (`token`); the geometric mean over the trained tokens of its sequence, as in
 * GSPO (`sequence`); or the arithmetic (`average`) or geometric mean (`geometric_average`) of these two.
 */
export type ImportanceLevel = "token" | "sequence" | "average" | "geometric_average";

/** Limits that a model sets for training sequences. */
export interface SequenceLimits {
  /** Context length of the model in tokens; longer sequences are dropped and counted. */
  readonly contextLength: number;
  /** Exclusive upper bound of token ids. @default no check */
  readonly vocabularySize?: number | undefined;
}

/** Token sequence with a mask of its trained tokens. */
export interface TokenSequence {
  /** Shape `[T]`, token ids. */
  readonly tokens: Int32Array;
  /** Shape `[T]`; 1 where the token is trained. `mask[0]` is 0: nothing predicts the first token. */
  readonly mask: Uint8Array;
  /**
   * Relative weight of the sequence's trained tokens in a batch. Only supervised training sets and reads it; RL weights follow from the
   * configuration.
   *
   * @default 1
   */
  readonly weight?: number | undefined;
}

/** Sampled turn and its position in a sequence. */
export interface TurnSpan {
  /**
   * Index of the turn, from 0. From `mergeTurns`: among the sampled turns of one history. From `readTrajectory` on: among the sampled turns
   * of all histories of the trajectory.
   */
  readonly turn: number;
  /** Position of the first sampled token. */
  readonly start: number;
  /** Number of sampled tokens. */
  readonly length: number;
  /** Step of the checkpoint that sampled the turn; null if unknown. @default null */
  readonly policyVersion?: number | null | undefined;
}

/** Token sequence with sampled turns and the sampler's log-probabilities. */
export interface SampledSequence extends TokenSequence {
  /** Shape `[T]`, log-probabilities at sampling time; NaN for tokens that were not sampled or whose log-probability is unknown. */
  readonly logprobs: Float64Array;
  /** Sampled turns in order. */
  readonly turns: readonly TurnSpan[];
  /**
   * Shape `[T]`, advantages supplied with the choices, 0 outside of them; used where the mask is 1. @default none: advantages are computed
   * from rewards
   */
  readonly tokenAdvantages?: Float64Array | undefined;
  /** Shape `[T]`, factors of the loss weights from the choices' `token_weights`, used where the mask is 1. @default 1 for every token */
  readonly tokenWeightFactors?: Float64Array | undefined;
}
