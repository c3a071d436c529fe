/** Options of `trainRl` that are plain data, as a schema for configuration files, the command line and editors. */
import { z } from "zod";
import { jsonObject, rlConfig } from "../../base/schema/index.ts";
import { camelCase, type CamelCase } from "../../base/util/letter-case.ts";

/** Settings of a job, without the ones that the service only knows in order to reject them. */
const jobSettings = rlConfig.omit({
  kl_ref_adapter_path: true,
  logprob_calculation_chunk_size: true,
  num_trajectories_learning_rate_multiplier_power: true,
  packed_sequence_length: true,
  plot_tensors: true,
  scale_learning_rate_by_reward_std_dev: true,
}).shape;

/** Schemas of the settings of a job by option name. */
type JobSettings = { [K in keyof typeof jobSettings as CamelCase<K>]: (typeof jobSettings)[K] };

/** Descriptions of the settings of a job. */
const JOB_DESCRIPTIONS: Readonly<Record<keyof JobSettings, string>> = {
  learningRate: "learning rate (default: by size of the model and kind of training)",
  epsilon: "lower clip distance of the importance ratio (default: 1 for CISPO, 0.2 for PPO)",
  epsilonHigh: "upper clip distance of the importance ratio (default: 4 for CISPO, epsilon for PPO)",
  ppo: "PPO instead of CISPO (default: false)",
  lossFn: 'loss by name (default: "cispo")',
  scaleRewards: "divide advantages by the standard deviation of the group's rewards (default: true)",
  normalizeAdvantages: "alias of scaleRewards",
  advantageBaseline: 'baseline of a reward: mean of its group, or of the other rewards of the group (default: "mean")',
  advantageDeviation: 'standard deviation that divides the advantages (default: "population")',
  advantageScope: 'tokens over which advantages are normalized (default: "batch")',
  lossReduction: 'unit of equal total weight in the loss (default: "trajectory_mean")',
  lossNormalizer: 'divisor in tokens of the loss reduction "constant"',
  entropyCoef: "coefficient of the entropy bonus (default: 0)",
  maskTruncated: "do not train trajectories with a truncated turn (default: false)",
  turnRewards: "one advantage per turn, from the rewards of its choices (default: false)",
  advantageBalance: "positive values shrink negative advantages, negative values shrink positive ones (default: 0)",
  maxGradNorm: "max global gradient norm; 0 = no clipping (default: 0.1)",
  weightDecay: "weight decay of AdamW (default: 0)",
  adamBeta1: "first-moment decay of AdamW (default: 0.9)",
  adamBeta2: "second-moment decay of AdamW (default: 0.99)",
  tokenReport: "store log-probability and advantage of every trained token of every step on the service (default: false)",
  priority: "priority among the queued jobs of the entity; lower values run first (default: 0)",
  importanceSamplingLevel: 'level of the importance ratio (default: "token")',
  modelK2Tau: "coefficient of the log-ratio that is subtracted from each token's advantage (default: 0)",
  kimiK2Tau: "alias of modelK2Tau",
  maskProbRatio: "leave tokens with a ratio outside the clip range out of the loss (default: false)",
  maxNegativeAdvantageImportanceSamplingWeight: "upper bound of the ratio of tokens with a negative advantage (default: none)",
  precalculateLogprobs: "compute the ratio against the weights before the step instead of the sampler's log-probabilities (default: false)",
  truncatedImportanceSampling: "upper bound of the ratio that multiplies each token's loss (default: off)",
  compat: "compute as another client does where it differs from its documentation (default: off)",
  allowTrainingWithoutLogprobs: "accept turns without log-probabilities; their ratio is 1 (default: false)",
  klPenaltyCoef: "coefficient of the KL penalty towards a reference policy (default: 0)",
  klPenaltySource: 'log-probabilities that are compared with the reference policy (default: "sample")',
  klPenaltyReferenceStep: "checkpoint step of the reference policy (default: the base model)",
  klPenaltyStepLag: "the reference policy is the checkpoint this many steps before the job",
};

const describedJobSettings = Object.entries(jobSettings).map(([key, schema]) => {
  const name = camelCase(key) as keyof JobSettings;
  return [name, schema.describe(JOB_DESCRIPTIONS[name])] as const;
});
/** Schema of the option `train`. */
const train = z.strictObject(Object.fromEntries(describedJobSettings) as JobSettings);

/** Schema of an optional integer of at least `min`. */
const count = (min: number, text: string) => z.int().min(min).optional().describe(text);
/** Schema of an optional boolean. */
const flag = (text: string) => z.boolean().optional().describe(text);

