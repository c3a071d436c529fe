import { z } from "zod";
import type { TrajectoryGroup as WireTrajectoryGroup } from "../schema/index.ts";
import { callJson, type Api, type CallOptions, type ServiceFeatures } from "./api.ts";
import { artifactsResource, type Artifacts } from "./artifacts.ts";
import { chatResource, type Chat } from "./chat.ts";
import { checkpointsResource, type Checkpoints } from "./checkpoints.ts";
import { modelsResource, type Models } from "./models.ts";
import type { BatchFinding, ClientPorts, ExamineOptions, FollowOptions } from "./ports.ts";
import { trainingJobsResource, type TrainingJobs } from "./training-jobs.ts";
import type { Transport } from "./transport.ts";
import { parseAnswer, type JobEvent } from "./wire.ts";

/** Constructor options of {@link Service}. */
export interface ServiceInit {
  readonly baseUrl: string;
  readonly inferenceUrl: string;
  readonly apiKey: string;
  readonly modelPrefix: string;
  readonly transport: Transport;
  readonly ports: ClientPorts;
  /** Called once, after the sockets are closed. */
  readonly onClose: () => Promise<void>;
}

/** A connection to a service, created by `connect`. */
export class Service {
  /** Base URL without `/v1`. */
  readonly baseUrl: string;
  /** Base URL with `/v1`, for any OpenAI-compatible client. */
  readonly inferenceUrl: string;
  /** Prefix of `entity/project/name` in model addresses. */
  readonly modelPrefix: string;
  readonly chat: Chat;
  readonly models: Models;
  readonly checkpoints: Checkpoints;
  readonly trainingJobs: TrainingJobs;
  readonly artifacts: Artifacts;
  /** Extensions of the service detected so far. */
  readonly features: ServiceFeatures = { jobEvents: undefined, idempotencyKeys: undefined };
  readonly #api: Api;
  readonly #apiKey: string;
  readonly #ports: ClientPorts;
  readonly #onClose: () => Promise<void>;
  #closing: Promise<void> | undefined;

  constructor(init: ServiceInit) {
    const { baseUrl, inferenceUrl, apiKey, transport } = init;
    this.baseUrl = baseUrl;
    this.inferenceUrl = inferenceUrl;
    this.modelPrefix = init.modelPrefix;
    this.#apiKey = apiKey;
    this.#ports = init.ports;
    this.#onClose = init.onClose;
    this.#api = { baseUrl, inferenceUrl, features: this.features, transport };
    this.chat = chatResource(this.#api);
    this.checkpoints = checkpointsResource(this.#api);
    this.trainingJobs = trainingJobsResource(this.#api);
    this.artifacts = artifactsResource(this.#api);
    this.models = modelsResource(this.#api, this);
  }

  /** API key, for other OpenAI-compatible clients. An accessor, so that printing or serializing the service does not reveal the key. */
  get apiKey(): string {
    return this.#apiKey;
  }

  /**
   * Returns the identifiers of the base models that can be trained. Extension.
   *
   * @throws HttpError `E_HTTP` for an error status.
   */
  async baseModels(options: CallOptions = {}): Promise<string[]> {
    return parseAnswer(z.array(z.string()), await callJson(this.#api, "GET", "/v1/preview/base-models", options), "list of base models");
  }

  /**
   * Returns the health report of the service, unvalidated. Extension.
   *
   * @throws HttpError `E_HTTP` for an error status.
   */
  health(options: CallOptions = {}): Promise<unknown> {
    return callJson(this.#api, "GET", "/health", options);
  }

  /**
   * Returns the step of a model's newest checkpoint; 0 before the first one.
   *
   * @throws HttpError `E_HTTP` for an error status.
   */
  async latestStep(modelId: string, options: CallOptions = {}): Promise<number> {
    const [newest] = await this.checkpoints.list(modelId, { ...options, order: "desc", max: 1 });
    return newest?.step ?? 0;
  }

  /** Follows a job by its identifier; see `Job.events`. */
  follow(jobId: string, options: FollowOptions = {}): AsyncIterable<JobEvent> {
    return this.#ports.followJob(this, jobId, options);
  }

  /**
   * Examines a batch as `model.train` does, and returns the warnings.
   *
   * @throws PreflightError `E_PREFLIGHT` if the batch cannot be trained.
   */
  examineBatch(groups: readonly WireTrajectoryGroup[], options?: ExamineOptions): readonly BatchFinding[] {
    return this.#ports.examineBatch(groups, options);
  }

  /** Closes the sockets and, if `connect` started it, the embedded service. Safe to call twice. */
  close(): Promise<void> {
    this.#closing ??= this.#api.transport.close().then(this.#onClose);
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
