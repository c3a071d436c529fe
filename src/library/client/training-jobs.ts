/** The `trainingJobs` resource of the client: creates, lists and cancels jobs, and reads their events and token reports. */
import { randomUUID } from "node:crypto";
import {
  createdJob,
  deleteJobResponse,
  deleteTokensResponse,
  jobEventList,
  trainedTokens,
  trainingJob,
  trainingJobList,
  type CreatePreferenceJobRequest,
  type CreateRlJobRequest,
  type CreateSftJobRequest,
  type JobEventList,
  type JobStatus,
  type TrainedTrajectory,
} from "../../base/schema/index.ts";
import { callCreate, callJson, headersTimeoutFor, LONG_CALL_MS, type Api, type CallOptions, type CreateOptions } from "./api.ts";
import { fromWire, parseFields, type TrainingJobInfo } from "./wire.ts";
import { parseResponse } from "./options.ts";
import { allPages, type ListOptions } from "./pages.ts";

/** Filters and number of the jobs that `trainingJobs.list` returns. */
export interface ListJobsOptions extends ListOptions {
  /** Only jobs of this model. @default all */
  readonly modelId?: string | undefined;
  /** Only jobs in this state. @default all */
  readonly status?: JobStatus | undefined;
}

/** Options of `trainingJobs.events`: position and size of the page, and long polling. */
export interface ListEventsOptions extends CallOptions {
  /** Id of the last event already received. @default the page starts with the first event */
  readonly after?: string | undefined;
  /** Events per page, 1 to 100. @default 100 */
  readonly limit?: number | undefined;
  /** Extension: long polling. The service holds the response up to this many seconds until there is an event. @default not sent */
  readonly waitSeconds?: number | undefined;
}

/**
 * The `trainingJobs` resource, with bodies as on the wire. `model.train`, `model.trainSft` and `model.trainPreferences` are the high-level equivalents.
 *
 * @example
 * ```ts
 * const { id } = await service.trainingJobs.createRl({
 *   model_id: model.id,
 *   trajectory_groups: groups.map((group) => group.toJSON()),
 *   experimental_config: { token_report: true },
 * });
 * const { data, last_id } = await service.trainingJobs.events(id, { waitSeconds: 20 });
 * const { status } = await service.trainingJobs.get(id);
 * const failed = await service.trainingJobs.list({ modelId: model.id, status: "failed", max: 10 });
 * const trajectories = await service.trainingJobs.tokens(id);
 * await service.trainingJobs.deleteTokens(id);
 * await service.trainingJobs.delete(id);
 * ```
 */
