/**
 * Schemas of the requests that create training jobs, with their configuration.
 *
 * "Extension" marks routes and fields that this service adds to the interface that it implements.
 */

import { z } from "zod";
import { uuid } from "./common.ts";
import { storedRollout } from "./rollout-plan.ts";
import { trajectory, trajectoryGroup } from "./trajectory.ts";

/** Schema of the priority of a job, shared by all kinds of jobs. */
const priority = z.int().min(-1000).max(1000).nullish();

/** Schema of {@link RlConfig}. */
export const rlConfig = z.strictObject({
  /** Learning rate. @default 5e-6 */
  learning_rate: z.number().positive().nullish(),
  /** Lower clip distance: ratios below `1 - epsilon` are clipped. @default 1 for CISPO, 0.2 for PPO */
  epsilon: z.number().min(0).nullish(),
  /** Upper clip distance: ratios above `1 + epsilon_high` are clipped. @default 4 for CISPO, `epsilon` for PPO */
  epsilon_high: z.number().min(0).nullish(),
  /** Use PPO instead of CISPO. @default false */
  ppo: z.boolean().nullish(),
  /** Extension: loss by name; must not contradict `ppo`. @default "cispo" */
  loss_fn: z.literal(["cispo", "ppo"]).nullish(),
  /** Divide advantages by the population standard deviation of the group's rewards + 1e-6. @default true */
  scale_rewards: z.boolean().nullish(),
  /** Extension: alias of `scale_rewards`; must not contradict it. */
  normalize_advantages: z.boolean().nullish(),
  /** Extension: baseline subtracted from a reward, the mean of its group or of the group's other rewards. @default "mean" */
  advantage_baseline: z.literal(["mean", "leave_one_out"]).nullish(),
  /** Extension: standard deviation by which `scale_rewards` divides; rejected if `scale_rewards` is false. @default "population" */
  advantage_deviation: z.literal(["population", "sample"]).nullish(),
  /**
   * Extension: set of tokens over which the advantages of a batch are normalized: the whole batch, or all groups with the same value of the
   * metadata entry `environment`. Excludes `loss_reduction: "constant"`. @default "batch"
   */
  advantage_scope: z.literal(["batch", "environment"]).nullish(),
  /**
   * Extension: unit of equal total weight, each trajectory or each token. `"constant"` divides the sum over all tokens by the number of
   * trajectories times `loss_normalizer`, and does not normalize advantages over the batch. @default "trajectory_mean"
   */
  loss_reduction: z.literal(["trajectory_mean", "token_mean", "constant"]).nullish(),
  /** Extension: divisor of `loss_reduction: "constant"` in tokens, such as the max completion length. Required with it, else rejected. */
  loss_normalizer: z.number().positive().nullish(),
  /** Extension: coefficient of the entropy bonus that is subtracted from the loss of each token. @default 0 */
  entropy_coef: z.number().min(0).nullish(),
  /**
   * Extension: do not train trajectories with a turn whose `finish_reason` is `length`; their rewards still count in the baseline. @default
   * false
   */
  mask_truncated: z.boolean().nullish(),
  /** Extension: use the `reward` of each choice, with one advantage per turn. @default false */
  turn_rewards: z.boolean().nullish(),
  /** Advantage balance in [-1, 1]: positive values shrink negative advantages, negative values shrink positive advantages. @default 0 */
  advantage_balance: z.number().min(-1).max(1).nullish(),
  /** Extension: max global gradient norm; 0 = no clipping. @default 0.1 */
  max_grad_norm: z.number().min(0).nullish(),
  /** Extension: weight decay of AdamW. @default 0 */
  weight_decay: z.number().min(0).nullish(),
  /** Extension: first-moment decay of AdamW. @default 0.9 */
  adam_beta1: z.number().min(0).lt(1).nullish(),
  /** Extension: second-moment decay of AdamW. @default 0.99 */
  adam_beta2: z.number().min(0).lt(1).nullish(),
  /**
   * Extension: store the trainer's log-probability and the advantage of every trained token, available at the job's `/tokens`. @default
   * false
   */
  token_report: z.boolean().nullish(),
  /**
   * Extension: priority among the queued jobs of the entity, from -1000 to 1000; lower values run first. Does not change the order of the
   * jobs of one model, which is the order of creation. @default 0
   */
  priority,
  /** Level of the importance ratio. @default "token" */
  importance_sampling_level: z.literal(["token", "sequence", "average", "geometric_average"]).nullish(),
  /** Coefficient of the log-ratio subtracted from each token's advantage. @default 0 */
  model_k2_tau: z.number().min(0).nullish(),
  /** Alias of `model_k2_tau`; must not contradict it. */
  kimi_k2_tau: z.number().min(0).nullish(),
  /** Exclude tokens with a ratio outside the clip range from the loss. @default false */
  mask_prob_ratio: z.boolean().nullish(),
  /** Upper bound of the ratio of tokens with a negative advantage. @default null, none */
  max_negative_advantage_importance_sampling_weight: z.number().positive().nullish(),
  /** Compute the ratio against the weights before the step instead of the sampler's log-probabilities. @default false */
  precalculate_logprobs: z.boolean().nullish(),
  /** Extension: upper bound of the importance ratio by which each token's loss is multiplied. @default null, off */
  truncated_importance_sampling: z.number().positive().nullish(),
  /** Extension: `"art"` reproduces the computation of OpenPipe ART where it differs from ART's documentation. @default null */
  compat: z.literal("art").nullish(),
  /** Extension: accept choices without log-probabilities; their ratio is 1. @default false */
  allow_training_without_logprobs: z.boolean().nullish(),
  /** Extension: coefficient of the KL penalty towards a reference policy. @default 0 */
  kl_penalty_coef: z.number().min(0).nullish(),
  /**
   * Extension: log-probabilities compared with the reference policy, from sampling or under the weights before the step. No effect while
   * `kl_penalty_coef` is 0. @default "sample"
   */
  kl_penalty_source: z.literal(["current_learner", "sample"]).nullish(),
  /** Extension: step of the checkpoint used as reference policy. Excludes `kl_penalty_step_lag`. @default null, the base model */
  kl_penalty_reference_step: z.int().min(0).nullish(),
  /** Extension: use the checkpoint this many steps before the job's start as reference policy, at least step 0. @default null */
  kl_penalty_step_lag: z.int().min(1).nullish(),
  /** Not supported yet. */
  kl_ref_adapter_path: z.string().nullish(),
  /** Not supported yet. */
  logprob_calculation_chunk_size: z.int().min(1).nullish(),
  /** Not supported yet: only 0. */
  num_trajectories_learning_rate_multiplier_power: z.number().nullish(),
  /** Not supported yet. */
  packed_sequence_length: z.int().min(1).nullish(),
  /** Not supported yet: only false. */
  plot_tensors: z.boolean().nullish(),
  /** Not supported yet: only false. */
  scale_learning_rate_by_reward_std_dev: z.boolean().nullish(),
});
/**
 * `experimental_config` of an RL job. Null means unset. All names except the extensions belong to the interface that the service
 * implements. Unsupported settings are recognized by name, and any value other than the neutral one is rejected.
 *
 * @interface
 */
