/** Connection to a service with all of its resources, created by `connect`. */
import { z } from "zod";
import type { TrajectoryGroup as WireTrajectoryGroup } from "../../base/schema/index.ts";
import { callJson, type Api, type CallOptions, type ServiceFeatures } from "./api.ts";
import { addBaseModel, baseModelsOf, type AddBaseModelOptions } from "./base-models.ts";
import { artifactsResource, type Artifacts } from "./artifacts.ts";
import { auditLogOf, type AuditLogOptions, type AuditRecord } from "./audit-log.ts";
import { chatResource, type Chat } from "./chat.ts";
import { checkpointsResource, type Checkpoints } from "./checkpoints.ts";
import { entitiesResource, type Entities } from "./entities.ts";
import { upstreamsResource, type Upstreams } from "./upstreams.ts";
import { keysResource, type Keys } from "./keys.ts";
import { modelsResource, type Models } from "./models.ts";
import type { BatchFinding, ClientPorts, ExamineOptions, FollowOptions } from "./ports.ts";
import { rolloutPlansResource, type RolloutPlans } from "./rollout-plans.ts";
import { sessionsResource, type Sessions } from "./sessions.ts";
import { trainingJobsResource, type TrainingJobs } from "./training-jobs.ts";
import type { Transport } from "./transport.ts";
import { type JobEvent } from "./wire.ts";
import { parseResponse } from "./options.ts";

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

/**
 * A connection to a service, created by `connect`.
 *
 * @example
 * ```ts
 * import { connect } from "whetstone";
 *
 * await using service = await connect();
 * console.log(await service.baseModels(), await service.health());
 * const models = await service.models.list();
 * ```
 */
export class Service {
  /** Address of the service, without `/v1` and without a trailing slash. */
  readonly baseUrl: string;
  /** Base URL with `/v1`, for any OpenAI-compatible client. */
  readonly inferenceUrl: string;
  /** Prefix of `entity/project/name` in model addresses. */
  readonly modelPrefix: string;
  /** Chat completions of base models and checkpoints. */
  readonly chat: Chat;
  /** Trainable and served models. */
  readonly models: Models;
  /** Checkpoints of trainable models. */
  readonly checkpoints: Checkpoints;
  /** Training jobs, with bodies as on the wire. */
  readonly trainingJobs: TrainingJobs;
  /** Versioned sets of files, such as datasets and adapters. */
  readonly artifacts: Artifacts;
  /** Sessions of agents that run anywhere. */
  readonly sessions: Sessions;
  /** API keys with scopes, for a service that several people or teams share. */
  readonly keys: Keys;
  /** Limits of entities, and the daily usage of their keys (an extension). */
  readonly entities: Entities;
  /** Servers to which the service forwards chat completions (an extension). */
  readonly upstreams: Upstreams;
  /** Plans of rollouts that workers play. */
  readonly rolloutPlans: RolloutPlans;
  /** Optional features of the service detected so far; the resources share and update this object. */
  readonly features: ServiceFeatures = { jobEvents: undefined, idempotencyKeys: undefined };
  readonly #api: Api;
  readonly #apiKey: string;
  readonly #ports: ClientPorts;
  readonly #onClose: () => Promise<void>;
  #closing: Promise<void> | undefined;

