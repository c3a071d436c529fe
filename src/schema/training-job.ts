import { z } from "zod";
import { listOf, uuid } from "./common.ts";
import { trajectoryGroup } from "./trajectory.ts";

/**
 * `experimental_config` of an RL job. Null means unset. The names are the interface's, but for those marked
 * as extensions. What this build does not carry out is known by name and refused when it is set to anything but its neutral value.
 */
export const rlConfig = z.strictObject({
  /** @default 5e-6 */
  learning_rate: z.number().positive().nullish(),
  /** Clip below: ratios under `1 - epsilon`. @default 1 for CISPO, 0.2 for PPO */
  epsilon: z.number().min(0).nullish(),
  /** Clip above: ratios over `1 + epsilon_high`. @default 4 for CISPO, `epsilon` for PPO */
  epsilon_high: z.number().min(0).nullish(),
  /** PPO instead of CISPO. @default false */
  ppo: z.boolean().nullish(),
  /** Extension: the same choice by name. Must not contradict `ppo`. @default "cispo" */
  loss_fn: z.enum(["cispo", "ppo"]).nullish(),
  /** Divide advantages by the group's population deviation + 1e-6. @default true */
  scale_rewards: z.boolean().nullish(),
  /** Extension: other name of `scale_rewards`; must not contradict it. */
  normalize_advantages: z.boolean().nullish(),
  /** Extension: what a reward is compared with, the mean of its group or of the group's others. @default "mean" */
  advantage_baseline: z.enum(["mean", "leave_one_out"]).nullish(),
  /** Extension: the deviation that `scale_rewards` divides by; not where that is false. @default "population" */
  advantage_deviation: z.enum(["population", "sample"]).nullish(),
  /** Extension: what has the same total weight, each trajectory or each token. @default "trajectory_mean" */
  loss_reduction: z.enum(["trajectory_mean", "token_mean"]).nullish(),
  /** Extension: choices have a `reward` of their own, and every turn its own advantage. @default false */
  turn_rewards: z.boolean().nullish(),
  /** In [-1, 1]: positive shrinks negative advantages, negative shrinks positive ones. @default 0 */
  advantage_balance: z.number().min(-1).max(1).nullish(),
  /** Extension: clip of the global gradient norm; 0 = off. @default 0.1 */
  max_grad_norm: z.number().min(0).nullish(),
  /** Extension. @default 0 */
  weight_decay: z.number().min(0).nullish(),
  /** Extension. @default 0.9 */
  adam_beta1: z.number().min(0).lt(1).nullish(),
  /** Extension. @default 0.99 */
  adam_beta2: z.number().min(0).lt(1).nullish(),
  /** Extension: keep the trainer's log-probability and the advantage of every trained token, to be read from the job's `/tokens`. @default false */
  token_report: z.boolean().nullish(),
  /** What the importance ratio is taken over. @default "token" */
  importance_sampling_level: z.enum(["token", "sequence", "average", "geometric_average"]).nullish(),
  /** Subtract this times the log-ratio from each token's advantage. @default 0 */
  model_k2_tau: z.number().min(0).nullish(),
  /** Other name of `model_k2_tau`; must not contradict it. */
  kimi_k2_tau: z.number().min(0).nullish(),
  /** Tokens whose ratio lies outside the clip's range have no loss. @default false */
  mask_prob_ratio: z.boolean().nullish(),
  /** Upper bound of the ratio of tokens with a negative advantage. @default null, none */
  max_negative_advantage_importance_sampling_weight: z.number().positive().nullish(),
  /** Take the ratio against the weights before the step instead of the sampler's log-probabilities. @default false */
  precalculate_logprobs: z.boolean().nullish(),
  /** Extension: multiply each token's loss by its ratio, cut at this. @default null, off */
  truncated_importance_sampling: z.number().positive().nullish(),
  /** Extension: how the reference client computes it, where that differs from what it says. @default null */
  compat: z.enum(["art"]).nullish(),
  /** Extension: choices may come without log-probabilities; their ratio is 1. @default false */
  allow_training_without_logprobs: z.boolean().nullish(),
  /** Extension: penalty on the distance from a reference policy. @default 0 */
  kl_penalty_coef: z.number().min(0).nullish(),
  /** Extension: whose distance. Without effect while `kl_penalty_coef` is 0. @default "sample" */
  kl_penalty_source: z.enum(["current_learner", "sample"]).nullish(),
  /** Extension: the checkpoint to measure from. Excludes `kl_penalty_step_lag`. @default null, the base model */
  kl_penalty_reference_step: z.int().min(0).nullish(),
  /** Extension: measure from the checkpoint this many steps before the one the job starts from, step 0 at the least. @default null */
  kl_penalty_step_lag: z.int().min(1).nullish(),
  /** Not carried out yet. */
  kl_ref_adapter_path: z.string().nullish(),
  /** Not carried out yet. */
  logprob_calculation_chunk_size: z.int().min(1).nullish(),
  /** Not carried out yet: only 0. */
  num_trajectories_learning_rate_multiplier_power: z.number().nullish(),
  /** Not carried out yet. */
  packed_sequence_length: z.int().min(1).nullish(),
  /** Not carried out yet: only false. */
  plot_tensors: z.boolean().nullish(),
  /** Not carried out yet: only false. */
  scale_learning_rate_by_reward_std_dev: z.boolean().nullish(),
});
export type RlConfig = z.infer<typeof rlConfig>;