export type RlConfig = z.infer<typeof rlConfig>;

/** Schema of {@link RlJobGroup}. */
export const rlJobGroup = trajectoryGroup.extend({
  /** Completed rollouts, sent whole or (extension) named by the rollout task that stored them. */
  trajectories: z.array(z.union([storedRollout, trajectory])),
});
/** Group of an RL job: a group of trajectories of which some or all are stored by the service already. @interface */
export type RlJobGroup = z.infer<typeof rlJobGroup>;

/** Schema of {@link CreateRlJobRequest}. */
export const createRlJobRequest = z.strictObject({
  /** UUID of the model to train. */
  model_id: uuid,
  /** Batch of the optimizer step; advantages are computed within each group. */
  trajectory_groups: z.array(rlJobGroup).min(1),
  /** Settings of the step. @default null, the defaults of all settings */
  experimental_config: rlConfig.nullish(),
});
/** Body of `POST /v1/preview/training-jobs`. @interface */
export type CreateRlJobRequest = z.infer<typeof createRlJobRequest>;

/** Schema of {@link SftConfig}. */
export const sftConfig = z.strictObject({
  /** Batch size: trajectories per optimizer step. `"auto"` is 2. @default "auto" */
  batch_size: z.union([z.int().min(1), z.literal("auto")]).nullish(),
  /** Learning rate: a constant, a peak value if there is a schedule, or a list with one rate per batch. @default 5e-5 */
  learning_rate: z.union([z.number().positive(), z.array(z.number().min(0)).min(1)]).nullish(),
  /** Extension: trained assistant turns of a conversation; the other turns are context. @default "all" */
  assistant_turns: z.literal(["all", "last"]).nullish(),
  /** Unsupported: only null or `{"enabled": false}`. */
  metric_logging: z
    .looseObject({
      /** Only false is accepted. */
      enabled: z.boolean().nullish(),
    })
    .nullish(),
});
/** `config` of an SFT job. @interface */
export type SftConfig = z.infer<typeof sftConfig>;