  /**
   * Opens no sockets; users get a service from `connect`.
   *
   * @internal
   */
  constructor(init: ServiceInit) {
    const { baseUrl, inferenceUrl, apiKey, transport } = init;
    this.baseUrl = baseUrl;
    this.inferenceUrl = inferenceUrl;
    this.modelPrefix = init.modelPrefix;
    this.#apiKey = apiKey;
    this.#ports = init.ports;
    this.#onClose = init.onClose;
    this.#api = { baseUrl, inferenceUrl, features: this.features, transport, toBaseModel: baseModelsOf(baseUrl) };
    this.chat = chatResource(this.#api);
    this.checkpoints = checkpointsResource(this.#api);
    this.trainingJobs = trainingJobsResource(this.#api);
    this.artifacts = artifactsResource(this.#api);
    this.sessions = sessionsResource(this.#api);
    this.keys = keysResource(this.#api);
    this.entities = entitiesResource(this.#api);
    this.upstreams = upstreamsResource(this.#api);
    this.rolloutPlans = rolloutPlansResource(this.#api);
    this.models = modelsResource(this.#api, this);
  }

  /** API key, for other OpenAI-compatible clients. An accessor, so that printing or serializing the service does not reveal the key. */
  get apiKey(): string {
    return this.#apiKey;
  }

  /**
   * Returns the records of the audit log, fetching all pages. Extension.
   *
   * @param options - Filters, number, signal and time limit.
   * @returns the records, newest first.
   * @throws HttpError `E_HTTP` for an error status, 404 if the service keeps no audit log.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * for (const { createdAt, keyId, object } of await service.auditLog({ action: "deleteModel" })) console.log(createdAt, keyId, object);
   * ```
   */
  auditLog(options: AuditLogOptions = {}): Promise<AuditRecord[]> {
    return auditLogOf(this.#api, options);
  }

  /**
   * Returns the base models that can be trained. Extension.
   *
   * @param options - Signal and time limit.
   * @returns identifiers for {@link CreateModelOptions.baseModel}.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  async baseModels(options: CallOptions = {}): Promise<string[]> {
    return parseResponse(z.array(z.string()), await callJson(this.#api, "GET", "/v1/preview/base-models", options), "list of base models");
  }

  /**
   * Makes a base model ready: fetches it from the hub if necessary, checks its files, and with `id` gives it an identifier. Extension.
   *
   * @param source - Path of a directory or a `.gguf` file, `hf:<owner>/<name>[@revision]`, `ollama:<name>[:tag]`; without `id` also an
   *   identifier. A relative path is one of this process.
   * @param options - Identifier, signal and time limit.
   * @returns the name for `model` of chat requests and for {@link CreateModelOptions.baseModel}.
   * @throws HttpError `E_HTTP` for an error status: 404 for a base model that does not exist or is not allowed, 409 if the identifier belongs
   *   to another one, 422 for one that cannot be loaded.
   * @throws ArgumentError `E_ARGUMENT` for a malformed source, and for a relative path if the service runs on another machine.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const model = await service.addBaseModel("./SmolLM2-135M-Instruct.Q4_1.gguf");
   * const answer = await service.chat.completions.create({ model, messages: [{ role: "user", content: "hello" }] });
   * ```
   */
  addBaseModel(source: string, options: AddBaseModelOptions = {}): Promise<string> {
    return addBaseModel(this.#api, source, options);
  }

  /**
   * Returns the health report of the service, unvalidated. Extension.
   *
   * @param options - Signal and time limit.
   * @returns the parsed JSON; `healthReport` of `whetstone/schema` validates it.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  health(options: CallOptions = {}): Promise<unknown> {
    return callJson(this.#api, "GET", "/health", options);
  }

  /**
   * Returns the step of a model's newest checkpoint.
   *
   * @param modelId - ID of the model.
   * @param options - Signal and time limit.
   * @returns the step; 0 before the first checkpoint.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const step = await service.latestStep(model.id);
   * ```
   */
  async latestStep(modelId: string, options: CallOptions = {}): Promise<number> {
    const [newest] = await this.checkpoints.list(modelId, { ...options, order: "desc", max: 1 });
    return newest?.step ?? 0;
  }

  /**
   * Follows a job by its ID, from its first event to its last; see {@link Job.events}.
   *
   * @param jobId - ID of the job.
   * @param options - Signal, time limit, and the newest checkpoint before the job.
   * @returns the events; each iteration follows the job anew.
   * @throws JobFailedError `E_JOB_FAILED`, JobCancelledError `E_JOB_CANCELLED`, or JobTimeoutError `E_JOB_TIMEOUT` after `timeoutMs`.
   * @throws HttpError `E_HTTP` or ConnectionError `E_CONNECTION` after repeated failures; the signal's reason.
   * @example
   * ```ts
   * for await (const event of service.follow(job.id)) console.log(event.type);
   * ```
   */
  follow(jobId: string, options: FollowOptions = {}): AsyncIterable<JobEvent> {
    return this.#ports.followJob(this, jobId, options);
  }

  /**
   * Examines a batch as {@link Model.train} does. Sends no request.
   *
   * @param groups - Groups in the wire's form.
   * @param options - Relaxations that the job will use.
   * @returns the warnings.
   * @throws PreflightError `E_PREFLIGHT` if the batch cannot be trained.
   * @example
   * ```ts
   * const warnings = service.examineBatch(groups.map((group) => group.toJSON()));
   * ```
   */
  examineBatch(groups: readonly WireTrajectoryGroup[], options?: ExamineOptions): readonly BatchFinding[] {
    return this.#ports.examineBatch(groups, options);
  }

  /**
   * Closes the sockets and, if `connect` started it, the embedded service. Safe to call twice.
   *
   * @example
   * ```ts
   * import { connect } from "whetstone";
   *
   * const service = await connect();
   * await service.close();
   * ```
   */
  close(): Promise<void> {
    this.#closing ??= this.#api.transport.close().then(this.#onClose);
    return this.#closing;
  }

  /** Closes the connection at the end of an `await using` block; see {@link close}. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
