/** Warnings derived from the metrics of an RL step. */

/** Codes of the warnings of a step. */
export type TrainingWarningCode = "entropy-collapse" | "constant-groups-rising" | "low-ess" | "sampler-mismatch";

/** Warning about a step, with the metric value that triggered it. */
export interface TrainingWarning {
  readonly code: TrainingWarningCode;
  /** Description of the problem and its remedy. */
  readonly message: string;
  /** Metric value that triggered the warning. */
  readonly value: number;
  /** Threshold that the value crossed. */
  readonly threshold: number;
}

/** Max previous steps that warnings take into account. */
export const WARNING_HISTORY = 10;

/** Fraction of the highest entropy in the history below which entropy counts as collapsed. */
const ENTROPY_SHARE = 0.25;
/** Min fraction of constant groups (all rewards equal) for a warning. */
const CONSTANT_SHARE = 0.5;
/** Min increase of the fraction of constant groups over its average in the previous steps. */
const CONSTANT_RISE = 0.1;
/** Number of previous steps in the average of constant groups; with a shorter history there is no warning. */
const CONSTANT_STEPS = 3;
/** Min effective sample size, as a fraction of the trained tokens. */
const MIN_ESS = 0.3;
/** Max KL divergence between sampler and trainer for the same weights, in nats. */
const MAX_MISMATCH = 1e-3;

/** Metrics by name. */
type Metrics = Readonly<Record<string, number>>;

/**
 * Returns the warnings of a step:
 *
 * - `entropy-collapse`: `policy/entropy` is below a quarter of its maximum over the previous steps;
 * - `constant-groups-rising`: the fraction of groups with equal rewards is at least 0.5, and at least 0.1 above its average over the
 *   previous three steps;
 * - `low-ess`: `policy/ess` is below 0.3;
 * - `sampler-mismatch`: `sampler/mismatch_kl` is above 1e-3.
 *
 * @param metrics - Metrics of the step.
 * @param history - Metrics of the model's previous RL steps, newest first; at most {@link WARNING_HISTORY} are used.
 */
export function trainingWarnings(metrics: Metrics, history: readonly Metrics[]): TrainingWarning[] {
  const previous = history.slice(0, WARNING_HISTORY);
  return [entropyCollapse(metrics, previous), constantGroups(metrics, previous), lowEss(metrics), samplerMismatch(metrics)].filter(
    (warning) => warning !== null,
  );
}

/** Checks for `entropy-collapse`. */
function entropyCollapse(metrics: Metrics, previous: readonly Metrics[]): TrainingWarning | null {
  const value = metrics["policy/entropy"];
  const threshold = ENTROPY_SHARE * previous.reduce((max, each) => Math.max(max, each["policy/entropy"] ?? 0), 0);
  // An engine may report no entropy.
  if (value === undefined || value >= threshold) return null;
  return {
    code: "entropy-collapse",
    value,
    threshold,
    message: `The policy's entropy fell to ${short(value)} nats, below a quarter of the highest of the last ${previous.length} steps: it hardly explores any more. Lower the learning rate, add an entropy bonus (\`entropy_coef\`) or a KL penalty (\`kl_penalty_coef\`), or go back to an earlier checkpoint.`,
  };
}

/** Checks for `constant-groups-rising`. */
function constantGroups(metrics: Metrics, previous: readonly Metrics[]): TrainingWarning | null {
  const recent = previous.slice(0, CONSTANT_STEPS);
  if (recent.length < CONSTANT_STEPS) return null;
  const value = constantFraction(metrics);
  const recentMean = recent.reduce((sum, each) => sum + constantFraction(each), 0) / recent.length;
  const threshold = Math.max(CONSTANT_SHARE, recentMean + CONSTANT_RISE);
  if (value < threshold) return null;
  return {
    code: "constant-groups-rising",
    value,
    threshold,
    message: `In ${percent(value)} of the groups all rewards are equal, and the share is rising: these groups teach nothing. Use scenarios of another difficulty, a finer reward, or larger groups.`,
  };
}

/** Checks for `low-ess`. */
function lowEss(metrics: Metrics): TrainingWarning | null {
  const value = metrics["policy/ess"] ?? 1;
  if (value >= MIN_ESS) return null;
  return {
    code: "low-ess",
    value,
    threshold: MIN_ESS,
    message: `The batch counts like ${percent(value)} of its tokens (\`policy/ess\` below ${MIN_ESS}): it was sampled by a policy far from the one that is trained. Train on fresher rollouts, or set \`truncated_importance_sampling\`.`,
  };
}

/** Checks for `sampler-mismatch`. */
function samplerMismatch(metrics: Metrics): TrainingWarning | null {
  const value = metrics["sampler/mismatch_kl"] ?? 0;
  if (value <= MAX_MISMATCH) return null;
  return {
    code: "sampler-mismatch",
    value,
    threshold: MAX_MISMATCH,
    message: `Sampler and trainer disagree about the same weights by ${short(value)} nats (\`sampler/mismatch_kl\` above ${MAX_MISMATCH}). Were the turns sampled from this model, at temperature 1, and are their token ids and log-probabilities the ones that were served? Rollouts in int8 (\`rolloutPrecision\`) differ by some 0.003 nats, which importance ratios correct. \`precalculate_logprobs\` takes the trainer's own.`,
  };
}

/** Returns the fraction of the groups of a step in which all rewards are equal. */
function constantFraction(metrics: Metrics): number {
  return (metrics["advantage/zero_groups"] ?? 0) / Math.max(metrics["data/groups"] ?? 0, 1);
}

/** Formats a number for a message. */
function short(value: number): string {
  return value.toPrecision(3);
}

/** Formats a fraction for a message. */
function percent(share: number): string {
  return `${(100 * share).toFixed(0)} %`;
}
