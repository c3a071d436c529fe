/** Schemas of fine-tuning jobs, their events and checkpoints, in the format of the OpenAI API. */

import { z } from "zod";
import { jsonObject, listOf, newestFirstQuery } from "./common.ts";
import { grader } from "./graders.ts";

/** Returns the schema of a number that the service can choose. Null means unset, like an absent field. */
const orAuto = <T extends z.ZodType>(schema: T) => z.union([schema, z.literal("auto")]).nullish();

/** Schema of {@link SupervisedHyperparameters}. */
export const supervisedHyperparameters = z.strictObject({
  /** Examples per optimizer step. `"auto"`: 0.2 % of the examples, 1 to 256. @default "auto" */
  batch_size: orAuto(z.int().min(1).max(1_000_000)),
  /** Factor of the default learning rate. `"auto"` is 1. @default "auto" */
  learning_rate_multiplier: orAuto(z.number().positive().max(1000)),
  /** Passes over the data, 1 to 1000. `"auto"`: 3, or as many as give 100 to 25,000 examples in total, 1 to 25. @default "auto" */
  n_epochs: orAuto(z.int().min(1).max(1000)),
});
/** Hyperparameters of a supervised fine-tuning job. @interface */
export type SupervisedHyperparameters = z.infer<typeof supervisedHyperparameters>;

/** Schema of {@link DpoHyperparameters}. */
export const dpoHyperparameters = supervisedHyperparameters.extend({
  /** Scale of the log-ratios to the model that the job starts from. `"auto"` is 0.1. @default "auto" */
  beta: orAuto(z.number().positive().max(1000)),
});
/** Hyperparameters of a fine-tuning job on preferences. @interface */
export type DpoHyperparameters = z.infer<typeof dpoHyperparameters>;

/** Schema of {@link ReinforcementHyperparameters}. */
export const reinforcementHyperparameters = z.strictObject({
  /** Rows per optimizer step. `"auto"`: 16, at most the number of rows. @default "auto" */
  batch_size: orAuto(z.int().min(1).max(100_000)),
  /** Samples per row: 8 times this factor, rounded, 2 to 512. `"auto"` is 1. @default "auto" */
  compute_multiplier: orAuto(z.number().min(0.25).max(64)),
  /** Optimizer steps between two validations. `"auto"`: a tenth of the steps. @default "auto" */
  eval_interval: orAuto(z.int().min(1).max(1_000_000)),
  /** Samples per row of a validation, 1 to 512. `"auto"` is 1. @default "auto" */
  eval_samples: orAuto(z.int().min(1).max(512)),
  /** Factor of the default learning rate. `"auto"` is 1. @default "auto" */
  learning_rate_multiplier: orAuto(z.number().positive().max(1000)),
  /** Passes over the data, 1 to 1000. `"auto"` as for supervised jobs. @default "auto" */
  n_epochs: orAuto(z.int().min(1).max(1000)),
  /** Effort of the answers, for models whose chat template has it. `"default"` leaves it to the template. @default "default" */
  reasoning_effort: z.literal(["default", "low", "medium", "high"]).nullish(),
});
/** Hyperparameters of a reinforcement job. @interface */
export type ReinforcementHyperparameters = z.infer<typeof reinforcementHyperparameters>;

/** Schema of {@link FineTuningMethod}. */
export const fineTuningMethod = z.strictObject({
  /** Method of training. */
  type: z.literal(["supervised", "dpo", "reinforcement"]),
  /** Settings of the method `supervised`. */
  supervised: z
    .strictObject({
      /** Hyperparameters. @default "auto" for all of them */
      hyperparameters: supervisedHyperparameters.nullish(),
    })
    .nullish(),
  /** Settings of the method `dpo`. */
  dpo: z
    .strictObject({
      /** Hyperparameters. @default "auto" for all of them */
      hyperparameters: dpoHyperparameters.nullish(),
    })
    .nullish(),
  /** Settings of the method `reinforcement`. */
  reinforcement: z
    .strictObject({
      /** Grader whose score is the reward. */
      grader,
      /** Hyperparameters. @default "auto" for all of them */
      hyperparameters: reinforcementHyperparameters.nullish(),
      /** Form of the answers, as `response_format` of chat completions. @default null, any text */
      response_format: jsonObject.nullish(),
    })
    .nullish(),
});
/** Method of a fine-tuning job with its settings. @interface */
export type FineTuningMethod = z.infer<typeof fineTuningMethod>;

/** Labels of a job: at most 16, with keys of at most 64 and values of at most 512 characters. */
const labels = z
  .record(z.string().min(1).max(64), z.string().max(512))
  .refine((value) => Object.keys(value).length <= 16, "Expected at most 16 keys");

