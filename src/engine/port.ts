/**
 * The Engine port: what a service needs of whatever samples and trains.
 *
 * The verbs are those of the Tinker protocol, so that a remote engine and the embedded one are interchangeable. Rows are
 * ragged: one row is one token sequence with per-token weights. The reduction is always a weighted sum; means are the
 * learner's business.
 */

import type { Grammar } from "./grammar/expression.ts";

/** Options of every call: `signal` ends it with the signal's own reason. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

/** Low-rank adapters on every linear layer: `y = x·W + (alpha / rank)·(x·A)·B`. */
export interface LoraSpec {
  /** Rank of `A` and `B`, 1 to 256. */
  readonly rank: number;
  /** Scale numerator. @default 2 × rank */
  readonly alpha?: number | undefined;
}

/** A directory on disk that holds a saved training state; to read, of a model with an adapter, also one in PEFT's layout. */
export type StatePath = string;

/** A trainable model in the engine's memory. Opaque. */
export interface ModelHandle {
  readonly id: string;
  readonly base: string;
}

/** Weights published for sampling. Opaque, immutable; valid until released. */
export interface PolicyVersion {
  readonly id: string;
  readonly base: string;
}

/**
 * One training sequence of `T` tokens. The arrays are aligned with the token they speak of, not with the position that
 * predicts it: `weights[t]` is the weight of predicting `tokens[t]` from `tokens[0..t-1]`, so `weights[0]` must be 0.
 */
export interface Row {
  /** Shape `[T]`, token ids. */
  readonly tokens: Int32Array;
  /** Shape `[T]`; 0 where the token is not trained. */
  readonly weights: Float32Array;
  /** Shape `[T]`; needed by `cispo` and `ppo`. */
  readonly advantages?: Float32Array | undefined;
  /** Shape `[T]`, log-probabilities at sampling time, NaN where unknown (then the ratio is 1); needed by `cispo` and `ppo`. */
  readonly logprobs?: Float32Array | undefined;
}

/**
 * The loss, always `Σ weights·L` with `n` the new and `o` the sampled logprob of a token, `ρ = exp(n − o)`, `A` its advantage.
 *
 * - `cross-entropy`: `L = −n`.
 * - `cispo`: `L = −sg(clip(ρ, 1 − epsilon, 1 + epsilonHigh))·A·n` (MiniMax-M1, arXiv:2506.13585).
 * - `ppo`: `L = −min(ρ·A, clip(ρ, 1 − epsilon, 1 + epsilonHigh)·A)` (arXiv:1707.06347).
 */
export type LossSpec =
  | { readonly kind: "cross-entropy" }
  | { readonly kind: "cispo" | "ppo"; readonly epsilon: number; readonly epsilonHigh: number };

/** New log-probabilities, shape `[T]` per row, aligned with the row's tokens; 0 where the weight is 0. */
export type Logprobs = Float32Array;

/** Sums over the tokens with a non-zero weight in one call; the caller divides. */
export interface LossMetrics {
  /** `Σ weights·L`. */
  readonly loss: number;
  /** Tokens with a non-zero weight. */
  readonly tokens: number;
  /** `Σ H`, the entropy of the predictive distribution in nats; NaN where the engine does not report it. */
  readonly entropy: number;
  /** Positions that were computed: what rows share counts once, padding counts. Absent where the engine does not say. */
  readonly positions?: number | undefined;
  /** Those of them that hold no token of a row. */
  readonly padding?: number | undefined;
  /** Absent where the engine does not say. */
  readonly threads?: ThreadReport | undefined;
}

/** With how many threads an engine trains, and what it measured to choose them. */
export interface ThreadReport {
  /** Those it goes on with: the number it was given or has chosen, and until then the one it tries next. */
  readonly threads: number;
  /** Once it has chosen: padded tokens per second with each number of threads that was measured, fewest first. */
  readonly rates: readonly { readonly threads: number; readonly tokensPerSecond: number }[];
}

/** AdamW (arXiv:1711.05101) after clipping the global gradient norm. */
export interface AdamParams {
  readonly learningRate: number;
  /** @default 0.9 */
  readonly beta1?: number | undefined;
  /** @default 0.99 */
  readonly beta2?: number | undefined;
  /** @default 1e-8 */
  readonly epsilon?: number | undefined;
  /** Decoupled; applied to matrices, not to norm gains. @default 0 */
  readonly weightDecay?: number | undefined;
  /** Clip the global norm to this; 0 = off. @default 0 */
  readonly maxGradNorm?: number | undefined;
}

/** A grammar that the text of a choice must match. */
export interface GrammarParams {
  readonly grammar: Grammar;
  /** What can be sampled where the text is complete, and nothing else from then on; at least one, none of them text. */
  readonly endTokenIds: readonly number[];
}

