/** Handle of a trainable model: its policies, its checkpoints, and the jobs that train it. */
import { NotFoundError } from "../../base/errors.ts";
import { refuse } from "../../base/util/values.ts";
import {
  rlConfig,
  type ChatCompletion,
  type ChatCompletionRequest,
  type CreateRlJobRequest,
  type LoraConfig,
  type RlConfig,
  type TrajectoryGroup as WireTrajectoryGroup,
} from "../../base/schema/index.ts";
import type { CallOptions, CreateOptions } from "./api.ts";
import type { ModelCheckpoint } from "./checkpoints.ts";
import { Job } from "./job.ts";
import { examinationOf } from "./examination.ts";
import type { BatchFinding } from "./ports.ts";
import { servedPolicy } from "./served-policy.ts";
import type { Service } from "./service.ts";
import { PREFERENCE_NAMES, preferenceBody, RL_NAMES, SFT_NAMES, sftBody, type PreferenceDataset, type SftDataset } from "./job-bodies.ts";
import { type DeletedModel, type ModelInfo, type PreferenceOptions, type RlOptions, type SftOptions } from "./wire.ts";
import { withOptionNames } from "./option-names.ts";
import { optionsToWire } from "./options.ts";

/** Options of {@link Model.train}. */
export type TrainOptions = RlOptions & CreateOptions;
/** Options of {@link Model.trainSft}. */
export type TrainSftOptions = SftOptions & CreateOptions;
/** Options of {@link Model.trainPreferences}. */
export type TrainPreferencesOptions = PreferenceOptions & CreateOptions;

/** Weights of one checkpoint, ready to sample from; usable wherever a `Policy` is expected. */
export interface ModelPolicy {
  /** Value of a request's `model` field. */
  readonly id: string;
  /** Step of the checkpoint. */
  readonly step: number;
  /** Transfers ownership: every response is freshly parsed, so that the caller may keep and modify it without copying. */
  readonly handsOver: true;
  /**
   * Returns one completion of this checkpoint; `request.model` is replaced by {@link id}.
   *
   * @param request - Chat request; `stream` is ignored.
   * @param options - `signal` aborts the request; `onRateLimit` decides about retries after a 429 response, see `ChatCompletions.create`.
   * @returns the completion, not shared with another caller.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const policy = await model.policy();
   * const { choices } = await policy.complete({ model: policy.id, messages: [{ role: "user", content: "Hello" }] });
   * ```
   */
  complete(
    request: ChatCompletionRequest,
    options?: {
      readonly signal?: AbortSignal | undefined;
      readonly onRateLimit?: ((retryAfterMs: number | null) => Promise<boolean>) | undefined;
    },
  ): Promise<ChatCompletion>;
}

/** Batch and settings of an RL job in the wire's form, with the warnings of its examination. */
interface ExaminedBatch {
  readonly wireGroups: CreateRlJobRequest["trajectory_groups"];
  readonly experimental: RlConfig;
  readonly warnings: readonly BatchFinding[];
}

/** An object that serializes to the wire form of a group, such as a `TrajectoryGroup`. */
export interface GroupSource {
  /** Returns the group in the wire's form. */
  toJSON(): WireTrajectoryGroup;
}

/**
 * A trainable model on the service, created by `service.models.create`.
 *
 * @example
 * ```ts
 * import { connect } from "whetstone";
 *
 * const service = await connect();
 * const model = await service.models.create({ project: "demo", name: "reverse", baseModel: "whetstone-tiny", returnExisting: true });
 * console.log(await model.step());
 * const policy = await model.policy();
 * ```
 */
export class Model implements ModelInfo {
  /** UUID of the model. */
  readonly id: string;
  /** Team or user that owns the model. */
  readonly entity: string;
  /** Project where the model is stored. */
  readonly project: string;
  /** Name, unique within entity and project. */
  readonly name: string;
  /** Base model whose architecture and tokenizer the model has. */
  readonly baseModel: string;
  /** Experiment-tracking run; null if the service has none. */
  readonly runId: string | null;
  /** Low-rank adapter settings; null = full-parameter training. */
  readonly lora: LoraConfig | null;
  readonly #service: Service;

  /**
   * Creates a handle; users get models from `service.models`.
   *
   * @internal
   */
  constructor(service: Service, info: ModelInfo) {
    this.#service = service;
    this.id = info.id;
    this.entity = info.entity;
    this.project = info.project;
    this.name = info.name;
    this.baseModel = info.baseModel;
    this.runId = info.runId;
    this.lora = info.lora;
  }

  /** Connection to which the model belongs. */
  get service(): Service {
    return this.#service;
  }