/** Schema of {@link CreateFineTuningJobRequest}. */
export const createFineTuningJobRequest = z.strictObject({
  /** Model to start from: a base model, a fine-tuned model, a checkpoint, or `entity/project/name` with an optional `:stepN`. */
  model: z.string().min(1),
  /** Identifier of an uploaded file with the training data. */
  training_file: z.string().min(1),
  /** Identifier of an uploaded file with the validation data. @default null, none */
  validation_file: z.string().min(1).nullish(),
  /** Method of training. @default supervised */
  method: fineTuningMethod.nullish(),
  /** Deprecated form of `method.supervised.hyperparameters`. */
  hyperparameters: supervisedHyperparameters.nullish(),
  /** Part of the name of the model: 1 to 64 letters, digits, `.`, `_` or `-`, without a dot at the start. @default null, none */
  suffix: z
    .string()
    .regex(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/, "must be 1 to 64 letters, digits, '.', '_' or '-', and not start with a dot")
    .nullish(),
  /** Seed of the order of the examples and of a new adapter, 0 to 2,147,483,647. @default a random one */
  seed: z.int().min(0).max(2_147_483_647).nullish(),
  /** Labels of the job: at most 16, with keys of at most 64 and values of at most 512 characters. @default null, none */
  metadata: labels.nullish(),
  /** Not supported: only null or an empty list. */
  integrations: z.array(z.looseObject({})).nullish(),
});
/** Body of `POST /v1/fine_tuning/jobs`. @interface */
export type CreateFineTuningJobRequest = z.infer<typeof createFineTuningJobRequest>;

/** Hyperparameters of a job, with the numbers that the service chose for `"auto"`. */
const resolvedHyperparameters = z.object({
  /** Examples per optimizer step. */
  batch_size: z.int(),
  /** Factor of the default learning rate. */
  learning_rate_multiplier: z.number(),
  /** Passes over the data. */
  n_epochs: z.int(),
});

/** Hyperparameters of a reinforcement job, with the numbers that the service chose for `"auto"`. */
const resolvedReinforcementHyperparameters = resolvedHyperparameters.extend({
  /** Factor of the samples per row. */
  compute_multiplier: z.number(),
  /** Optimizer steps between two validations. */
  eval_interval: z.int(),
  /** Samples per row of a validation. */
  eval_samples: z.int(),
  /** Effort of the answers. */
  reasoning_effort: z.literal(["default", "low", "medium", "high"]),
});

/** Schema of {@link FineTuningJob}. */
export const fineTuningJob = z.object({
  /** Identifier, `ftjob-…`. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("fine_tuning.job"),
  /** Time of the creation in seconds since 1970. */
  created_at: z.int(),
  /** End of the job in seconds since 1970; null before. */
  finished_at: z.int().nullable(),
  /** Estimated end in seconds since 1970, from the durations of the latest steps; null while no step is measured. */
  estimated_finish: z.int().nullable(),
  /** State. A paused job is `queued`. */
  status: z.literal(["queued", "running", "succeeded", "failed", "cancelled"]),
  /** Model to start from, as in the request. */
  model: z.string(),
  /** Name of the new model, `ft:…`; null before the job has succeeded. */
  fine_tuned_model: z.string().nullable(),
  /** Owner of the job, always `local`. */
  organization_id: z.string(),
  /** Identifier of the file with the training data. */
  training_file: z.string(),
  /** Identifier of the file with the validation data. */
  validation_file: z.string().nullable(),
  /** Identifier of the file with the metrics of each step; empty before the job has succeeded. */
  result_files: z.array(z.string()),
  /** Tokens of the processed examples over all epochs; null before the job has succeeded. */
  trained_tokens: z.int().nullable(),
  /** Cause of a failure; null for every other state. */
  error: z
    .object({
      /** Kind of the failure. */
      code: z.string(),
      /** Description of the failure. */
      message: z.string(),
      /** Field of the request that caused it, or null. */
      param: z.string().nullable(),
    })
    .nullable(),
  /** Hyperparameters, with the numbers that the service chose. */
  hyperparameters: resolvedHyperparameters,
  /** Method of training with its settings, with the numbers that the service chose. */
  method: z.discriminatedUnion("type", [
    z.object({
      /** Method of training. */
      type: z.literal("supervised"),
      /** Settings of the method. */
      supervised: z.object({
        /** Hyperparameters, with the numbers that the service chose. */
        hyperparameters: resolvedHyperparameters,
      }),
    }),
    z.object({
      /** Method of training. */
      type: z.literal("dpo"),
      /** Settings of the method. */
      dpo: z.object({
        /** Hyperparameters, with the numbers that the service chose. */
        hyperparameters: resolvedHyperparameters.extend({
          /** Scale of the log-ratios to the model that the job started from. */
          beta: z.number(),
        }),
      }),
    }),
    z.object({
      /** Method of training. */
      type: z.literal("reinforcement"),
      /** Settings of the method. */
      reinforcement: z.object({
        /** Grader, with defaults. */
        grader,
        /** Hyperparameters, with the numbers that the service chose. */
        hyperparameters: resolvedReinforcementHyperparameters,
        /** Form of the answers; absent for any text. */
        response_format: jsonObject.optional(),
      }),
    }),
  ]),
  /** Seed of the job. */
  seed: z.int(),
  /** Labels of the job. */
  metadata: z.record(z.string(), z.string()).nullable(),
  /** Always empty. */
  integrations: z.array(z.never()),
  /** Extension: UUID of the training job that runs the fine-tuning job. */
  training_job_id: z.string(),
});
/** State and settings of a job that trains a new model on an uploaded file. @interface */
export type FineTuningJob = z.infer<typeof fineTuningJob>;