/**
 * What one request asks of the sampler. `constraint` comes first, and log-probabilities are those of the tokens it leaves. Then
 * the logits of a step go through, in this order: `allowedTokenIds`, `bannedSequences`,
 * `lateTokenIds`, `logitBias`, the three penalties; then the likeliest token is taken at temperature 0, else one is drawn from
 * `softmax(logits / temperature)` after `minP`, `topK` and `topP`. What is absent changes nothing and costs nothing.
 */
export interface SamplingParams {
  /** At least 1; prompt plus output never exceed the context. */
  readonly maxTokens: number;
  /** 0 = greedy. */
  readonly temperature: number;
  /** In (0, 1]. */
  readonly topP: number;
  /** 0 = off. */
  readonly topK: number;
  /** In [0, 1]: tokens less likely than this share of the likeliest are not drawn. @default 0 */
  readonly minP?: number | undefined;
  /** What the text must look like; tokens that carry structure are no text and cannot be sampled. @default anything */
  readonly constraint?: GrammarParams | undefined;
  /** The only tokens that can be sampled, at least one. @default all */
  readonly allowedTokenIds?: readonly number[] | undefined;
  /** Token sequences, none empty, of which the last token is never sampled right after the others. @default none */
  readonly bannedSequences?: readonly (readonly number[])[] | undefined;
  /** Until this many tokens are sampled none of `lateTokenIds` can be. @default 0 */
  readonly minTokens?: number | undefined;
  /** See `minTokens`; a caller lists here whatever would end the output. @default none */
  readonly lateTokenIds?: readonly number[] | undefined;
  /** Added to the logits of these tokens. @default nothing */
  readonly logitBias?: ReadonlyMap<number, number> | undefined;
  /** Above 0. Tokens of prompt and output: a positive logit is divided by it, any other multiplied. @default 1 */
  readonly repetitionPenalty?: number | undefined;
  /** Taken from a token's logit for each time it was sampled. @default 0 */
  readonly frequencyPenalty?: number | undefined;
  /** Taken from a token's logit once it was sampled. @default 0 */
  readonly presencePenalty?: number | undefined;
  /** Any 64-bit integer; the same request with the same seed gives the same tokens. */
  readonly seed: bigint;
  /** Sampling ends after one of these ids. */
  readonly stopTokenIds: readonly number[];
  /** How many alternatives come with each token; 0 = none. */
  readonly topLogprobs: number;
  /** How many alternatives come with each token of the prompt, which then comes with the first sampled token. @default no prompt */
  readonly promptLogprobs?: number | undefined;
  /** Where not all requests can run, those with the lowest value go first, of equal ones the earliest. @default 0 */
  readonly priority?: bigint | undefined;
  /** Requests share what was computed for a prompt only where this is equal. @default shared with all that have none */
  readonly cacheSalt?: string | undefined;
}

/** One alternative at a position. */
export interface TokenLogprob {
  readonly id: number;
  readonly logprob: number;
}

/** One token of a prompt, as the model would have sampled it. */
export interface PromptToken extends TokenLogprob {
  /** How many tokens are at least as likely; 1 = the likeliest. */
  readonly rank: number;
  /** Best first. */
  readonly top: readonly TokenLogprob[];
}

/**
 * One sampled token. `logprob` is `log_softmax` of the raw logits, before any of the sampling parameters but `constraint`: a
 * token that cannot follow has −∞. Never NaN.
 */
export interface SampledToken {
  readonly id: number;
  readonly logprob: number;
  /** Best first, the sampled token included only if it is among them; empty when not asked for. */
  readonly top: readonly TokenLogprob[];
  /** On the first token, where it was asked for: the tokens of the prompt, shape `[P - 1]`, as nothing predicts the first. */
  readonly prompt?: readonly PromptToken[] | undefined;
  /** On the first token: how many tokens of the prompt did not have to be computed; whole blocks, never all of it. Absent = not known. */
  readonly cachedTokens?: number | undefined;
  /** Set on the last token: a stop id was sampled, or the limit was reached. */
  readonly finish?: "stop" | "length" | undefined;
}

/** What this engine can do. */
export interface Capabilities {
  readonly name: string;
  /** Identifiers accepted as `base`. */
  readonly baseModels: readonly string[];
  readonly losses: readonly LossSpec["kind"][];
  readonly lora: boolean;
  readonly fullParameter: boolean;
  /** Whether `maxGradNorm` is carried out; where not, it is refused. @default true */
  readonly clipsGradients?: boolean | undefined;
  /** The largest `topLogprobs`. */
  readonly maxTopLogprobs: number;
  /** Whether `SamplingParams.constraint` is carried out. @default false */
  readonly constraints?: boolean | undefined;
  /** Whether equal inputs give equal bytes whatever the thread count. */
  readonly deterministic: boolean;
}

/** The facts of a base model that the layers above need. */
export interface BaseModelInfo {
  readonly id: string;
  /** Directory in Hugging Face layout: tokenizer and chat template are read from it. */
  readonly directory: string;
  readonly vocabularySize: number;
  readonly contextLength: number;
  /** NaN where the engine does not know. */
  readonly parameters: number;
}