/** Schema of the option `keepCheckpoints`. */
const keepCheckpoints = z.strictObject({
  recent: z.int().min(1).describe("newest checkpoints to keep; required with keepCheckpoints"),
  best: z
    .strictObject({
      metric: z.string().min(1).describe("metric of the run by which checkpoints are ranked; required with keepCheckpoints.best"),
      count: z.int().min(1).describe("best checkpoints to keep; required with keepCheckpoints.best"),
      mode: z.literal(["max", "min"]).optional().describe('whether high or low values are best (default: "max")'),
    })
    .optional()
    .describe("best checkpoints to keep, by a metric"),
  pinned: z.array(z.int().min(0)).optional().describe("checkpoint steps that are never deleted (default: none)"),
});

/** Schema of the settings of `trainRl`: all its options that JSON can represent, except the directory of the run. */
export const rlSettings = z.strictObject({
  steps: count(1, "training steps of the whole run, including the steps before a resume"),
  scenariosPerStep: count(1, "scenarios per step (default: 16)"),
  groupSize: count(2, "rollouts per scenario (default: 8)"),
  maxStepsOffPolicy: count(0, "max steps by which rollouts may be ahead of training (default: 0)"),
  isLagExact: flag("sample from exactly the checkpoint maxStepsOffPolicy steps back (default: false)"),
  temperature: z.number().min(0).optional().describe("sampling temperature of the training rollouts; the loss expects 1 (default: 1)"),
  seed: z.int().optional().describe("seed of the scenario order and of the rollouts (default: 0)"),
  concurrency: count(1, "max concurrent rollouts (default: 64)"),
  workers: flag("leave the rollouts to workers, see `whetstone worker` (default: false)"),
  timeoutMs: z
    .number()
    .positive()
    .max(2 ** 31 - 1)
    .optional()
    .describe("timeout of one attempt of a rollout in milliseconds (default: no limit)"),
  retries: count(0, "retries of a rollout that failed with a transient error (default: 0)"),
  replacements: count(0, "max new rollouts, with other seeds, in place of a rollout that failed after its retries (default: 0)"),
  maxExceptions: z.number().min(0).optional().describe("max failed rollouts per step, a count or, below 1, a fraction (default: 0.05)"),
  scoreTimeouts: flag("score a rollout that times out instead of failing it (default: false)"),
  chatTemplateKwargs: jsonObject.optional().describe("variables of the chat template for every turn (default: none)"),
  train: train.optional().describe("settings of each step's job (default: the service's)"),
  evaluation: z
    .strictObject({
      every: count(1, "steps between evaluations (default: 10)"),
      samples: count(1, "rollouts per scenario of an evaluation (default: 1)"),
      temperature: z
        .number()
        .min(0)
        .optional()
        .describe("sampling temperature of evaluations (default: 0 with one rollout per scenario, else 1)"),
    })
    .optional()
    .describe("evaluations on the eval scenarios (default: none)"),
  refill: z
    .strictObject({ maxGroups: z.int().min(1).describe("max groups that a step samples; required with refill") })
    .optional()
    .describe("sampling of further groups for discarded ones (default: none)"),
  filters: z
    .strictObject({
      constant: flag("discard groups with equal rewards (default: true with refill, else false)"),
      minCompletionTokens: count(0, "min sampled tokens of a trajectory (default: 0)"),
      maxCompletionTokens: count(1, "max sampled tokens of a trajectory (default: no limit)"),
      maxAge: count(0, "max age of a group in steps (default: no limit)"),
    })
    .optional()
    .describe("groups and trajectories to leave out (default: none)"),
  curriculum: z
    .strictObject({
      pool: count(1, "scenarios to sample from if the environment generates them"),
      metric: z.string().min(1).optional().describe("trajectory metric whose mean is the pass rate (default: the reward as a fraction)"),
      target: z.number().gt(0).lt(1).optional().describe("pass rate with the maximum weight (default: 0.5)"),
      floor: z.number().gt(0).optional().describe("weight added to every scenario (default: 0.05)"),
      decay: z.number().gt(0).max(1).optional().describe("factor per step by which the weight of an older group decreases (default: 0.95)"),
    })
    .optional()
    .describe("sampling of scenarios by pass rate (default: in order)"),
  keepCheckpoints: keepCheckpoints.optional().describe("checkpoints to keep (default: all)"),
  keepTrajectories: z
    .strictObject({ every: z.int().min(1).describe("keeps the rollouts of every so many steps; required with keepTrajectories") })
    .optional()
    .describe("rollouts to keep on disk (default: all)"),
  jobRetries: count(0, "retries of a step's failed job (default: 0)"),
  orphanWaitMs: count(0, "milliseconds to look for a job on services without idempotency keys (default: 600000)"),
  tokenReportEvery: count(0, "steps between two token reports; 0 = never (default: 10)"),
  maxSkippedSteps: count(1, "consecutive steps with nothing to learn that end the run (default: 10)"),
  progress: flag("display of the progress on standard error (default: true, or as WHETSTONE_PROGRESS says)"),
  report: flag("write report.html at the end of the run (default: true)"),
});
/** Settings of `trainRl` as plain data. */
export type RlSettings = z.infer<typeof rlSettings>;