/** Body of `POST /v1/preview/training-jobs`. */
export const createRlJobRequest = z.strictObject({
  model_id: uuid,
  trajectory_groups: z.array(trajectoryGroup).min(1),
  experimental_config: rlConfig.nullish(),
});
export type CreateRlJobRequest = z.infer<typeof createRlJobRequest>;

/** `config` of an SFT job. */
export const sftConfig = z.strictObject({
  /** Trajectories per optimizer step. `"auto"` is 2. @default "auto" */
  batch_size: z.union([z.int().min(1), z.literal("auto")]).nullish(),
  /** One rate, or one per batch. Of a schedule, the highest. @default 5e-5 */
  learning_rate: z.union([z.number().positive(), z.array(z.number().min(0)).min(1)]).nullish(),
  /** Extension: which of a conversation's assistant turns are trained; the others are context. @default "all" */
  assistant_turns: z.enum(["all", "last"]).nullish(),
  /** Not carried out: only null or `{"enabled": false}`. */
  metric_logging: z.looseObject({ enabled: z.boolean().nullish() }).nullish(),
});
export type SftConfig = z.infer<typeof sftConfig>;

/** `experimental_config` of an SFT job: extensions. */
export const sftExperimentalConfig = z.strictObject({
  /** Passes over the data. @default 1 */
  epochs: z.int().min(1).max(1000).nullish(),
  /** Order of the rows; rows keep the file's order when null. @default null */
  shuffle_seed: z.int().nullish(),
  /** How the rate goes on after its warm-up, over all steps of the job. Needs one `learning_rate`. @default "constant" */
  learning_rate_schedule: z.enum(["constant", "linear", "cosine"]).nullish(),
  /** Optimizer steps in which the rate rises. Excludes `warmup_ratio`. @default 0 */
  warmup_steps: z.int().min(0).nullish(),
  /** The same as a share of all steps, rounded down. @default 0 */
  warmup_ratio: z.number().min(0).max(1).nullish(),
  /** Where the rate rises from, and falls to at the last step. Needs a warm-up or a schedule other than "constant". @default 0 */
  min_learning_rate: z.number().min(0).nullish(),
  /** Share of the examples that is not trained but measured, above 0 and below 1. Excludes `validation_data_url`. @default null, none */
  validation_split: z.number().gt(0).lt(1).nullish(),
  /** Examples to measure, an artifact like `training_data_url`. @default null, none */
  validation_data_url: z.string().min(1).nullish(),
  /** Optimizer steps between two measurements; there is one after the last step, too. @default null, after each epoch */
  validation_every: z.int().min(1).nullish(),
  /** @default 1 */
  max_grad_norm: z.number().min(0).nullish(),
  /** @default 0 */
  weight_decay: z.number().min(0).nullish(),
  /** @default 0.9 */
  adam_beta1: z.number().min(0).lt(1).nullish(),
  /** @default 0.99 */
  adam_beta2: z.number().min(0).lt(1).nullish(),
});
export type SftExperimentalConfig = z.infer<typeof sftExperimentalConfig>;