/** State of one worker of an engine. */
export interface WorkerStatus {
  /** Name that is unique in the engine, such as `sampler-0`. */
  readonly name: string;
  readonly role: "sampler" | "trainer";
  /** `restarting`: the worker died, and its replacement has not started yet. */
  readonly state: "running" | "restarting";
  /** Replacements since the engine started. */
  readonly restarts: number;
  /** Milliseconds until the replacement starts; 0 while running. */
  readonly restartsInMs: number;
}

/** See the file header. Every failure is a WhetstoneError; every call takes a signal. */
export interface Engine {
  capabilities(): Capabilities;
  /** States of the workers that the engine restarts when they die. @default there are none */
  workers?(): readonly WorkerStatus[];
  /**
   * False for a policy or a model that was lost, wholly or on one of several workers, when a worker died: load it again. Calls on
   * what is lost reject with `E_UNAVAILABLE`; releasing it is harmless. @default always true
   */
  holds?(held: PolicyVersion | ModelHandle): boolean;
  /** @throws NotFoundError `E_NOT_FOUND` for a base outside the allowed roots or without a readable config. */
  describeBase(base: string): Promise<BaseModelInfo>;
  /**
   * Whether `createModel` on this base would find its weights, checked without loading them. Absent where there is nothing
   * to check.
   *
   * @throws NotFoundError `E_NOT_FOUND` like `describeBase`.
   * @throws DataError `E_DATA`, UnsupportedError `E_UNSUPPORTED` naming what is wrong with the weights.
   */
  verifyBase?(base: string): Promise<void>;
  /**
   * A fresh trainable model: the base's weights, or a saved state; step 0 optimizer state unless the state brings one. Waits for a
   * trainer that is being restarted.
   *
   * @throws UnavailableError `E_UNAVAILABLE` when the trainer dies meanwhile.
   */
  createModel(
    spec: {
      readonly base: string;
      readonly lora?: LoraSpec | undefined;
      readonly from?: StatePath | undefined;
      readonly seed: number;
      /** Random weights from `seed` instead of the base's own: how a base model is made. @default false */
      readonly fresh?: boolean | undefined;
    },
    options?: CallOptions,
  ): Promise<ModelHandle>;
  /**
   * Log-probabilities without gradients.
   *
   * @throws NonFiniteError `E_NON_FINITE` when one is NaN or infinite.
   */
  forward(model: ModelHandle, rows: readonly Row[], options?: CallOptions): Promise<Logprobs[]>;
  /**
   * Adds `∂ Σ weights·L / ∂ parameters` to the accumulated gradients.
   *
   * @throws NonFiniteError `E_NON_FINITE` when the loss or a log-probability is NaN or infinite; then nothing is added.
   */
  forwardBackward(
    model: ModelHandle,
    rows: readonly Row[],
    loss: LossSpec,
    options?: CallOptions,
  ): Promise<{ readonly logprobs: Logprobs[]; readonly metrics: LossMetrics }>;
  /**
   * Clip, AdamW, zero the gradients. `gradNorm` is the norm before clipping, NaN where the engine does not report it.
   *
   * @throws NonFiniteError `E_NON_FINITE` naming the tensor when the norm or an updated weight is NaN or infinite; then weights and
   *   moments stay, and the gradients are zeroed. An engine that computes elsewhere names what its server reported.
   */
  optimStep(model: ModelHandle, adam: AdamParams, options?: CallOptions): Promise<{ readonly gradNorm: number; readonly step: number }>;
  /** Sets moments and step count to zero; weights stay. */
  resetOptimizer(model: ModelHandle, options?: CallOptions): Promise<void>;
  /** Writes weights, moments and step into an existing empty directory, synced. */
  saveState(model: ModelHandle, path: StatePath, options?: CallOptions): Promise<void>;
  /** Replaces weights, moments and step by a saved state; accumulated gradients are dropped. */
  loadState(model: ModelHandle, path: StatePath, options?: CallOptions): Promise<void>;
  /** Copies the present weights to the sampler. Requests already running keep the version they started on. */
  publish(model: ModelHandle, options?: CallOptions): Promise<PolicyVersion>;
  /** Weights for sampling straight from a base (`state` absent) or a saved state, without a trainable model. */
  loadPolicy(spec: { readonly base: string; readonly state?: StatePath | undefined }, options?: CallOptions): Promise<PolicyVersion>;
  /**
   * Ends by itself after a token with `finish`; leaving the loop or aborting frees the slot within one token.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` when the request's own rules leave no token to sample.
   * @throws NonFiniteError `E_NON_FINITE` when the weights give no finite log-probabilities.
   */
  sample(policy: PolicyVersion, prompt: Int32Array, params: SamplingParams, options?: CallOptions): AsyncIterable<SampledToken>;
  /** Frees published weights once the last request on them ends. */
  release(policy: PolicyVersion): Promise<void>;
  unload(model: ModelHandle): Promise<void>;
  close(): Promise<void>;
}
