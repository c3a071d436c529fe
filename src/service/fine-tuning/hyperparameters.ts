/** Hyperparameters of fine-tuning jobs: rules for `"auto"`, and the settings of the training job that runs a fine-tuning job. */
import { defaultRate } from "../../base/util/default-rates.ts";
import { ArgumentError } from "../../base/errors.ts";
import type { FineTuningJob, SupervisedHyperparameters } from "../../base/schema/index.ts";
import { MAX_STEPS } from "../../learner/index.ts";
import type { FineTuningRequest } from "../http/requests.ts";
import type { PreferenceJobConfig, SftJobConfig } from "../store/job-configs.ts";

/** Hyperparameters without `"auto"`. */
export type ResolvedHyperparameters = FineTuningJob["hyperparameters"];

/** Automatic `beta` of preference training. */
const AUTO_BETA = 0.1;
/** Automatic number of epochs, unless it gives fewer or more examples in total than the bounds below. */
const AUTO_EPOCHS = 3;
/** Min examples times epochs for the automatic number of epochs. */
const MIN_TOTAL_EXAMPLES = 100;
/** Max examples times epochs for the automatic number of epochs. */
const MAX_TOTAL_EXAMPLES = 25_000;
/** Max automatic number of epochs; it has precedence over {@link MIN_TOTAL_EXAMPLES}. */
const MAX_AUTO_EPOCHS = 25;
/** Automatic batch size as a fraction of the examples. */
const BATCH_FRACTION = 0.002;
/** Max automatic batch size. */
const MAX_AUTO_BATCH_SIZE = 256;
/** Max number of validations in a job with fewer epochs; a job with more epochs has one per epoch. */
const MAX_VALIDATIONS = 10;
/** Number of epochs at the end of a job, each of which ends with a checkpoint. */
const CHECKPOINT_EPOCHS = 3;

/**
 * Returns the hyperparameters of a supervised request, from `method` or the deprecated field.
 *
 * @throws ArgumentError `E_ARGUMENT` if both are given.
 */
export function requestedHyperparameters({ method, hyperparameters }: FineTuningRequest): SupervisedHyperparameters {
  const fromMethod = method?.supervised?.hyperparameters ?? null;
  const fromDeprecatedField = hyperparameters ?? null;
  if (fromMethod !== null && fromDeprecatedField !== null)
    throw new ArgumentError(
      "Expected `method.supervised.hyperparameters` or the deprecated `hyperparameters`, got both. Leave `hyperparameters` out",
      { param: "hyperparameters" },
    );
  return fromMethod ?? fromDeprecatedField ?? {};
}

/**
 * Replaces `"auto"` and absent values by numbers.
 *
 * - `n_epochs`: 3; or as many as give at least 100 and at most 25,000 examples in total, from 1 to 25.
 * - `batch_size`: 0.2 % of the examples, rounded, from 1 to 256.
 * - `learning_rate_multiplier`: 1.
 *
 * @param exampleCount - Number of examples in the training data, at least 1.
 */
export function resolveHyperparameters(requested: SupervisedHyperparameters, exampleCount: number): ResolvedHyperparameters {
  const autoBatchSize = Math.min(Math.max(Math.round(exampleCount * BATCH_FRACTION), 1), MAX_AUTO_BATCH_SIZE);
  return {
    n_epochs: orAuto(requested.n_epochs, autoEpochs(exampleCount)),
    batch_size: orAuto(requested.batch_size, autoBatchSize),
    learning_rate_multiplier: orAuto(requested.learning_rate_multiplier, 1),
  };
}

/** Returns `beta`, 0.1 for `"auto"`. */
export function resolveBeta(requested: number | "auto" | null | undefined): number {
  return orAuto(requested, AUTO_BETA);
}

/** Returns a requested value; for `"auto"` and absent ones, the automatic value. */
export function orAuto(requested: number | "auto" | null | undefined, automatic: number): number {
  return requested === "auto" ? automatic : (requested ?? automatic);
}

/** Returns the automatic number of epochs; see {@link resolveHyperparameters}. */
export function autoEpochs(exampleCount: number): number {
  const totalExamples = exampleCount * AUTO_EPOCHS;
  if (totalExamples < MIN_TOTAL_EXAMPLES) return Math.min(Math.ceil(MIN_TOTAL_EXAMPLES / exampleCount), MAX_AUTO_EPOCHS);
  if (totalExamples > MAX_TOTAL_EXAMPLES) return Math.max(Math.floor(MAX_TOTAL_EXAMPLES / exampleCount), 1);
  return AUTO_EPOCHS;
}

