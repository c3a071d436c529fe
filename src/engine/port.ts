/**
 * The Engine port: the interface for sampling and training that the service and the learners are written against.
 *
 * The operations match the Tinker protocol, so a remote engine and the embedded one are interchangeable. Rows are ragged: one row is
 * one token sequence with per-token weights. The loss is always reduced by a weighted sum; a learner that wants a mean scales the weights.
 */

import type { SampledToken, SamplingParams } from "./sampling.ts";

export type { GrammarParams, PromptToken, SampledToken, SamplingParams, TokenLogprob } from "./sampling.ts";

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Low-rank adapters on every linear layer: `y = x·W + (alpha / rank)·(x·A)·B`. */
export interface LoraSpec {
  /** Rank of `A` and `B`, 1 to 256. */
  readonly rank: number;
  /** Scale numerator. @default 2 × rank */
  readonly alpha?: number | undefined;
}

/** Path of a directory with a saved training state. For a model with an adapter, a directory in PEFT layout can be read as well. */
export type StatePath = string;

/** Opaque handle of a trainable model in the engine's memory. */
export interface ModelHandle {
  readonly id: string;
  readonly base: string;
}

/** Opaque handle of weights published for sampling. The weights are immutable; the handle is valid until released. */
export interface PolicyVersion {
  readonly id: string;
  readonly base: string;
}

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

/**
 * Loss, always `Σ weights·L`. For each token, `n` is the new log-probability, `o` the log-probability at sampling time,
 * `ρ = exp(n − o)`, and `A` the advantage.
 *
 * - `cross-entropy`: `L = −n`.
 * - `cispo`: `L = −sg(clip(ρ, 1 − epsilon, 1 + epsilonHigh))·A·n` (MiniMax-M1, arXiv:2506.13585).
 * - `ppo`: `L = −min(ρ·A, clip(ρ, 1 − epsilon, 1 + epsilonHigh)·A)` (arXiv:1707.06347).
 */
export type LossSpec =
  | { readonly kind: "cross-entropy" }
  | { readonly kind: "cispo" | "ppo"; readonly epsilon: number; readonly epsilonHigh: number };

/** New log-probabilities of one row, shape `[T]`, aligned with the row's tokens; 0 where the weight is 0. */
export type Logprobs = Float32Array;

/** Metrics of one call: sums over the tokens with a non-zero weight, from which the caller computes means. */
export interface LossMetrics {
  /** Loss `Σ weights·L`. */
  readonly loss: number;
  /** Number of tokens with a non-zero weight. */
  readonly tokens: number;
  /** Sum of the entropies of the predictive distributions, in nats; NaN if the engine does not report it. */
  readonly entropy: number;
  /** Computed positions: a prefix that rows share counts once, and padding counts. Absent if the engine does not report it. */
  readonly positions?: number | undefined;
  /** Computed positions that hold padding instead of a token of a row. Absent if the engine does not report it. */
  readonly padding?: number | undefined;
  /** Thread count of the computation. Absent if the engine does not report it. */
  readonly threads?: ThreadReport | undefined;
}

/** Thread count that an engine trains with, and the throughput that it measured to choose the count. */
export interface ThreadReport {
  /** Thread count in use. While auto-tuning, the candidate tried next. */
  readonly threads: number;
  /** Throughput per measured thread count, in tokens per second including padding, in ascending order of threads; empty until tuned. */
  readonly rates: readonly { readonly threads: number; readonly tokensPerSecond: number }[];
}

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

/** Features and limits of an engine. */
export interface Capabilities {
  readonly name: string;
  /** Identifiers accepted as `base`. */
  readonly baseModels: readonly string[];
  readonly losses: readonly LossSpec["kind"][];
  readonly lora: boolean;
  readonly fullParameter: boolean;
  /** Whether `maxGradNorm` is supported; if not, a value above 0 is rejected. @default true */
  readonly clipsGradients?: boolean | undefined;
  /** Maximum of `topLogprobs`. */
  readonly maxTopLogprobs: number;
  /** Whether `SamplingParams.constraint` is supported. @default false */
  readonly constraints?: boolean | undefined;
  /** Whether equal inputs give bit-identical results across thread counts. */
  readonly deterministic: boolean;
}

/** Description of a base model. */
export interface BaseModelInfo {
  readonly id: string;
  /** Directory in Hugging Face layout, from which tokenizer and chat template are read. */
  readonly directory: string;
  readonly vocabularySize: number;
  /** Context length in tokens. */
  readonly contextLength: number;
  /** Number of parameters; NaN if the engine does not know it. */
  readonly parameters: number;
}

