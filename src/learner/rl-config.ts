/** Conversion of an RL job's configuration to loss and optimizer settings. Unsupported settings are rejected by name. */

import { ArgumentError, UnsupportedError } from "../base/errors.ts";
import type { RlConfig } from "../base/schema/index.ts";
import type { AdvantageOptions } from "./advantages.ts";
import { resolveLoss } from "./loss.ts";
import type { PolicyObjective } from "./policy-objective.ts";
import { ADAM_DEFAULTS, type AdamParams, type PolicyLoss } from "../base/training-rows.ts";

/** RL configuration with all defaults filled in. */
export interface ResolvedRlConfig {
  readonly loss: PolicyLoss;
  /** Loss with terms that the engine's own loss lacks; null if the engine's loss covers the configuration. */
  readonly objective: PolicyObjective | null;
  readonly adam: AdamParams;
  /** Reference policy of the KL penalty; null without a KL penalty. */
  readonly reference: KlReference | null;
  readonly advantages: AdvantageOptions;
  /** Whether every turn has a separate advantage, from the rewards of the choices. */
  readonly turnRewards: boolean;
  /** Whether choices may lack log-probabilities; their ratio is then 1. */
  readonly allowsUnknownLogprobs: boolean;
  /** Advantage balance in [−1, 1], see `normalizeBatch`. */
  readonly advantageBalance: number;
  /**
   * Equal weight per trajectory, equal weight per token, or a constant divisor: `tokensPerTrajectory` times the number of trajectories in
   * the batch.
   */
  readonly reduction: "trajectory_mean" | "token_mean" | { readonly tokensPerTrajectory: number };
  /** Set of tokens over which advantages are normalized: the whole batch, or the groups of each environment separately. */
  readonly advantageScope: "batch" | "environment";
  /** Whether trajectories with a turn that ended at the token limit are not trained. */
  readonly masksTruncated: boolean;
}

/** Reference policy of a KL penalty: the base model, a checkpoint, or the checkpoint `steps` steps before the job's start. */
export type KlReference =
  | { readonly kind: "base" }
  | { readonly kind: "step"; readonly step: number }
  | { readonly kind: "lag"; readonly steps: number };

/** Default of `learning_rate`. */
const DEFAULT_LEARNING_RATE = 5e-6;
/** Default of `max_grad_norm`. */
const DEFAULT_MAX_GRAD_NORM = 0.1;

/**
 * Known but unsupported settings, with the neutral values that are accepted. `logprob_calculation_chunk_size` only trades memory for speed
 * and does not change results; its usual value 1024 is accepted because some clients send it by default.
 */
const UNSUPPORTED_SETTINGS: ReadonlyMap<keyof RlConfig, readonly unknown[]> = new Map<keyof RlConfig, readonly unknown[]>([
  ["kl_ref_adapter_path", []],
  ["logprob_calculation_chunk_size", [1024]],
  ["num_trajectories_learning_rate_multiplier_power", [0]],
  ["packed_sequence_length", []],
  ["plot_tensors", [false]],
  ["scale_learning_rate_by_reward_std_dev", [false]],
]);

/**
 * Checks a configuration that the schema has already accepted, and fills in the defaults. Null and absent mean the default. A service calls
 * it before accepting a job, so that a rejected job leaves nothing half-created.
 *
 * @param config - RL configuration of the job.
 * @throws UnsupportedError `E_UNSUPPORTED` naming the setting, for an unsupported setting.
 * @throws ArgumentError `E_ARGUMENT` for settings that contradict each other.
 */
export function checkRlConfig(config: RlConfig | null | undefined): ResolvedRlConfig {
  const requested: RlConfig = config ?? {};
  for (const [name, neutralValues] of UNSUPPORTED_SETTINGS) {
    const value = requested[name];
    if (value === null || value === undefined || neutralValues.includes(value)) continue;
    const allowed = neutralValues.map((item) => `${JSON.stringify(item)} or `).join("");
    throw new UnsupportedError(`\`${name}\` is not supported by this service: expected ${allowed}null, got ${JSON.stringify(value)}.`, {
      param: `experimental_config.${name}`,
    });
  }
  const scales = resolveAliased(requested, "scale_rewards", "normalize_advantages") ?? true;
  const { advantage_deviation: deviation } = requested;
  if (!scales && typeof deviation === "string") {
    throw new ArgumentError(
      `Expected no \`advantage_deviation\` where \`scale_rewards\` is false, got "${deviation}". It names what advantages are divided by, and they are not; set one.`,
      { param: "experimental_config.advantage_deviation" },
    );
  }
  return {
    loss: resolveLoss(requested),
    objective: resolveObjective(requested),
    adam: { learningRate: requested.learning_rate ?? DEFAULT_LEARNING_RATE, ...resolveAdam(requested, DEFAULT_MAX_GRAD_NORM) },
    reference: resolveReference(requested),
    advantages: {
      scale: scales,
      baseline: requested.advantage_baseline ?? "mean",
      deviation: deviation ?? "population",
      exactZero: requested.compat === "art",
    },
    advantageBalance: requested.advantage_balance ?? 0,
    turnRewards: requested.turn_rewards ?? false,
    allowsUnknownLogprobs: requested.allow_training_without_logprobs ?? false,
    reduction: resolveReduction(requested),
    advantageScope: requested.advantage_scope ?? "batch",
    masksTruncated: requested.mask_truncated ?? false,
  };
}