/** Schema of {@link FineTuningJobQuery}. */
export const fineTuningJobQuery = newestFirstQuery.extend({
  /** Labels of the listed jobs, as `metadata[key]=value`; `null` or empty for jobs without labels. */
  metadata: z.union([z.literal(["null", ""]), z.record(z.string(), z.string())]).optional(),
});
/** Query parameters of `GET /v1/fine_tuning/jobs`. @interface */
export type FineTuningJobQuery = z.infer<typeof fineTuningJobQuery>;

/** Schema of {@link FineTuningJobList}. */
export const fineTuningJobList = listOf(fineTuningJob);
/** Answer of `GET /v1/fine_tuning/jobs`. @interface */
export type FineTuningJobList = z.infer<typeof fineTuningJobList>;

/** Schema of {@link FineTuningJobEvent}. */
export const fineTuningJobEvent = z.object({
  /** Identifier, `ftevent-…`. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("fine_tuning.job.event"),
  /** Time of the event in seconds since 1970. */
  created_at: z.int(),
  /** Severity. */
  level: z.literal(["info", "warn", "error"]),
  /** Description of the event. */
  message: z.string(),
  /** `metrics` for an optimizer step, `message` for every other event. */
  type: z.literal(["message", "metrics"]),
  /** Values of the event by name; of a step: `step`, `total_steps`, `train_loss`, and the validation of the step if there was one. */
  data: z.record(z.string(), z.unknown()),
});
/** Event of a fine-tuning job. @interface */
export type FineTuningJobEvent = z.infer<typeof fineTuningJobEvent>;

/** Schema of {@link FineTuningJobEventList}. */
export const fineTuningJobEventList = listOf(fineTuningJobEvent);
/** Answer of `GET /v1/fine_tuning/jobs/{fine_tuning_job_id}/events`. @interface */
export type FineTuningJobEventList = z.infer<typeof fineTuningJobEventList>;

/** Schema of {@link FineTuningCheckpointMetrics}. */
export const fineTuningCheckpointMetrics = z.object({
  /** Number of the optimizer step. */
  step: z.int(),
  /** Loss on the batch of the step. */
  train_loss: z.number(),
  /** Loss on the validation data after the step. */
  valid_loss: z.number().optional(),
  /** Fraction of the validation tokens that the model predicts as the most likely ones. */
  valid_mean_token_accuracy: z.number().optional(),
  /** Equal to `valid_loss`: every validation reads all of the data. */
  full_valid_loss: z.number().optional(),
  /** Equal to `valid_mean_token_accuracy`. */
  full_valid_mean_token_accuracy: z.number().optional(),
  /** Extension: mean reward of the rollouts of the step, of a reinforcement job. */
  train_mean_reward: z.number().optional(),
  /** Extension: mean reward on the validation data after the step, of a reinforcement job. */
  full_valid_mean_reward: z.number().optional(),
  /** Extension: mean number of sampled tokens of the rollouts of the step, of a reinforcement job. */
  completion_tokens_mean: z.number().optional(),
});
/** Losses and accuracies at the optimizer step of a checkpoint. @interface */
export type FineTuningCheckpointMetrics = z.infer<typeof fineTuningCheckpointMetrics>;

/** Schema of {@link FineTuningJobCheckpoint}. */
export const fineTuningJobCheckpoint = z.object({
  /** Identifier, `ftckpt-…`. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("fine_tuning.job.checkpoint"),
  /** Time of the creation in seconds since 1970. */
  created_at: z.int(),
  /** Name that requests sample the checkpoint by. */
  fine_tuned_model_checkpoint: z.string(),
  /** Identifier of the fine-tuning job. */
  fine_tuning_job_id: z.string(),
  /** Metrics of the step. */
  metrics: fineTuningCheckpointMetrics,
  /** Number of the optimizer step in the job. */
  step_number: z.int(),
});
/** Checkpoint of a fine-tuning job. @interface */
export type FineTuningJobCheckpoint = z.infer<typeof fineTuningJobCheckpoint>;

/** Schema of {@link FineTuningJobCheckpointList}. */
export const fineTuningJobCheckpointList = listOf(fineTuningJobCheckpoint);
/** Answer of `GET /v1/fine_tuning/jobs/{fine_tuning_job_id}/checkpoints`. @interface */
export type FineTuningJobCheckpointList = z.infer<typeof fineTuningJobCheckpointList>;
