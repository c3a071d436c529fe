import { ArgumentError } from "../errors.ts";
import {
  rlConfig,
  sftConfig,
  sftExperimentalConfig,
  type ChatCompletion,
  type ChatCompletionRequest,
  type LoraConfig,
  type TrajectoryGroup as WireTrajectoryGroup,
} from "../schema/index.ts";
import type { CallOptions, CreateOptions } from "./api.ts";
import type { ModelCheckpoint } from "./checkpoints.ts";
import { Job } from "./job.ts";
import type { Service } from "./service.ts";
import { hasOption, optionsToWire, type DeletedModel, type ModelInfo, type RlOptions, type SftOptions } from "./wire.ts";

/** Options of {@link Model.train}. */
export type TrainOptions = RlOptions & CreateOptions;
/** Options of {@link Model.trainSft}. */
export type TrainSftOptions = SftOptions & CreateOptions;

/** Weights of one checkpoint, ready to sample from; usable wherever a `Policy` is expected. */
export interface ModelPolicy {
  /** Value of a request's `model` field. */
  readonly id: string;
  readonly step: number;
  /** True: every response is freshly parsed, so that the caller may keep it without copying. */
  readonly handsOver: true;
  complete(request: ChatCompletionRequest, options?: { readonly signal?: AbortSignal | undefined }): Promise<ChatCompletion>;
}

/** An object that serializes to the wire form of a group, such as a `TrajectoryGroup`. */
export interface GroupSource {
  toJSON(): WireTrajectoryGroup;
}

/** A trainable model on the service. */
export class Model implements ModelInfo {
  readonly id: string;
  readonly entity: string;
  readonly project: string;
  readonly name: string;
  readonly baseModel: string;
  readonly runId: string | null;
  readonly lora: LoraConfig | null;
  readonly #service: Service;

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
   * @param id - Identifier of the job.
   * @param options - `baselineStep`: newest step before the job, null by default. It makes the end of a job detectable on a service
   *   without job events and status.
   */
  job(id: string, { baselineStep = null }: { readonly baselineStep?: number | null | undefined } = {}): Job {
    return new Job(this.#service, { id, modelId: this.id, warnings: [], baselineStep });
  }

  /**
   * Returns the step of the newest checkpoint; 0 before the first one.
   *
   * @throws HttpError `E_HTTP` for an error status.
   */
  step(options: CallOptions = {}): Promise<number> {
    return this.#service.latestStep(this.id, options);
  }

  /**
   * Returns the weights of one checkpoint as a policy to sample from.
   *
   * @param step @default the newest
   * @throws ArgumentError `E_ARGUMENT` if `step` is not an integer of at least 0.
   */
  async policy(step?: number, options: CallOptions = {}): Promise<ModelPolicy> {
    const at = step ?? (await this.step(options));
    if (!Number.isInteger(at) || at < 0)
      throw new ArgumentError(`Expected \`step\` to be an integer of at least 0, got \`${at}\``, { param: "step" });
    const id = `${this.#service.modelPrefix}${this.entity}/${this.project}/${this.name}:step${at}`;
    const { completions } = this.#service.chat;
    return {
      id,
      step: at,
      handsOver: true,
      complete: (request, { signal } = {}) => completions.create({ ...request, model: id, stream: false }, { signal }),
    };
  }

  /**
   * Starts a job with one RL step over groups of finished trajectories.
   *
   * Preflight examines the batch first, so that a batch without trainable data costs no request.
   *
   * @param groups - Groups of trajectories; rewards are compared within a group.
   * @param options - Settings of the step, signal, time limit and idempotency key.
   * @returns the created job.
   * @throws PreflightError `E_PREFLIGHT` if the batch cannot be trained.
   * @throws ArgumentError `E_ARGUMENT` for an unknown option or a value outside its bounds.
   * @throws HttpError `E_HTTP` for an error status.
   */
  async train(groups: readonly GroupSource[], { signal, timeoutMs, idempotencyKey, ...config }: TrainOptions = {}): Promise<Job> {
    const experimental = optionsToWire(rlConfig, config);
    const wireGroups = groups.map((group) => group.toJSON());
    // Turns without log-probabilities may come from other services, which do not return token ids either.
    const isLenient = config.allowTrainingWithoutLogprobs === true;
    const warnings = this.#service.examineBatch(wireGroups, { allowsUnknownLogprobs: isLenient, rendersTokenIds: isLenient });
    const baselineStep = await this.#baselineStep(signal);
    const body = { model_id: this.id, trajectory_groups: wireGroups, experimental_config: experimental };
    const { id } = await this.#service.trainingJobs.createRl(body, { signal, timeoutMs, idempotencyKey });
    return new Job(this.#service, { id, modelId: this.id, warnings, baselineStep });
  }

  /**
   * Starts a supervised fine-tuning job on an uploaded dataset (see `uploadDataset`).
   *
   * @param dataUrl - `artifact:///entity/project/name:vN`.
   * @param options - Settings of the job, signal, time limit and idempotency key.
   * @returns the created job.
   * @throws ArgumentError `E_ARGUMENT` for an unknown option or a value outside its bounds.
   * @throws HttpError `E_HTTP` for an error status.
   */
  async trainSft(dataUrl: string, { signal, timeoutMs, idempotencyKey, ...options }: TrainSftOptions = {}): Promise<Job> {
    const entries = Object.entries(options);
    const config = optionsToWire(sftConfig, Object.fromEntries(entries.filter(([name]) => hasOption(sftConfig, name))));
    const known = { ...sftConfig.shape, ...sftExperimentalConfig.shape };
    const unknown = entries.find(([name, value]) => value !== undefined && !hasOption({ shape: known }, name));
    if (unknown !== undefined) optionsToWire(sftConfig.extend(sftExperimentalConfig.shape), { [unknown[0]]: unknown[1] });
    const experimental = optionsToWire(
      sftExperimentalConfig,
      Object.fromEntries(entries.filter(([name]) => hasOption(sftExperimentalConfig, name))),
    );
    const baselineStep = await this.#baselineStep(signal);
    const body = {
      model_id: this.id,
      training_data_url: dataUrl,
      config,
      // The field is omitted when empty, because a service without the extensions may reject it.
      ...(Object.keys(experimental).length === 0 ? {} : { experimental_config: experimental }),
    };
    const { id } = await this.#service.trainingJobs.createSft(body, { signal, timeoutMs, idempotencyKey });
    return new Job(this.#service, { id, modelId: this.id, warnings: [], baselineStep });
  }

  /**
   * Returns all checkpoints, oldest first.
   *
   * @throws HttpError `E_HTTP` for an error status.
   */
  checkpoints(options: CallOptions = {}): Promise<ModelCheckpoint[]> {
    return this.#service.checkpoints.list(this.id, options);
  }

  /**
   * Returns one checkpoint. Extension.
   *
   * @param step @default the newest
   * @throws HttpError `E_HTTP` for an error status.
   */
  checkpoint(step?: number, options: CallOptions = {}): Promise<ModelCheckpoint> {
    return this.#service.checkpoints.get(this.id, step ?? "latest", options);
  }

  /**
   * Cancels the model's unfinished jobs, then deletes the model with its checkpoints. Artifacts and job records stay.
   *
   * @throws HttpError `E_HTTP` for an error status.
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