/** Resolves the reduction of token losses. @throws ArgumentError `E_ARGUMENT` for settings that contradict each other. */
function resolveReduction({
  loss_reduction: reduction,
  loss_normalizer: normalizer,
  advantage_scope: scope,
}: RlConfig): ResolvedRlConfig["reduction"] {
  const isGiven = typeof normalizer === "number";
  if (reduction !== "constant") {
    if (!isGiven) return reduction ?? "trajectory_mean";
    throw new ArgumentError(
      `Expected no \`loss_normalizer\` unless \`loss_reduction\` is "constant", got ${normalizer}, which has no effect otherwise. Set \`loss_reduction: "constant"\`, or leave it out.`,
      { param: "experimental_config.loss_normalizer" },
    );
  }
  if (!isGiven) {
    throw new ArgumentError(
      'Expected a `loss_normalizer` with `loss_reduction: "constant"`, got none. Set it to a constant number of tokens, such as the max completion length of the rollouts.',
      { param: "experimental_config.loss_normalizer" },
    );
  }
  if (scope === "environment") {
    throw new ArgumentError(
      'Expected no `advantage_scope: "environment"` with `loss_reduction: "constant"`, which does not normalize advantages over the batch. Set one of them.',
      { param: "experimental_config.advantage_scope" },
    );
  }
  return { tokensPerTrajectory: normalizer };
}

/** Returns the objective with the terms that the engine's own losses lack; null if the configuration uses none of them. */
function resolveObjective(config: RlConfig): PolicyObjective | null {
  const objective: PolicyObjective = {
    ...resolveLoss(config),
    level: config.importance_sampling_level ?? "token",
    tau: resolveAliased(config, "model_k2_tau", "kimi_k2_tau") ?? 0,
    masksRatio: config.mask_prob_ratio ?? false,
    maxNegativeRatio: config.max_negative_advantage_importance_sampling_weight ?? null,
    truncation: config.truncated_importance_sampling ?? null,
    precalculates: config.precalculate_logprobs ?? false,
    kl: hasKlPenalty(config) ? { coefficient: config.kl_penalty_coef ?? 0, source: config.kl_penalty_source ?? "sample" } : null,
    compat: config.compat ?? null,
  };
  const isPlain =
    objective.level === "token" &&
    objective.tau === 0 &&
    !objective.masksRatio &&
    objective.maxNegativeRatio === null &&
    objective.truncation === null &&
    !objective.precalculates &&
    objective.kl === null;
  return isPlain ? null : objective;
}

/**
 * Returns the value of a setting with two names; absent if neither is set.
 *
 * @throws ArgumentError `E_ARGUMENT` if both are set, to different values.
 */
function resolveAliased<Name extends keyof RlConfig>(config: RlConfig, name: Name, alias: Name): RlConfig[Name] {
  const values = [config[name], config[alias]].filter((value) => value !== null && value !== undefined);
  if (new Set(values).size < 2) return values[0];
  throw new ArgumentError(
    `Expected \`${name}\` and \`${alias}\` to agree, got ${values.join(" and ")}. They are two names of one setting; set one.`,
    { param: `experimental_config.${alias}` },
  );
}

/** Returns the optimizer settings of a job, without the learning rate. `maxGradNorm` is the default of `max_grad_norm`. */
export function resolveAdam(
  config: Pick<RlConfig, "adam_beta1" | "adam_beta2" | "weight_decay" | "max_grad_norm">,
  maxGradNorm: number,
): Omit<AdamParams, "learningRate"> {
  return {
    beta1: config.adam_beta1 ?? ADAM_DEFAULTS.beta1,
    beta2: config.adam_beta2 ?? ADAM_DEFAULTS.beta2,
    epsilon: ADAM_DEFAULTS.epsilon,
    weightDecay: config.weight_decay ?? ADAM_DEFAULTS.weightDecay,
    maxGradNorm: config.max_grad_norm ?? maxGradNorm,
  };
}

/** Whether a configuration has a KL penalty. */
function hasKlPenalty({ kl_penalty_coef: coefficient }: RlConfig): boolean {
  return typeof coefficient === "number" && coefficient > 0;
}

/** Resolves the reference policy; null without a KL penalty. @throws ArgumentError `E_ARGUMENT` for settings that contradict each other. */
function resolveReference(config: RlConfig): KlReference | null {
  const { kl_penalty_reference_step: step, kl_penalty_step_lag: lag } = config;
  if (!hasKlPenalty(config)) {
    const unused = ["kl_penalty_reference_step", "kl_penalty_step_lag"].find((name) => typeof config[name as keyof RlConfig] === "number");
    if (unused === undefined) return null;
    throw new ArgumentError(`Expected \`kl_penalty_coef\` above 0 beside \`${unused}\`, which has no effect without a penalty.`, {
      param: `experimental_config.${unused}`,
    });
  }
  if (typeof step === "number" && typeof lag === "number") {
    throw new ArgumentError(
      `Expected \`kl_penalty_reference_step\` or \`kl_penalty_step_lag\`, got both: ${step} and ${lag}. Each names the reference; set one.`,
      { param: "experimental_config.kl_penalty_step_lag" },
    );
  }
  if (typeof step === "number") return { kind: "step", step };
  return typeof lag === "number" ? { kind: "lag", steps: lag } : { kind: "base" };
}
