/**
 * Schemas of training jobs and their events; job-config.ts has the requests that create them.
 *
 * "Extension" marks routes and fields that this service adds to the interface of the hosted service.
 */

import { z } from "zod";
import { listOf, newestFirstQuery, uuid } from "./common.ts";

/** Schema of {@link CreatedJob}. */
export const createdJob = z.object({
  /** UUID that addresses the job in the job routes. */
  id: uuid,
});
/** Answer of the POSTs that create a job. @interface */
export type CreatedJob = z.infer<typeof createdJob>;

/** Schema of {@link JobStatus}. */
export const jobStatus = z.literal(["queued", "running", "succeeded", "failed", "cancelled"]);
/** State of a job. */
export type JobStatus = z.infer<typeof jobStatus>;

/** Schema of {@link JobType}. */
export const jobType = z.literal(["rl", "sft", "preference"]);
/** Kind of training of a job. `preference` is an extension. */
export type JobType = z.infer<typeof jobType>;

/** Schema of {@link TrainingJob}. */
export const trainingJob = z.looseObject({
  /** UUID that addresses the job in the job routes. */
  id: uuid,
  /** UUID of the trained model. */
  model_id: uuid.optional(),
  /** Kind of training. */
  type: jobType.optional(),
  /** State at the time of the request. */
  status: jobStatus.optional(),
  /** Priority among the queued jobs of the entity that owns the model; lower values run first. */
  priority: z.int().optional(),
  /** True for an unfinished job that does not run until it is resumed; absent for other jobs. */
  paused: z.literal(true).optional(),
  /** Time at which the service accepted the job, ISO 8601. */
  created_at: z.string().optional(),
  /** Start of the computation, ISO 8601; null before. */
  training_start: z.string().nullish(),
  /** End of the job in any final state, ISO 8601; null before. */
  training_end: z.string().nullish(),
  /** Cause of a failure; null otherwise, also for a cancelled job. */
  error_message: z.string().nullish(),
  /** Step of the checkpoint that the job created; null unless the job succeeded. */
  step: z.int().nullish(),
});
/**
 * A training job. The interface specifies only `id`; the other fields are extensions, named as in the hosted service's responses.
 *
 * @interface
 */
export type TrainingJob = z.infer<typeof trainingJob>;

/** Schema of {@link JobQuery}. */
export const jobQuery = newestFirstQuery.extend({
  /** Only jobs of this model. */
  model_id: uuid.optional(),
  /** Only jobs in this state. */
  status: jobStatus.optional(),
});
/** Query parameters of `GET /v1/preview/training-jobs`. Extension. @interface */
export type JobQuery = z.infer<typeof jobQuery>;

/** Schema of {@link TrainingJobList}. */
export const trainingJobList = listOf(trainingJob);
/** Answer of `GET /v1/preview/training-jobs`: a page of jobs, newest first. Extension. @interface */
export type TrainingJobList = z.infer<typeof trainingJobList>;

/** Schema of {@link JobEventType}. */
export const jobEventType = z.literal([
  "training_started",
  "gradient_step",
  "warning",
  "training_ended",
  "training_failed",
  "training_cancelled",
]);
/** Type of an event of a job. */
export type JobEventType = z.infer<typeof jobEventType>;

/** Schema of {@link JobEvent}. */
export const jobEvent = z.object({
  /** UUID. As the query parameter `after`, it selects the events that follow. */
  id: uuid,
  /** Type of the event, which determines the keys of `data`. */
  type: jobEventType,
  /** Values of the event by name. */
  data: z.record(z.string(), z.unknown()),
});
/**
 * Event of a job. The type determines `data`:
 *
 * - `training_started`: `num_sequences`, which is the number of gradient steps; the name is the hosted service's. In addition,
 *   - of an RL job: `warnings`, if the check of its groups before training found any;
 *   - of a fine-tuning job with a grader: `num_rows`;
 *   - of an SFT or preference job: the numbers of dropped examples and tokens, whose names begin with `num_dropped_`;
 *   - with validation data: `num_validation_trajectories` or `num_validation_pairs`;
 * - `gradient_step`: the metrics of the step by name, see `docs/reference/metrics.md`, all numbers;
 * - `warning` (extension): `code`, `message`, `value` and `threshold`;
 * - `training_ended`: the `step` of the new checkpoint;
 * - `training_cancelled` (extension): no keys. The event `training_failed` follows, because clients of the hosted service wait only for
 *   `training_ended` and `training_failed`;
 * - `training_failed`: `error_message`, and for a cancelled job `cancelled: true`.
 *
 * @interface
 */
export type JobEvent = z.infer<typeof jobEvent>;

/** Schema of {@link JobEventList}. */
export const jobEventList = listOf(jobEvent);
/** Answer of `GET /v1/preview/training-jobs/{id}/events`: a page of events, oldest first. @interface */
export type JobEventList = z.infer<typeof jobEventList>;

/** Schema of {@link TrainedTrajectory}. */
export const trainedTrajectory = z.looseObject({
  /** Index of the group in the request. */
  group: z.int().min(0),
  /** Index of the trajectory in its group. */
  trajectory: z.int().min(0),
  /** Trained turns in the order of the trajectory's choices: first the main history, then the additional histories. */
  turns: z.array(
    z.looseObject({
      /** Index among all choices of the trajectory, additional histories included. */
      turn: z.int().min(0),
      /** Advantage of the trained tokens, as used in the loss; their mean if they have different advantages (see `advantages`). */
      advantage: z.number(),
      /**
       * Advantage of each sampled token, as used in the loss, 0 for a token that is not trained. Only if the trained tokens have different
       * advantages.
       */
      advantages: z.array(z.number()).optional(),
      /** Log-probability of each sampled token under the weights before the step; null for a token that is not trained. */
      logprobs: z.array(z.number().nullable()),
    }),
  ),
});
/** Entry of a token report: advantages and log-probabilities of a trajectory's trained turns, as computed by the trainer. @interface */
export type TrainedTrajectory = z.infer<typeof trainedTrajectory>;

/** Schema of {@link TrainedTokens}. */
export const trainedTokens = z.looseObject({
  /** Type of the object in the wire format. */
  object: z.literal("list"),
  /** Trajectories with trained tokens, in the order of the request. */
  data: z.array(trainedTrajectory),
});
/**
 * Token report of an RL job created with `token_report: true`: the advantage and log-probability of every trained token. Answer of
 * `GET /v1/preview/training-jobs/{id}/tokens`. Extension.
 *
 * @interface
 */
export type TrainedTokens = z.infer<typeof trainedTokens>;

/** Schema of {@link DeleteJobResponse}. */
export const deleteJobResponse = z.object({
  /** UUID of the deleted job. */
  training_job_id: uuid,
  /** Number of events deleted with the job. */
  deleted_events: z.int().min(0),
  /** True if the job had a token report. */
  deleted_tokens: z.boolean(),
});
/** Answer of `DELETE /v1/preview/training-jobs/{id}`. Extension. @interface */
export type DeleteJobResponse = z.infer<typeof deleteJobResponse>;

/** Schema of {@link DeleteTokensResponse}. */
export const deleteTokensResponse = z.object({
  /** UUID of the job that had the token report. */
  training_job_id: uuid,
  /** Always true: a job without a token report is answered 404. */
  deleted_tokens: z.literal(true),
});
/** Answer of `DELETE /v1/preview/training-jobs/{id}/tokens`. Extension. @interface */
export type DeleteTokensResponse = z.infer<typeof deleteTokensResponse>;
