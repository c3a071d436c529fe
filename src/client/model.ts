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

/** The weights of one checkpoint, ready to sample from; a `Policy` to everything that takes one. */
export interface ModelPolicy {
  /** What goes into a request's `model`. */
  readonly id: string;
  readonly step: number;
  /** Each answer was just read from the network and is nobody else's. */
  readonly handsOver: true;
  complete(request: ChatCompletionRequest, options?: { readonly signal?: AbortSignal | undefined }): Promise<ChatCompletion>;
}

/** Anything with the wire form of a group: a `TrajectoryGroup`. */
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

  /** The connection this model was made with. */
  get service(): Service {
    return this.#service;
  }

  /**
   * A job of this model that was created earlier, perhaps by a process that is gone. Sends nothing. `baselineStep` is the newest
   * step before the job: it lets a service without job events and status show its end.
   */
  job(id: string, { baselineStep = null }: { readonly baselineStep?: number | null | undefined } = {}): Job {
    return new Job(this.#service, { id, modelId: this.id, warnings: [], baselineStep });
  }

  /** Step of the newest checkpoint; 0 if there is none yet. */
  step(options: CallOptions = {}): Promise<number> {
    return this.#service.latestStep(this.id, options);
  }

  /**
   * The weights of one checkpoint as a value to sample from.
   *
   * @param step @default the newest
   * @throws ArgumentError `E_ARGUMENT` when `step` is not an integer of at least 0.
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
   * One RL step over groups of finished trajectories.
   *
   * The batch is examined first, so that one which would train nothing costs no request.
   *
   * @throws PreflightError `E_PREFLIGHT`; {@link ArgumentError} `E_ARGUMENT` for an unknown option or a value outside its bounds; HttpError `E_HTTP`.
   */
  async train(groups: readonly GroupSource[], { signal, timeoutMs, idempotencyKey, ...config }: TrainOptions = {}): Promise<Job> {
    const experimental = optionsToWire(rlConfig, config);
    const wireGroups = groups.map((group) => group.toJSON());
    // Who allows turns of unknown probability also has turns of other services, which say nothing of token ids.
    const isLenient = config.allowTrainingWithoutLogprobs === true;
    const warnings = this.#service.examineBatch(wireGroups, { allowsUnknownLogprobs: isLenient, rendersTokenIds: isLenient });
    const baselineStep = await this.#baselineStep(signal);
    const body = { model_id: this.id, trajectory_groups: wireGroups, experimental_config: experimental };
    const { id } = await this.#service.trainingJobs.createRl(body, { signal, timeoutMs, idempotencyKey });
    return new Job(this.#service, { id, modelId: this.id, warnings, baselineStep });
  }

  /**
   * Supervised training on an uploaded dataset (see `uploadDataset`).
   *
   * @param dataUrl `artifact:///entity/project/name:vN`.
   * @throws ArgumentError `E_ARGUMENT` for an unknown option or a value outside its bounds; HttpError `E_HTTP`.
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
      // A service without our extensions must not meet their names.
      ...(Object.keys(experimental).length === 0 ? {} : { experimental_config: experimental }),
    };
    const { id } = await this.#service.trainingJobs.createSft(body, { signal, timeoutMs, idempotencyKey });
    return new Job(this.#service, { id, modelId: this.id, warnings: [], baselineStep });
  }

  /** All checkpoints, oldest first. */
  checkpoints(options: CallOptions = {}): Promise<ModelCheckpoint[]> {
    return this.#service.checkpoints.list(this.id, options);
  }

  /**
   * One checkpoint. Extension.
   *
   * @param step @default the newest
   */
  checkpoint(step?: number, options: CallOptions = {}): Promise<ModelCheckpoint> {
    return this.#service.checkpoints.get(this.id, step ?? "latest", options);
  }

  /** Cancels the model's live jobs, then deletes it with its checkpoints. Artifacts and the record of its jobs stay. */
  delete(options: CallOptions = {}): Promise<DeletedModel> {
    return this.#service.models.delete(this.id, options);
  }

  /** Read before a job is created, or a service without job events could not show its end. Not read where events are known to work. */
  async #baselineStep(signal: AbortSignal | undefined): Promise<number | null> {
    return this.#service.features.jobEvents === true ? null : this.step({ signal });
  }
}
