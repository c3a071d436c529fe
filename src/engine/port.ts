/**
 * The Engine port: the interface for sampling and training that the service and the learners are written against.
 *
 * The operations match the Tinker protocol, so a remote engine and the embedded one are interchangeable. Rows are ragged: one row is
 * one token sequence with per-token weights. The loss is always reduced by a weighted sum; a learner that wants a mean scales the weights.
 */

import type { AdamParams, Logprobs, LossSpec, Row } from "../base/training-rows.ts";
import type { BaseModelInfo, Capabilities, DeviceInfo, ThreadReport, VerifyBaseOptions, WorkerStatus } from "./engine-info.ts";
import type { CallOptions, SamplingOptions } from "./call-options.ts";
import type { SampledToken, SamplingParams } from "./sampling.ts";

export type { AdamParams, Logprobs, LossSpec, PolicyLoss, Row } from "../base/training-rows.ts";
export type { CallOptions, SamplingOptions } from "./call-options.ts";
export type { RequestGroup } from "../base/util/request-group.ts";
export type { BaseModelInfo, Capabilities, DeviceChoice, DeviceInfo } from "./engine-info.ts";
export type { RolloutPrecision, ThreadReport, VerifyBaseOptions, WeightPrecision, WorkerStatus } from "./engine-info.ts";
export type { GrammarParams, PromptToken, SampledToken, SamplingParams, TokenLogprob } from "./sampling.ts";

/** Low-rank adapters on every linear layer: `y = x·W + (alpha / rank)·(x·A)·B`. */
export interface LoraSpec {
  /** Rank of `A` and `B`, 1 to 256. */
  readonly rank: number;
  /** Scale numerator of the adapter. @default 2 × rank */
  readonly alpha?: number | undefined;
}

/** Path of a directory with a saved training state. For a model with an adapter, a directory in PEFT layout can be read as well. */
export type StatePath = string;

/** Name of the optimizer file in a saved state. Training needs it; sampling does not. */
export const OPTIMIZER_FILE = "optimizer.safetensors";

/** Opaque handle of a trainable model in the engine's memory. */
export interface ModelHandle {
  /** Identifier within the engine. */
  readonly id: string;
  /** Identifier of the model's base model. */
  readonly base: string;
}

/** Opaque handle of weights published for sampling. The weights are immutable; the handle is valid until released. */
export interface PolicyVersion {
  /** Identifier within the engine. */
  readonly id: string;
  /** Identifier of the weights' base model. */
  readonly base: string;
}

/** Metrics of one call: sums over the tokens with a non-zero weight, from which the caller computes means. */
export interface LossMetrics {
  /** Loss `Σ weights·L`. */
  readonly loss: number;
  /** Number of tokens with a non-zero weight. */
  readonly tokens: number;
  /** Sum of the entropies of the predictive distributions, in nats; NaN if the engine does not report it. */
  readonly entropy: number;
  /** Sum `Σ weights·H` of the weighted entropies, in nats. Absent for a loss without an entropy bonus. */
  readonly weightedEntropy?: number | undefined;
  /** Computed positions: a prefix that rows share counts once, and padding counts. Absent if the engine does not report it. */
  readonly positions?: number | undefined;
  /** Computed positions that hold padding instead of a token of a row. Absent if the engine does not report it. */
  readonly padding?: number | undefined;
  /** Thread count of the computation. Absent if the engine does not report it. */
  readonly threads?: ThreadReport | undefined;
  /** Use of a device with memory of its own. Absent on the processor, and if the engine does not report it. */
  readonly device?: DeviceUse | undefined;
}

/** Use of a device by one call. */
export interface DeviceUse extends DeviceInfo {
  /** Tensors in the device's memory after the call, of all models and policies, in bytes. Intermediates of a graph do not count. */
  readonly bytes: number;
  /** Bytes that the call copied to the device. */
  readonly uploadedBytes: number;
  /** Bytes that the call copied from the device. */
  readonly downloadedBytes: number;
}

/**
 * Engine that trains and samples models. Failures are instances of `WhetstoneError`; an aborted call rejects with the signal's reason.
 *
 * @example
 * ```ts
 * import { createOnnxEngine, type Row, type SamplingParams } from "whetstone/engine";
 *
 * const engine = await createOnnxEngine({ baseModels: { base: "/models/base" } });
 * const { lora, maxTopLogprobs } = engine.capabilities();
 * const { contextLength } = await engine.describeBase("base");
 * const model = await engine.createModel({ base: "base", lora: { rank: 16 }, seed: 0 });
 * const rows: Row[] = [{ tokens: Int32Array.of(5, 6, 7), weights: Float32Array.of(0, 1, 1) }];
 * const [before] = await engine.forward(model, rows);
 * const { metrics } = await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
 * const { gradNorm } = await engine.optimStep(model, { learningRate: 1e-4, maxGradNorm: 1 });
 * const policy = await engine.publish(model);
 * const params: SamplingParams = { maxTokens: 16, temperature: 1, topP: 1, topK: 0, seed: 7n, stopTokenIds: [2], topLogprobs: 0 };
 * for await (const token of engine.sample(policy, Int32Array.of(5, 6), params)) console.log(token.id, token.logprob);
 * await engine.release(policy);
 * await engine.saveState(model, "states/1");
 * await engine.loadState(model, "states/1");
 * await engine.resetOptimizer(model);
 * await engine.unload(model);
 * await engine.close();
 * ```
 */