/**
 * Checks the number of optimizer steps, because a job that exceeds the limit of its trainer would fail only when it runs.
 *
 * @param path - Path of the hyperparameters in the request.
 * @throws ArgumentError `E_ARGUMENT` for more than `max` steps; `param` is `n_epochs`.
 */
export function requireStepCount(steps: number, { max, path }: { readonly max: number; readonly path: string }): void {
  if (steps <= max) return;
  throw new ArgumentError(`Expected at most ${max} optimizer steps, got ${steps}. Raise \`batch_size\`, or train fewer epochs`, {
    param: `${path}.n_epochs`,
  });
}

/** Facts that the settings of a training job depend on. */
export interface JobFacts {
  readonly hyperparameters: ResolvedHyperparameters;
  /** Path of the hyperparameters in the request, for errors. */
  readonly path: string;
  readonly seed: number;
  /** Number of examples in the training data. */
  readonly examples: number;
  /** Parameters of the base model; NaN if unknown. */
  readonly parameters: number;
  readonly isAdapter: boolean;
  /** Address of the artifact with the validation data; null without. */
  readonly validationUrl: string | null;
}

/** Optimizer steps of a training job. */
interface JobSteps {
  /** Optimizer steps of the job. */
  readonly steps: number;
  /** Steps after which a checkpoint is made, without the last step. */
  readonly checkpointSteps: readonly number[];
}

/** Settings of the SFT job that runs a supervised job. */
export type SupervisedPlan = JobSteps & Pick<SftJobConfig, "config" | "experimental_config">;

/** Settings of the preference job that runs a job of the method `dpo`. */
export type DpoPlan = JobSteps & Pick<PreferenceJobConfig, "config">;

/** Returns the settings of the SFT job; see {@link planEpochs}. */
export function planSupervised(facts: JobFacts): SupervisedPlan {
  const { optimizer, schedule, ...steps } = planEpochs(facts, "sft");
  return { config: optimizer, experimental_config: schedule, ...steps };
}

/** Returns the settings of the preference job; see {@link planEpochs}. The reference policy is the model that the job starts from. */
export function planDpo(facts: JobFacts, beta: number): DpoPlan {
  const { optimizer, schedule, ...steps } = planEpochs(facts, "preference");
  return { config: { ...optimizer, ...schedule, beta, reference_step: "start" }, ...steps };
}

/**
 * Plans the epochs of a job: the learning rate is `learning_rate_multiplier` times the default of the model's size, and the seed orders the
 * examples of each epoch. A checkpoint follows each of the last three epochs. There are about ten validations, one of them after each
 * epoch.
 *
 * @returns the settings of the optimizer and of the schedule apart, because SFT jobs have them in two objects and preference jobs in one.
 * @throws ArgumentError `E_ARGUMENT` for more than 1,000,000 steps.
 */
function planEpochs(facts: JobFacts, kind: "sft" | "preference") {
  const { hyperparameters, path, seed, examples, parameters, isAdapter, validationUrl } = facts;
  const { batch_size: batchSize, n_epochs: epochs, learning_rate_multiplier: multiplier } = hyperparameters;
  const stepsPerEpoch = Math.ceil(examples / batchSize);
  const steps = epochs * stepsPerEpoch;
  requireStepCount(steps, { max: MAX_STEPS, path });
  const validationEvery = validationInterval(stepsPerEpoch, steps);
  const firstCheckpointEpoch = Math.max(epochs - CHECKPOINT_EPOCHS + 1, 1);
  return {
    optimizer: { batch_size: batchSize, learning_rate: multiplier * defaultRate(parameters, kind, isAdapter) },
    schedule: {
      epochs,
      shuffle_seed: seed,
      ...(validationUrl === null ? {} : { validation_data_url: validationUrl, validation_every: validationEvery }),
    },
    steps,
    checkpointSteps: Array.from({ length: epochs - firstCheckpointEpoch }, (_, index) => (firstCheckpointEpoch + index) * stepsPerEpoch),
  };
}

/** Returns the smallest divisor of the steps per epoch that gives at most {@link MAX_VALIDATIONS}; one epoch for jobs with more epochs. */
function validationInterval(stepsPerEpoch: number, steps: number): number {
  let interval = Math.ceil(steps / MAX_VALIDATIONS);
  while (interval < stepsPerEpoch && stepsPerEpoch % interval !== 0) interval++;
  return Math.min(interval, stepsPerEpoch);
}