/** State of one worker of an engine. */
export interface WorkerStatus {
  /** Name, unique within the engine, such as `sampler-0`. */
  readonly name: string;
  readonly role: "sampler" | "trainer";
  /** Current state; `restarting` if the worker died and its replacement has not started yet. */
  readonly state: "running" | "restarting";
  /** Number of replacements since the engine started. */
  readonly restarts: number;
  /** Milliseconds until the replacement starts; 0 while running. */
  readonly restartsInMs: number;
}

/**
 * Engine that trains and samples models. Failures are instances of `WhetstoneError`; an aborted call rejects with the signal's reason.
 *
 * @example
 * const model = await engine.createModel({ base: "base", lora: { rank: 16 }, seed: 0 });
 * await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
 * await engine.optimStep(model, { learningRate: 1e-4 });
 * const policy = await engine.publish(model);
 * for await (const token of engine.sample(policy, prompt, params)) console.log(token.id);
 */
export interface Engine {
  /** Returns the features and limits of the engine. */
  capabilities(): Capabilities;
  /** Returns the states of the workers that the engine restarts when they die. Absent if the engine has no workers. */
  workers?(): readonly WorkerStatus[];
  /**
   * Returns false if a worker that held the policy or the model has died, even if other workers still hold a copy. Load it again.
   * Calls on a lost policy or model reject with `E_UNAVAILABLE`; releasing it has no effect. Absent if the engine loses nothing.
   *
   * @param held - Policy or model of this engine.
   */
  holds?(held: PolicyVersion | ModelHandle): boolean;
  /**
   * Describes a base model without loading its weights.
   *
   * @param base - Identifier of a base model, or a path under one of the allowed roots if the engine has such roots.
   * @returns Directory, vocabulary size, context length and parameter count.
   * @throws NotFoundError `E_NOT_FOUND` for an unknown base, or a path outside the allowed roots or without a config.json.
   * @throws DataError `E_DATA`, UnsupportedError `E_UNSUPPORTED` if the configuration is invalid or unsupported.
   */
  describeBase(base: string): Promise<BaseModelInfo>;
  /**
   * Checks the weights of a base model without keeping them in memory, so that `createModel` does not fail on them. Absent if the
   * engine has nothing to check.
   *
   * @param base - Base model, as for {@link describeBase}.
   * @throws NotFoundError `E_NOT_FOUND` for a base that {@link describeBase} rejects.
   * @throws DataError `E_DATA`, UnsupportedError `E_UNSUPPORTED` if the weights cannot be used; the message names the problem.
   */
  verifyBase?(base: string): Promise<void>;
  /**
   * Creates a trainable model from the base's weights or from a saved state. The optimizer starts at step 0 unless the saved state
   * contains its moments. Waits for a trainer that is being restarted.
   *
   * @param spec - Base model, adapter (absent: all parameters are trained), saved state to start from, and seed of random weights.
   * @returns Handle of the model, valid until {@link unload}.
   * @throws NotFoundError `E_NOT_FOUND` for an unknown base.
   * @throws DataError `E_DATA` if weights or saved state cannot be read, or the saved state belongs to another base or adapter shape.
   * @throws UnsupportedError `E_UNSUPPORTED` for a kind of model that the engine does not support; see {@link capabilities}.
   * @throws UnavailableError `E_UNAVAILABLE` if the trainer dies during the call.
   */
  createModel(
    spec: {
      readonly base: string;
      readonly lora?: LoraSpec | undefined;
      readonly from?: StatePath | undefined;
      readonly seed: number;
      /** Whether to start from random weights of `seed` instead of the base's weights, to train a base model. @default false */
      readonly fresh?: boolean | undefined;
    },
    options?: CallOptions,
  ): Promise<ModelHandle>;
  /**
   * Computes log-probabilities without gradients.
   *
   * @param model - Model of this engine.
   * @param rows - Sequences of 2 to `contextLength + 1` tokens.
   * @returns One array per row, in the order of the rows.
   * @throws ArgumentError `E_ARGUMENT` for an invalid row; the message has its index.
   * @throws NonFiniteError `E_NON_FINITE` if a log-probability is NaN or infinite.
   * @throws NotFoundError `E_NOT_FOUND` if the model was unloaded.
   */
  forward(model: ModelHandle, rows: readonly Row[], options?: CallOptions): Promise<Logprobs[]>;
  /**
   * Adds `∂ Σ weights·L / ∂ parameters` to the accumulated gradients.
   *
   * @param model - Model of this engine.
   * @param rows - Sequences of 2 to `contextLength + 1` tokens; `cispo` and `ppo` require advantages and old log-probabilities.
   * @param loss - Loss per token.
   * @returns New log-probabilities per row, and sums over all rows.
   * @throws ArgumentError `E_ARGUMENT` for an invalid row; the message has its index.
   * @throws NonFiniteError `E_NON_FINITE` if the loss or a log-probability is NaN or infinite; nothing is added then.
   * @throws NotFoundError `E_NOT_FOUND` if the model was unloaded.
   */
  forwardBackward(
    model: ModelHandle,
    rows: readonly Row[],
    loss: LossSpec,
    options?: CallOptions,
  ): Promise<{ readonly logprobs: Logprobs[]; readonly metrics: LossMetrics }>;
  /**
   * Clips the accumulated gradients, applies AdamW and sets the gradients to zero.
   *
   * @param model - Model of this engine.
   * @param adam - Learning rate and other parameters of this step.
   * @returns Global gradient norm before clipping (NaN if the engine does not report it), and the number of steps so far.
   * @throws NonFiniteError `E_NON_FINITE` if the norm or an updated weight is NaN or infinite; the message names the tensor, or the
   *   report of a remote server. Weights and moments then stay as they are, and the gradients are set to zero.
   * @throws UnsupportedError `E_UNSUPPORTED` for `maxGradNorm` above 0 if the engine does not clip gradients.
   * @throws NotFoundError `E_NOT_FOUND` if the model was unloaded.
   */
  optimStep(model: ModelHandle, adam: AdamParams, options?: CallOptions): Promise<{ readonly gradNorm: number; readonly step: number }>;
  /** Sets the optimizer's moments and step count to zero; weights stay. */
  resetOptimizer(model: ModelHandle, options?: CallOptions): Promise<void>;
  /** Writes weights, moments and step count into an existing empty directory and syncs the files to disk. */
  saveState(model: ModelHandle, path: StatePath, options?: CallOptions): Promise<void>;
  /**
   * Replaces weights, moments and step count by a saved state; discards accumulated gradients.
   *
   * @throws DataError `E_DATA` if the state cannot be read, or belongs to another base or adapter shape.
   */
  loadState(model: ModelHandle, path: StatePath, options?: CallOptions): Promise<void>;
  /**
   * Publishes a copy of the current weights for sampling. Running requests keep the version that they started with.
   *
   * @param model - Model of this engine; it can be trained further.
   * @returns Handle of the published weights, valid until {@link release}.
   */
  publish(model: ModelHandle, options?: CallOptions): Promise<PolicyVersion>;
  /**
   * Publishes the weights of a base model (`state` absent) or of a saved state for sampling, without a trainable model.
   *
   * @param spec - Base model, and optionally a saved state on this base.
   * @returns Handle of the published weights, valid until {@link release}.
   * @throws NotFoundError `E_NOT_FOUND` for an unknown base.
   * @throws DataError `E_DATA` if weights or saved state cannot be read, or the saved state belongs to another base.
   */
  loadPolicy(spec: { readonly base: string; readonly state?: StatePath | undefined }, options?: CallOptions): Promise<PolicyVersion>;
  /**
   * Samples tokens one at a time. The last token has `finish` set. Leaving the loop or aborting frees the slot within one token.
   *
   * @param policy - Published weights.
   * @param prompt - Token ids, at least 1 and fewer than the context length.
   * @param params - Sampling parameters.
   * @returns Tokens in the order of the output.
   * @throws ArgumentError `E_ARGUMENT` for a prompt or a parameter out of range.
   * @throws NotFoundError `E_NOT_FOUND` if the policy was released.
   * @throws UnsupportedError `E_UNSUPPORTED` for a parameter that the engine does not support, or if the request's restrictions leave no
   *   token to sample.
   * @throws NonFiniteError `E_NON_FINITE` if the weights produce log-probabilities that are not finite.
   */
  sample(policy: PolicyVersion, prompt: Int32Array, params: SamplingParams, options?: CallOptions): AsyncIterable<SampledToken>;
  /** Frees published weights once the last request on them ends. */
  release(policy: PolicyVersion): Promise<void>;
  /** Frees a trainable model. */
  unload(model: ModelHandle): Promise<void>;
  /** Stops the engine and frees its models. */
  close(): Promise<void>;
}