export interface TrainingJobs {
  /**
   * Lists jobs, fetching all pages. Extension.
   *
   * @param options - Filters, number, signal and time limit.
   * @returns the jobs, newest first.
   * @throws HttpError `E_HTTP` for an error status, 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  list(options?: ListJobsOptions): Promise<TrainingJobInfo[]>;
  /**
   * Returns the current state of a job.
   *
   * @param jobId - ID of the job.
   * @param options - Signal and time limit.
   * @returns the state; a service that implements only the interface fills in just `id`.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  get(jobId: string, options?: CallOptions): Promise<TrainingJobInfo>;
  /**
   * Creates an RL job of one step. Sends an `Idempotency-Key`, so that a repeated request creates one job.
   *
   * If the service does not honor keys, the request is not repeated after an ambiguous failure: check the model's checkpoints before
   * training the same batch again.
   *
   * @param body - Model, groups and settings.
   * @param options - Signal, time limit and idempotency key.
   * @returns the ID of the job.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  createRl(body: CreateRlJobRequest, options?: CreateOptions): Promise<Pick<TrainingJobInfo, "id">>;
  /**
   * Creates an SFT job over an uploaded artifact, with an idempotency key as {@link createRl}.
   *
   * @param body - Model, `artifact:///` address and settings.
   * @param options - Signal, time limit and idempotency key.
   * @returns the ID of the job.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * await service.trainingJobs.createSft({ model_id: model.id, training_data_url: "artifact:///local/demo/examples:v0" });
   * ```
   */
  createSft(body: CreateSftJobRequest, options?: CreateOptions): Promise<Pick<TrainingJobInfo, "id">>;
  /**
   * Creates a preference job over an uploaded artifact, with an idempotency key as {@link createRl}. Extension.
   *
   * @param body - Model, `artifact:///` address and settings.
   * @param options - Signal, time limit and idempotency key.
   * @returns the ID of the job.
   * @throws HttpError `E_HTTP` for an error status, 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * await service.trainingJobs.createPreference({ model_id: model.id, training_data_url: "artifact:///local/demo/pairs:v0" });
   * ```
   */
  createPreference(body: CreatePreferenceJobRequest, options?: CreateOptions): Promise<Pick<TrainingJobInfo, "id">>;
  /**
   * Cancels an unfinished job; a running job stops at its next step. Extension.
   *
   * @param jobId - ID of the job.
   * @param options - Signal and time limit.
   * @returns the state of the job.
   * @throws HttpError `E_HTTP` for an error status, 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const { status } = await service.trainingJobs.cancel(job.id);
   * ```
   */
  cancel(jobId: string, options?: CallOptions): Promise<TrainingJobInfo>;
  /**
   * Returns the trainer's values of every trained token of a finished RL job that was created with `tokenReport: true`. Extension.
   *
   * @param jobId - ID of the job.
   * @param options - Signal and time limit.
   * @returns an entry per trajectory.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  tokens(jobId: string, options?: CallOptions): Promise<readonly TrainedTrajectory[]>;
  /**
   * Deletes a finished job with its events and token report; its checkpoint stays. Extension.
   *
   * @param jobId - ID of the job.
   * @param options - Signal and time limit.
   * @throws HttpError `E_HTTP` for an error status, 409 for an unfinished job: cancel it first.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  delete(jobId: string, options?: CallOptions): Promise<void>;
  /**
   * Deletes only the token report of a finished job. Extension.
   *
   * @param jobId - ID of the job.
   * @param options - Signal and time limit.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  deleteTokens(jobId: string, options?: CallOptions): Promise<void>;
  /**
   * Returns one page of events in the wire's form. `pollJob` follows the events of a job. Extension.
   *
   * @param jobId - ID of the job.
   * @param options - Position and size of the page, long polling, signal and time limit.
   * @returns the page; `last_id` is the `after` of the next one.
   * @throws HttpError `E_HTTP` for an error status, 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  events(jobId: string, options?: ListEventsOptions): Promise<JobEventList>;
}

/** Creates the `trainingJobs` resource of a connection. */
export function trainingJobsResource(api: Api): TrainingJobs {
  const path = (jobId: string) => `/v1/preview/training-jobs/${encodeURIComponent(jobId)}`;
  const create = async (route: string, body: unknown, { idempotencyKey = randomUUID(), ...options }: CreateOptions) => {
    // Not repeatable: two jobs with the same batch would train it twice.
    const request = { ...options, json: body, idempotencyKey, isRepeatable: false, headersTimeoutMs: LONG_CALL_MS };
    return parseResponse(createdJob, await callCreate(api, route, request), "created job");
  };
  return {
    async list({ modelId, status, ...options } = {}) {
      const list = { schema: trainingJobList, query: { model_id: modelId, status }, itemsName: "jobs" };
      return (await allPages(api, "/v1/preview/training-jobs", list, options)).map((each) => fromWire(trainingJob, each));
    },
    get: async (jobId, options = {}) => parseFields(trainingJob, await callJson(api, "GET", path(jobId), options), "training job"),
    createRl: (body, options = {}) => create("/v1/preview/training-jobs", body, options),
    createSft: (body, options = {}) => create("/v1/preview/sft-training-jobs", body, options),
    createPreference: (body, options = {}) => create("/v1/preview/preference-training-jobs", body, options),
    cancel: async (jobId, options = {}) => {
      // Idempotent: cancelling twice has the effect of cancelling once.
      const answer = await callJson(api, "POST", `${path(jobId)}/cancel`, { ...options, retry: "idempotent" });
      return parseFields(trainingJob, answer, "training job");
    },
    tokens: async (jobId, options = {}) =>
      parseResponse(trainedTokens, await callJson(api, "GET", `${path(jobId)}/tokens`, options), "token report").data,
    delete: async (jobId, options = {}) => {
      parseResponse(deleteJobResponse, await callJson(api, "DELETE", path(jobId), options), "answer to the deletion of a job");
    },
    deleteTokens: async (jobId, options = {}) => {
      const answer = await callJson(api, "DELETE", `${path(jobId)}/tokens`, options);
      parseResponse(deleteTokensResponse, answer, "answer to the deletion of a token report");
    },
    events: async (jobId, { after, limit = 100, waitSeconds, ...options } = {}) => {
      const headersTimeoutMs = headersTimeoutFor(waitSeconds ?? 0);
      const request = { ...options, query: { after, limit, wait: waitSeconds }, headersTimeoutMs };
      return parseResponse(jobEventList, await callJson(api, "GET", `${path(jobId)}/events`, request), "list of job events");
    },
  };
}