export interface Engine {
  /**
   * Returns the features and limits of the engine.
   *
   * @returns base models, kinds of training and limits.
   */
  capabilities(): Capabilities;
  /**
   * Returns the states of the workers that the engine restarts when they die. Absent if the engine has no workers.
   *
   * @returns the current state of each worker.
   * @example
   * ```ts
   * const isDegraded = engine.workers?.().some(({ state }) => state === "restarting") ?? false;
   * ```
   */
  workers?(): readonly WorkerStatus[];
  /**
   * Returns the devices that models are trained and sampled on. Absent if the engine does not know them.
   *
   * @returns one entry per device in use, the processor or the default device first.
   * @example
   * ```ts
   * for (const { name, adapter } of engine.devices?.() ?? []) console.log(name, adapter);
   * ```
   */
  devices?(): readonly DeviceInfo[];
  /**
   * Returns false if a worker that held the policy or the model has died, even if other workers still hold a copy. Load it again.
   * Calls on a lost policy or model reject with `E_UNAVAILABLE`; releasing it has no effect. Absent if the engine loses nothing.
   *
   * @param held - Policy or model of this engine.
   * @returns whether calls on the policy or model can succeed.
   * @example
   * ```ts
   * if (engine.holds?.(published) === false) published = await engine.loadPolicy({ base: "base", state: "states/1" });
   * ```
   */
  holds?(held: PolicyVersion | ModelHandle): boolean;
  /**
   * Describes a base model without loading its weights.
   *
   * @param base - Identifier of a base model, or a path under one of the allowed roots if the engine has such roots.
   * @returns Directory, vocabulary size, context length and parameter count.
   * @throws NotFoundError `E_NOT_FOUND` for an unknown base, or a path outside the allowed roots or without a config.json.
   * @throws BaseModelError `E_BASE_MODEL` if the configuration is missing, invalid or unsupported.
   */
  describeBase(base: string): Promise<BaseModelInfo>;
  /**
   * Checks configuration, tokenizer, chat template and weights of a base model without keeping them in memory, so that `createModel` does
   * not fail on them. Absent if the engine has nothing to check.
   *
   * @param base - Base model, as for {@link describeBase}.
   * @param options - Extent of the check.
   * @throws NotFoundError `E_NOT_FOUND` for a base that {@link describeBase} rejects.
   * @throws BaseModelError `E_BASE_MODEL` if the base cannot be used; the message names the problem.
   * @throws UnavailableError `E_UNAVAILABLE` if the worker that checks the files dies.
   * @example
   * ```ts
   * await engine.verifyBase?.("base", { readsWeights: false });
   * ```
   */
  verifyBase?(base: string, options?: VerifyBaseOptions): Promise<void>;
  /**
   * Adds a base model under an identifier. Absent if the engine's base models are fixed.
   *
   * @param id - Identifier, accepted as `base` from then on.
   * @param source - Path, `hf:<owner>/<name>[@revision]` or `ollama:<name>[:tag]`, under the same rules as the `base` of the other calls.
   * @throws NotFoundError `E_NOT_FOUND` for a source that does not exist or is not allowed.
   * @throws ConflictError `E_CONFLICT` if the identifier belongs to another base model.
   * @example
   * ```ts
   * await engine.addBase?.("smol", "/models/SmolLM2-135M-Instruct.Q4_1.gguf");
   * ```
   */
  addBase?(id: string, source: string): Promise<void>;
  /**
   * Creates a trainable model from the base's weights or from a saved state. The optimizer starts at step 0 unless the saved state
   * contains its moments. Waits for a trainer that is being restarted.
   *
   * @param spec - Base model, adapter (absent: all parameters are trained), saved state to start from, and seed of random weights.
   * @param options - Signal.
   * @returns Handle of the model, valid until {@link unload}.
   * @throws NotFoundError `E_NOT_FOUND` for an unknown base.
   * @throws BaseModelError `E_BASE_MODEL` if the base cannot be loaded.
   * @throws DataError `E_DATA` if the saved state cannot be read, or belongs to another base or adapter shape.
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
   * @param options - Signal.
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
   * @param options - Signal.
   * @returns New log-probabilities per row, and sums over all rows.
   * @throws ArgumentError `E_ARGUMENT` for an invalid row; the message has its index.
   * @throws UnsupportedError `E_UNSUPPORTED` for an entropy bonus that the engine does not support; see {@link capabilities}.
   * @throws NonFiniteError `E_NON_FINITE` if the loss or a log-probability is NaN or infinite; nothing is added then.
   * @throws NotFoundError `E_NOT_FOUND` if the model was unloaded.
   */
  forwardBackward(
    model: ModelHandle,
    rows: readonly Row[],
    loss: LossSpec,
    options?: CallOptions,
  ): Promise<{
    /** Log-probabilities of each row under the current weights. */
    readonly logprobs: Logprobs[];
    /** Sums over the trained tokens of all rows. */
    readonly metrics: LossMetrics;
  }>;
  /**
   * Clips the accumulated gradients, applies AdamW and sets the gradients to zero.
   *
   * @param model - Model of this engine.
   * @param adam - Learning rate and other parameters of this step.
   * @param options - Signal.
   * @returns Global gradient norm before clipping (NaN if the engine does not report it), and the number of steps so far.
   * @throws NonFiniteError `E_NON_FINITE` if the norm or an updated weight is NaN or infinite; the message names the tensor, or the
   *   report of a remote server. Weights and moments then stay as they are, and the gradients are set to zero.
   * @throws UnsupportedError `E_UNSUPPORTED` for `maxGradNorm` above 0 if the engine does not clip gradients.
   * @throws NotFoundError `E_NOT_FOUND` if the model was unloaded.
   */
  optimStep(
    model: ModelHandle,
    adam: AdamParams,
    options?: CallOptions,
  ): Promise<{
    /** Global gradient norm before clipping; NaN if the engine does not report it. */
    readonly gradNorm: number;
    /** Number of optimizer steps since the moments were initialized. */
    readonly step: number;
  }>;
  /**
   * Sets the optimizer's moments, its step count and the accumulated gradients to zero; weights stay.
   *
   * @param model - Model of this engine.
   * @param options - Signal.
   * @throws NotFoundError `E_NOT_FOUND` if the model was unloaded.
   */
  resetOptimizer(model: ModelHandle, options?: CallOptions): Promise<void>;
  /**
   * Writes weights, moments and step count into an existing empty directory and syncs the files to disk.
   *
   * @param model - Model of this engine.
   * @param path - Existing empty directory.
   * @param options - Signal.
   * @throws NotFoundError `E_NOT_FOUND` if the model was unloaded.
   */
  saveState(model: ModelHandle, path: StatePath, options?: CallOptions): Promise<void>;
  /**
   * Replaces weights, moments and step count by a saved state; discards accumulated gradients.
   *
   * @param model - Model of this engine.
   * @param path - Directory written by {@link saveState}.
   * @param options - Signal.
   * @throws DataError `E_DATA` if the state cannot be read, or belongs to another base or adapter shape.
   * @throws NotFoundError `E_NOT_FOUND` if the model was unloaded.
   */
  loadState(model: ModelHandle, path: StatePath, options?: CallOptions): Promise<void>;
  /**
   * Publishes a copy of the current weights for sampling. Running requests keep the version that they started with.
   *
   * @param model - Model of this engine; it can be trained further.
   * @param options - Signal.
   * @returns Handle of the published weights, valid until {@link release}.
   * @throws NotFoundError `E_NOT_FOUND` if the model was unloaded.
   */
  publish(model: ModelHandle, options?: CallOptions): Promise<PolicyVersion>;
  /**
   * Publishes the weights of a base model (`state` absent) or of a saved state for sampling, without a trainable model.
   *
   * @param spec - Base model, and optionally a saved state on this base.
   * @param options - Signal.
   * @returns Handle of the published weights, valid until {@link release}.
   * @throws NotFoundError `E_NOT_FOUND` for an unknown base.
   * @throws DataError `E_DATA` if weights or saved state cannot be read, or the saved state belongs to another base.
   * @example
   * ```ts
   * const base = await engine.loadPolicy({ base: "base" });
   * ```
   */
  loadPolicy(spec: { readonly base: string; readonly state?: StatePath | undefined }, options?: CallOptions): Promise<PolicyVersion>;
  /**
   * Samples tokens one at a time. The last token has `finish` set. Leaving the loop or aborting frees the slot within one token.
   *
   * @param policy - Published weights.
   * @param prompt - Token ids, at least 1 and fewer than the context length.
   * @param params - Sampling parameters.
   * @param options - Signal and group.
   * @returns Tokens in the order of the output.
   * @throws ArgumentError `E_ARGUMENT` for a prompt or a parameter out of range.
   * @throws NotFoundError `E_NOT_FOUND` if the policy was released.
   * @throws UnsupportedError `E_UNSUPPORTED` for a parameter that the engine does not support, or if the request's restrictions leave no
   *   token to sample.
   * @throws NonFiniteError `E_NON_FINITE` if the weights produce log-probabilities that are not finite.
   */
  sample(policy: PolicyVersion, prompt: Int32Array, params: SamplingParams, options?: SamplingOptions): AsyncIterable<SampledToken>;
  /**
   * Frees published weights once the last request on them ends. Releasing them twice has no effect.
   *
   * @param policy - Published weights of this engine.
   */
  release(policy: PolicyVersion): Promise<void>;
  /**
   * Frees a trainable model. Unloading it twice has no effect.
   *
   * @param model - Model of this engine.
   */
  unload(model: ModelHandle): Promise<void>;
  /** Stops the engine and frees its models and policies. */
  close(): Promise<void>;
}