  /**
   * Returns a handle of a job of this model that was created earlier, perhaps by another process. Sends no request.
   *
   * @param id - ID of the job.
   * @param options - `baselineStep`: newest step before the job, null by default. It makes the end of a job detectable on a service
   *   without job events and status.
   * @returns a handle; a job that does not exist fails at the first request.
   * @example
   * ```ts
   * const { status } = await model.job("0d5b0f2e-8a7e-4c39-b7a4-3f0a4a1f8d11").get();
   * ```
   */
  job(id: string, { baselineStep = null }: { readonly baselineStep?: number | null | undefined } = {}): Job {
    return new Job(this.#service, { id, modelId: this.id, warnings: [], baselineStep });
  }

  /**
   * Returns the step of the newest checkpoint.
   *
   * @param options - Signal and time limit.
   * @returns the step; 0 before the first checkpoint.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  step(options: CallOptions = {}): Promise<number> {
    return this.#service.latestStep(this.id, options);
  }

  /**
   * Returns the weights of one checkpoint as a policy to sample from.
   *
   * @param step - Step of the checkpoint. @default the newest
   * @param options - Signal and time limit of the requests for the list of checkpoints; none is sent for step 0.
   * @returns a policy of this checkpoint; later training does not change it.
   * @throws ArgumentError `E_ARGUMENT` if `step` is not an integer of at least 0.
   * @throws NotFoundError `E_NOT_FOUND` if the model has no checkpoint at `step`.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  async policy(step?: number, options: CallOptions = {}): Promise<ModelPolicy> {
    const sampledStep = step ?? (await this.step(options));
    if (!Number.isInteger(sampledStep) || sampledStep < 0) refuse("step", "an integer of at least 0", sampledStep);
    if (step !== undefined) await this.#requireCheckpoint(step, options);
    const id = `${this.#service.modelPrefix}${this.entity}/${this.project}/${this.name}:step${sampledStep}`;
    return servedPolicy(this.#service, id, sampledStep);
  }

  /**
   * Checks that the model has a checkpoint at `step`. Sends no request for step 0, which every model has, and lists all checkpoints only if
   * `step` is not the newest one, which is sampled most often.
   *
   * @throws NotFoundError `E_NOT_FOUND` without such a checkpoint.
   */
  async #requireCheckpoint(step: number, options: CallOptions): Promise<void> {
    if (step === 0 || step === (await this.step(options))) return;
    const steps = (await this.#service.checkpoints.list(this.id, options)).map((each) => each.step);
    if (steps.includes(step)) return;
    const listed = steps.length > 10 ? `${steps.slice(0, 9).join(", ")} … ${steps.at(-1)}` : steps.join(", ");
    const message = `Model "${this.project}/${this.name}" has no checkpoint at step ${step}; it has: ${listed || "none"}`;
    throw new NotFoundError(message, { param: "step" });
  }

  /**
   * Starts a job with one RL step over groups of finished trajectories.
   *
   * Preflight examines the batch first, so that a batch without trainable data costs no request.
   *
   * @param groups - Groups of trajectories; rewards are compared within a group.
   * @param options - Settings of the step, signal, time limit and idempotency key.
   * @returns the created job; its `warnings` are preflight's.
   * @throws PreflightError `E_PREFLIGHT` if the batch cannot be trained.
   * @throws ArgumentError `E_ARGUMENT` for an unknown option or a value outside its bounds.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const job = await model.train(groups, { learningRate: 1e-5 });
   * const { step } = await job.done();
   * ```
   */
  async train(groups: readonly GroupSource[], { signal, timeoutMs, idempotencyKey, ...config }: TrainOptions = {}): Promise<Job> {
    const experimental = optionsToWire(rlConfig, config);
    const wireGroups = groups.map((group) => group.toJSON());
    const warnings = this.#service.examineBatch(wireGroups, examinationOf(config));
    return this.#startRl({ wireGroups, experimental, warnings }, { signal, timeoutMs, idempotencyKey });
  }

  /**
   * Starts a job like {@link train} with a batch that the caller has already examined with the options of `examinationOf`.
   *
   * @param wireGroups - Groups in the wire's form; not modified, so that repeated requests can share them.
   * @internal
   */
  trainExamined(
    wireGroups: CreateRlJobRequest["trajectory_groups"],
    { signal, timeoutMs, idempotencyKey, ...config }: TrainOptions,
  ): Promise<Job> {
    const experimental = optionsToWire(rlConfig, config);
    return this.#startRl({ wireGroups, experimental, warnings: [] }, { signal, timeoutMs, idempotencyKey });
  }

  /** Creates the job of {@link train} and {@link trainExamined}. */
  async #startRl({ wireGroups, experimental, warnings }: ExaminedBatch, options: CreateOptions): Promise<Job> {
    const baselineStep = await this.#baselineStep(options.signal);
    const body = { model_id: this.id, trajectory_groups: wireGroups, experimental_config: experimental };
    const { id } = await withOptionNames(RL_NAMES, () => this.#service.trainingJobs.createRl(body, options));
    return new Job(this.#service, { id, modelId: this.id, warnings, baselineStep });
  }

  /**
   * Starts a supervised fine-tuning job on an uploaded dataset (see `uploadDataset`).
   *
   * @param dataset - Address `artifact:///entity/project/name:vN`, or the result of `uploadDataset`: its validation half, if any, is the
   *   default of `validationDataUrl`, unless `validationSplit` is given.
   * @param options - Settings of the job, signal, time limit and idempotency key.
   * @returns the created job.
   * @throws ArgumentError `E_ARGUMENT` for an unknown option or a value outside its bounds.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const job = await model.trainSft("artifact:///local/demo/examples:v0", { batchSize: 8, learningRate: 1e-4 });
   * await job.done();
   * ```
   */
  async trainSft(dataset: SftDataset, { signal, timeoutMs, idempotencyKey, ...settings }: TrainSftOptions = {}): Promise<Job> {
    const body = sftBody(this.id, dataset, settings);
    const baselineStep = await this.#baselineStep(signal);
    const { id } = await withOptionNames(SFT_NAMES, () =>
      this.#service.trainingJobs.createSft(body, { signal, timeoutMs, idempotencyKey }),
    );
    return new Job(this.#service, { id, modelId: this.id, warnings: [], baselineStep });
  }

  /**
   * Starts a preference job (DPO) on uploaded pairs (see `uploadPreferences`). Extension.
   *
   * @param dataset - Address `artifact:///entity/project/name:vN`, or the result of `uploadPreferences`, as for {@link trainSft}.
   * @param options - Settings of the job, signal, time limit and idempotency key.
   * @returns the created job.
   * @throws ArgumentError `E_ARGUMENT` for an unknown option or a value outside its bounds.
   * @throws HttpError `E_HTTP` for an error status, 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const job = await model.trainPreferences("artifact:///local/demo/pairs:v0", { beta: 0.1, referenceStep: "start" });
   * await job.done();
   * ```
   */
  async trainPreferences(
    dataset: PreferenceDataset,
    { signal, timeoutMs, idempotencyKey, ...settings }: TrainPreferencesOptions = {},
  ): Promise<Job> {
    const body = preferenceBody(this.id, dataset, settings);
    const baselineStep = await this.#baselineStep(signal);
    const { id } = await withOptionNames(PREFERENCE_NAMES, () =>
      this.#service.trainingJobs.createPreference(body, { signal, timeoutMs, idempotencyKey }),
    );
    return new Job(this.#service, { id, modelId: this.id, warnings: [], baselineStep });
  }

  /**
   * Returns all checkpoints, fetching all pages.
   *
   * @param options - Signal and time limit.
   * @returns the checkpoints, oldest first.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * for (const { step, metrics } of await model.checkpoints()) console.log(step, metrics);
   * ```
   */
  checkpoints(options: CallOptions = {}): Promise<ModelCheckpoint[]> {
    return this.#service.checkpoints.list(this.id, options);
  }

  /**
   * Returns one checkpoint. Extension.
   *
   * @param step - Step of the checkpoint. @default the newest
   * @param options - Signal and time limit.
   * @returns the checkpoint with metrics and lineage.
   * @throws HttpError `E_HTTP` for an error status, 404 if there is no such checkpoint.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const { lineage } = await model.checkpoint(3);
   * ```
   */
  checkpoint(step?: number, options: CallOptions = {}): Promise<ModelCheckpoint> {
    return this.#service.checkpoints.get(this.id, step ?? "latest", options);
  }

  /**
   * Cancels the model's unfinished jobs, then deletes the model with its checkpoints. Artifacts and job records stay.
   *
   * @param options - Signal and time limit.
   * @returns the number of deleted checkpoints.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const { deletedCheckpoints } = await model.delete();
   * ```
   */
  delete(options: CallOptions = {}): Promise<DeletedModel> {
    return this.#service.models.delete(this.id, options);
  }

  /**
   * Returns the newest step before a job is created, by which the end of the job is detected on a service without job events. Null if the
   * service is known to have job events.
   */
  async #baselineStep(signal: AbortSignal | undefined): Promise<number | null> {
    return this.#service.features.jobEvents === true ? null : this.step({ signal });
  }
}