/** Body of `POST /v1/preview/sft-training-jobs`. */
export const createSftJobRequest = z.strictObject({
  model_id: uuid,
  /** `artifact:///entity/project/name:vN`; any scheme's prefix is read the same way, but `http`, `https` and `file` are refused. */
  training_data_url: z.string().min(1),
  config: sftConfig.nullish(),
  experimental_config: sftExperimentalConfig.nullish(),
});
export type CreateSftJobRequest = z.infer<typeof createSftJobRequest>;

/** Answer of both creating POSTs. */
export const createdJob = z.object({ id: uuid });
export type CreatedJob = z.infer<typeof createdJob>;

/** States of a job. */
export const jobStatus = z.enum(["queued", "running", "succeeded", "failed", "cancelled"]);
export type JobStatus = z.infer<typeof jobStatus>;

/** A training job. Only `id` is the interface's; the rest are extensions with the hosted service's names. */
export const trainingJob = z.looseObject({
  id: uuid,
  model_id: uuid.optional(),
  type: z.enum(["rl", "sft"]).optional(),
  status: jobStatus.optional(),
  created_at: z.string().optional(),
  training_start: z.string().nullish(),
  training_end: z.string().nullish(),
  error_message: z.string().nullish(),
  /** The checkpoint this job made, once it succeeded. */
  step: z.int().nullish(),
});
export type TrainingJob = z.infer<typeof trainingJob>;

/** Event types of a job. */
export const jobEventType = z.enum([
  "training_started",
  "gradient_step",
  "warning",
  "training_ended",
  "training_failed",
  "training_cancelled",
]);
export type JobEventType = z.infer<typeof jobEventType>;

/**
 * One event. `training_started` carries `num_sequences` (gradient steps to expect), `gradient_step` a flat map of
 * numbers, `warning` (an extension) a `code`, `message`, `value` and `threshold`, `training_ended` the new `step`, `training_failed` an `error_message`.
 * A cancelled job ends with `training_cancelled` (an extension), then `training_failed` with `cancelled: true`.
 */
export const jobEvent = z.object({ id: uuid, type: jobEventType, data: z.record(z.string(), z.unknown()) });
export type JobEvent = z.infer<typeof jobEvent>;

/** Answer of `GET /v1/preview/training-jobs/{id}/events`. */
export const jobEventList = listOf(jobEvent);
export type JobEventList = z.infer<typeof jobEventList>;

/** What the trainer made of one trajectory's turns: an entry of a job's `/tokens`. */
export const trainedTrajectory = z.looseObject({
  /** Index of the group in the job. */
  group: z.int().min(0),
  /** Index within the group. */
  trajectory: z.int().min(0),
  /** In the order of the trajectory's choices, those of additional histories after those of the main one. */
  turns: z.array(
    z.looseObject({
      /** Index of the choice. */
      turn: z.int().min(0),
      /** Of all its tokens, as it went into the loss. */
      advantage: z.number(),
      /** The trainer's log-probability of each sampled token, before the step. */
      logprobs: z.array(z.number()),
    }),
  ),
});
export type TrainedTrajectory = z.infer<typeof trainedTrajectory>;

/** Extension: answer of `GET /v1/preview/training-jobs/{id}/tokens`. */
export const trainedTokens = z.looseObject({ object: z.literal("list"), data: z.array(trainedTrajectory) });
export type TrainedTokens = z.infer<typeof trainedTokens>;

/** Answer of `DELETE /v1/preview/training-jobs/{id}`. Extension. */
export const deleteJobResponse = z.object({
  training_job_id: uuid,
  deleted_events: z.int().min(0),
  /** True if the job had a token report. */
  deleted_tokens: z.boolean(),
});
export type DeleteJobResponse = z.infer<typeof deleteJobResponse>;

/** Answer of `DELETE /v1/preview/training-jobs/{id}/tokens`. Extension. */
export const deleteTokensResponse = z.object({ training_job_id: uuid, deleted_tokens: z.literal(true) });
export type DeleteTokensResponse = z.infer<typeof deleteTokensResponse>;
