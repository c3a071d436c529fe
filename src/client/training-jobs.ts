import { randomUUID } from "node:crypto";
import {
  createdJob,
  deleteJobResponse,
  deleteTokensResponse,
  jobEventList,
  trainedTokens,
  trainingJob,
  type CreateRlJobRequest,
  type CreateSftJobRequest,
  type JobEventList,
  type TrainedTrajectory,
} from "../schema/index.ts";
import { callCreate, callJson, LONG_CALL_MS, type Api, type CallOptions, type CreateOptions } from "./api.ts";
import { parseAnswer, trainingJobFromWire, type TrainingJobInfo } from "./wire.ts";

/** Options of `trainingJobs.events`. */
export interface ListEventsOptions extends CallOptions {
  /** Id of the last event already seen. */
  readonly after?: string | undefined;
  /** 1 to 100. @default 100 */
  readonly limit?: number | undefined;
  /** Extension: let the service hold the answer up to this many seconds until there is an event. @default not sent */
  readonly waitSeconds?: number | undefined;
}

/** The `trainingJobs` resource: the wire's own bodies. `model.train` and `model.trainSft` are the friendly way. */
export interface TrainingJobs {
  get(jobId: string, options?: CallOptions): Promise<TrainingJobInfo>;
  /**
   * One RL step. Sends an `Idempotency-Key`, so that a repeated request makes one job. A service that does not honour keys is
   * not asked again after an unclear failure: see the model's checkpoints before you train the same batch again.
   */
  createRl(body: CreateRlJobRequest, options?: CreateOptions): Promise<{ readonly id: string }>;
  /** An SFT job over an uploaded artifact. */
  createSft(body: CreateSftJobRequest, options?: CreateOptions): Promise<{ readonly id: string }>;
  /** Extension: ends a job that is not over; a running one stops at its next step. */
  cancel(jobId: string, options?: CallOptions): Promise<TrainingJobInfo>;
  /** Extension: what the trainer made of every trained token, of an RL job that is over and was created with `tokenReport: true`. */
  tokens(jobId: string, options?: CallOptions): Promise<readonly TrainedTrajectory[]>;
  /**
   * Extension: deletes a job that is over with its events and token report; its checkpoint stays.
   *
   * @throws HttpError with status 409 for a job that is not over: cancel it first.
   */
  delete(jobId: string, options?: CallOptions): Promise<void>;
  /** Extension: deletes the token report of a job that is over, and nothing else. */
  deleteTokens(jobId: string, options?: CallOptions): Promise<void>;
  /** Extension: one page of events, in the wire's form. `pollJob` follows them. */
  events(jobId: string, options?: ListEventsOptions): Promise<JobEventList>;
}

export function trainingJobsResource(api: Api): TrainingJobs {
  const path = (jobId: string) => `/v1/preview/training-jobs/${encodeURIComponent(jobId)}`;
  const create = async (route: string, body: unknown, { idempotencyKey = randomUUID(), ...options }: CreateOptions) => {
    // Two jobs of one batch would train it twice.
    const answer = await callCreate(api, route, { ...options, json: body, idempotencyKey, headersTimeoutMs: LONG_CALL_MS }, false);
    return parseAnswer(createdJob, answer, "created job");
  };
  return {
    get: async (jobId, options = {}) =>
      trainingJobFromWire(parseAnswer(trainingJob, await callJson(api, "GET", path(jobId), options), "training job")),
    createRl: (body, options = {}) => create("/v1/preview/training-jobs", body, options),
    createSft: (body, options = {}) => create("/v1/preview/sft-training-jobs", body, options),
    cancel: async (jobId, options = {}) => {
      // Cancelling twice is cancelling once.
      const answer = await callJson(api, "POST", `${path(jobId)}/cancel`, { ...options, retry: "idempotent" });
      return trainingJobFromWire(parseAnswer(trainingJob, answer, "training job"));
    },
    tokens: async (jobId, options = {}) =>
      parseAnswer(trainedTokens, await callJson(api, "GET", `${path(jobId)}/tokens`, options), "token report").data,
    delete: async (jobId, options = {}) => {
      parseAnswer(deleteJobResponse, await callJson(api, "DELETE", path(jobId), options), "answer to the deletion of a job");
    },
    deleteTokens: async (jobId, options = {}) => {
      const answer = await callJson(api, "DELETE", `${path(jobId)}/tokens`, options);
      parseAnswer(deleteTokensResponse, answer, "answer to the deletion of a token report");
    },
    events: async (jobId, { after, limit = 100, waitSeconds, ...options } = {}) => {
      const headersTimeoutMs = 60_000 + (waitSeconds ?? 0) * 1000;
      const answer = await callJson(api, "GET", `${path(jobId)}/events`, {
        ...options,
        query: { after, limit, wait: waitSeconds },
        headersTimeoutMs,
      });
      return parseAnswer(jobEventList, answer, "list of job events");
    },
  };
}
