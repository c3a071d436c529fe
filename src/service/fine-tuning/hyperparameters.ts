/** Hyperparameters of fine-tuning jobs: rules for `"auto"`, and the settings of the training job that runs a fine-tuning job. */
import { defaultRate } from "../../base/util/default-rates.ts";
import { ArgumentError } from "../../base/errors.ts";
import type { CreateFineTuningJobRequest, FineTuningJob, SupervisedHyperparameters } from "../../base/schema/index.ts";
import type { PreferenceJobConfig, SftJobConfig } from "../store/job-configs.ts";

/** Hyperparameters without `"auto"`. */
export type ResolvedHyperparameters = FineTuningJob["hyperparameters"];

/** `beta` of preference training without a choice. */
const BETA = 0.1;
/** Passes over the data of average size. */
const EPOCHS = 3;
/** Min and max of examples times epochs, within the bounds of the epochs. */
const [MIN_PASSES, MAX_PASSES] = [100, 25_000];
const MAX_AUTO_EPOCHS = 25;
/** Fraction of the examples in a batch. */
const BATCH_FRACTION = 0.002;
const MAX_AUTO_BATCH = 256;
/** Validations in a job, unless its epochs are more. */
const VALIDATIONS = 10;
/** Last epochs after which a job makes a checkpoint. */
const CHECKPOINT_EPOCHS = 3;

/**
 * Returns the hyperparameters of a supervised request, from `method` or the deprecated field.
 *
 * @throws ArgumentError `E_ARGUMENT` if both are given.
 */
export function requestedHyperparameters({ method, hyperparameters }: CreateFineTuningJobRequest): SupervisedHyperparameters {
  const current = method?.supervised?.hyperparameters ?? null;
  const deprecated = hyperparameters ?? null;
  if (current !== null && deprecated !== null)
    throw new ArgumentError(
      "Expected `method.supervised.hyperparameters` or the deprecated `hyperparameters`, got both. Leave `hyperparameters` out",
      { param: "hyperparameters" },
    );
  return current ?? deprecated ?? {};
}

/**
 * Replaces `"auto"` and absent values by numbers.
 *
 * - `n_epochs`: 3; or as many as give at least 100 and at most 25,000 examples in total, from 1 to 25.
 * - `batch_size`: 0.2 % of the examples, rounded, from 1 to 256.
 * - `learning_rate_multiplier`: 1.
 *
 * @param examples - Number of examples in the training data, at least 1.
 */
export function resolveHyperparameters(asked: SupervisedHyperparameters, examples: number): ResolvedHyperparameters {
  const { batch_size: batchSize, n_epochs: epochs, learning_rate_multiplier: multiplier } = asked;
  return {
    n_epochs: given(epochs, autoEpochs(examples)),
    batch_size: given(batchSize, Math.min(Math.max(Math.round(examples * BATCH_FRACTION), 1), MAX_AUTO_BATCH)),
    learning_rate_multiplier: given(multiplier, 1),
  };
}

/** Returns `beta`, 0.1 for `"auto"`. */
export function resolveBeta(asked: number | "auto" | null | undefined): number {
  return typeof asked === "number" ? asked : BETA;
}

/** Returns a requested value, or the one that the service chooses. */
export function given<T>(value: T | "auto" | null | undefined, automatic: T): T {
  return value === "auto" ? automatic : (value ?? automatic);
}

/** Returns the passes over a number of examples that the service chooses. */
export function autoEpochs(examples: number): number {
  if (examples * EPOCHS < MIN_PASSES) return Math.min(Math.ceil(MIN_PASSES / examples), MAX_AUTO_EPOCHS);
  if (examples * EPOCHS > MAX_PASSES) return Math.max(Math.floor(MAX_PASSES / examples), 1);
  return EPOCHS;
}

/** Facts that the settings of a training job depend on. */
export interface JobFacts {
  readonly hyperparameters: ResolvedHyperparameters;
  readonly seed: number;
  /** Number of examples in the training data. */
  readonly examples: number;
  /** Parameters of the base model; NaN if unknown. */
  readonly parameters: number;
  readonly isAdapter: boolean;
  /** Address of the artifact with the validation data; null without. */
  readonly validationUrl: string | null;
}

/** Steps of a training job. */
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
  const { batch, order, ...steps } = planEpochs(facts, "sft");
  return { config: batch, experimental_config: order, ...steps };
}

/** Returns the settings of the preference job; see {@link planEpochs}. The reference policy is the model that the job starts from. */
export function planDpo(facts: JobFacts, beta: number): DpoPlan {
  const { batch, order, ...steps } = planEpochs(facts, "preference");
  return { config: { ...batch, ...order, beta, reference_step: "start" }, ...steps };
}

/**
 * Plans the epochs of a job: the learning rate is `learning_rate_multiplier` times the default of the model's size, and the seed orders the
 * examples of each epoch. A checkpoint follows each of the last three epochs. There are about ten validations, one of them after each
 * epoch.
 */
function planEpochs(facts: JobFacts, kind: "sft" | "preference") {
  const { hyperparameters, seed, examples, parameters, isAdapter, validationUrl } = facts;
  const { batch_size: batchSize, n_epochs: epochs, learning_rate_multiplier: multiplier } = hyperparameters;
  const perEpoch = Math.ceil(examples / batchSize);
  const steps = epochs * perEpoch;
  const first = Math.max(epochs - CHECKPOINT_EPOCHS + 1, 1);
  return {
    batch: { batch_size: batchSize, learning_rate: multiplier * defaultRate(parameters, kind, isAdapter) },
    order: {
      epochs,
      shuffle_seed: seed,
      ...(validationUrl === null ? {} : { validation_data_url: validationUrl, validation_every: validationInterval(perEpoch, steps) }),
    },
    steps,
    checkpointSteps: Array.from({ length: epochs - first }, (_, index) => (first + index) * perEpoch),
  };
}

/** Returns the smallest divisor of the steps per epoch that gives at most ten validations; one epoch if there are more epochs. */
function validationInterval(perEpoch: number, steps: number): number {
  for (let interval = Math.max(Math.ceil(steps / VALIDATIONS), 1); interval < perEpoch; interval++)
    if (perEpoch % interval === 0) return interval;
  return perEpoch;
}