/** Schema of {@link SftExperimentalConfig}. */
export const sftExperimentalConfig = z.strictObject({
  /** Epochs: passes over the data. @default 1 */
  epochs: z.int().min(1).max(1000).nullish(),
  /** Seed of the order of rows; null keeps the order of the file. @default null */
  shuffle_seed: z.int().nullish(),
  /** Learning-rate schedule after warm-up, over all steps of the job. Needs a single `learning_rate`. @default "constant" */
  learning_rate_schedule: z.literal(["constant", "linear", "cosine"]).nullish(),
  /** Optimizer steps of linear warm-up. Excludes `warmup_ratio`. @default 0 */
  warmup_steps: z.int().min(0).nullish(),
  /** Warm-up as a fraction of all steps, rounded down. Excludes `warmup_steps`. @default 0 */
  warmup_ratio: z.number().min(0).max(1).nullish(),
  /**
   * Learning rate at the start of warm-up and at the last step of a decaying schedule. Needs a warm-up or a schedule other than "constant".
   * @default 0
   */
  min_learning_rate: z.number().min(0).nullish(),
  /** Fraction of the examples held out for validation, above 0 and below 1. Excludes `validation_data_url`. @default null, none */
  validation_split: z.number().gt(0).lt(1).nullish(),
  /** Validation examples, an artifact like `training_data_url`. @default null, none */
  validation_data_url: z.string().min(1).nullish(),
  /** Optimizer steps between two validations; a validation also follows the last step. @default null, after each epoch */
  validation_every: z.int().min(1).nullish(),
  /** Max global gradient norm; 0 = no clipping. @default 1 */
  max_grad_norm: z.number().min(0).nullish(),
  /** Weight decay of AdamW. @default 0 */
  weight_decay: z.number().min(0).nullish(),
  /** First-moment decay of AdamW. @default 0.9 */
  adam_beta1: z.number().min(0).lt(1).nullish(),
  /** Second-moment decay of AdamW. @default 0.99 */
  adam_beta2: z.number().min(0).lt(1).nullish(),
  /**
   * Priority among the queued jobs of the entity, from -1000 to 1000; lower values run first. Does not change the order of the jobs of one
   * model, which is the order of creation. @default 0
   */
  priority,
});
/** `experimental_config` of an SFT job. All fields are extensions. @interface */
export type SftExperimentalConfig = z.infer<typeof sftExperimentalConfig>;

/** Schema of {@link CreateSftJobRequest}. */
export const createSftJobRequest = z.strictObject({
  /** UUID of the model to train. */
  model_id: uuid,
  /**
   * Address of the dataset: `artifact:///entity/project/name:vN`. The prefix of any other scheme is parsed the same way, except `http`,
   * `https` and `file`, which are rejected.
   */
  training_data_url: z.string().min(1),
  /** Batch size, learning rate and trained turns. @default null, the defaults of all settings */
  config: sftConfig.nullish(),
  /** Further settings. @default null, the defaults of all settings */
  experimental_config: sftExperimentalConfig.nullish(),
});
/** Body of `POST /v1/preview/sft-training-jobs`. @interface */
export type CreateSftJobRequest = z.infer<typeof createSftJobRequest>;

/** Schema of {@link PreferenceConfig}. */
export const preferenceConfig = sftExperimentalConfig.extend({
  /** Batch size: pairs per optimizer step. @default 8 */
  batch_size: z.int().min(1).nullish(),
  /** Learning rate: a constant, a peak value if there is a schedule, or a list with one rate per batch. @default 1e-6 */
  learning_rate: z.union([z.number().positive(), z.array(z.number().min(0)).min(1)]).nullish(),
  /** Scale of the log-ratios to the reference policy: the larger, the closer the model stays to it. @default 0.1 */
  beta: z.number().positive().nullish(),
  /** Probability that the label of a pair is wrong, at least 0 and below 0.5. @default 0 */
  label_smoothing: z.number().min(0).lt(0.5).nullish(),
  /** Use the mean of a continuation's log-ratios instead of the sum. @default false */
  length_normalization: z.boolean().nullish(),
  /** Reference policy: the step of a checkpoint of the model, or `"start"`, the checkpoint that the job starts from. @default null, the base model */
  reference_step: z.union([z.int().min(0), z.literal("start")]).nullish(),
});
/** `config` of a preference job. @interface */
export type PreferenceConfig = z.infer<typeof preferenceConfig>;

/** Schema of {@link CreatePreferenceJobRequest}. */
export const createPreferenceJobRequest = z.strictObject({
  /** UUID of the model to train. */
  model_id: uuid,
  /** Address of the preference pairs, as the `training_data_url` of an SFT job. */
  training_data_url: z.string().min(1),
  /** Settings of the job. @default null, the defaults of all settings */
  config: preferenceConfig.nullish(),
});
/** Body of `POST /v1/preview/preference-training-jobs`. Extension. @interface */
export type CreatePreferenceJobRequest = z.infer<typeof createPreferenceJobRequest>;
