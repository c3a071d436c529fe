/** Settings that the jobs over a dataset have in common: batches, epochs, validation, learning rates and the optimizer. */

import { ArgumentError } from "../base/errors.ts";
import type { SftExperimentalConfig } from "../base/schema/index.ts";
import type { AdamParams } from "../base/training-rows.ts";
import { resolveAdam } from "./rl-config.ts";
import { learningRate } from "./schedule.ts";

/** Default of `max_grad_norm`. */
const DEFAULT_MAX_GRAD_NORM = 1;

/** Configuration of the steps as accepted by the schema; null and absent mean the default. */
export type StepConfig = SftExperimentalConfig;

/** Settings of a job's steps, with all defaults filled in. */
export interface StepSettings {
  /** Examples per optimizer step. */
  readonly batchSize: number;
  readonly epochs: number;
  /** Seed of the example order; null = file order. */
  readonly shuffleSeed: number | null;
  readonly adam: Omit<AdamParams, "learningRate">;
  /** Fraction of the examples that is held out; null = none. */
  readonly validationSplit: number | null;
  /** Interval of evaluations on held-out examples, in steps; null = after each epoch. */
  readonly validationEvery: number | null;
  /**
   * Returns the learning rate as a function of the step index (from 0), for a job of `steps` optimizer steps.
   *
   * @throws ArgumentError `E_ARGUMENT` if the configured list of learning rates has another length than `steps`.
   */
  readonly rates: (steps: number) => (step: number) => number;
  /** Path of the settings in the request, for error messages: `config` or `experimental_config`. */
  readonly path: string;
}

/** Settings of {@link stepSettings} that the kinds of jobs name or default differently. */
export type JobStepSettings = Pick<StepSettings, "batchSize" | "path"> & {
  /** Constant learning rate, peak of a schedule, or a rate per step. */
  readonly learningRate: number | readonly number[];
};

/**
 * Fills in the defaults: one epoch, file order, gradient norm clipped at 1, no weight decay, β 0.9 and 0.99, nothing held out.
 *
 * @throws ArgumentError `E_ARGUMENT` for settings that contradict each other.
 */
export function stepSettings(config: StepConfig, { batchSize, learningRate: rate, path }: JobStepSettings): StepSettings {
  const { validation_split: split, validation_data_url: url, validation_every: every } = config;
  if (isSet(split) && isSet(url)) throw bothSetError(path, ["validation_split", "validation_data_url"], "Each names what is measured");
  if (isSet(every) && !isSet(split) && !isSet(url)) {
    throw new ArgumentError("Expected `validation_split` or `validation_data_url` beside `validation_every`, which has no effect alone.", {
      param: `${path}.validation_every`,
    });
  }
  return {
    batchSize,
    epochs: config.epochs ?? 1,
    shuffleSeed: config.shuffle_seed ?? null,
    adam: resolveAdam(config, DEFAULT_MAX_GRAD_NORM),
    validationSplit: split ?? null,
    validationEvery: every ?? null,
    rates: ratesOf(rate, config, path),
    path,
  };
}

/** Returns the learning rates of {@link StepSettings.rates}: the configured list, or a schedule from the configured peak rate. */
function ratesOf(rate: number | readonly number[], settings: StepConfig, path: string): StepSettings["rates"] {
  const { learning_rate_schedule: schedule, warmup_steps: steps, warmup_ratio: ratio, min_learning_rate: minimum } = settings;
  if (isSet(steps) && isSet(ratio)) throw bothSetError(path, ["warmup_steps", "warmup_ratio"], "They are two ways to say one thing");
  if (typeof rate !== "number") return listedRates(rate, settings, path);
  if (isSet(minimum) && minimum > rate) {
    throw new ArgumentError(`Expected \`min_learning_rate\` to be at most the \`learning_rate\` of ${rate}, got ${minimum}.`, {
      param: `${path}.min_learning_rate`,
    });
  }
  const kind = schedule ?? "constant";
  const isWarmedUp = (steps ?? ratio ?? 0) > 0;
  if (isSet(minimum) && minimum > 0 && kind === "constant" && !isWarmedUp) {
    throw new ArgumentError(
      "Expected a warm-up or another `learning_rate_schedule` beside `min_learning_rate`, which has no effect on a constant rate.",
      { param: `${path}.min_learning_rate` },
    );
  }
  return (stepCount) => {
    const rateSchedule = { kind, peak: rate, minimum: minimum ?? 0, warmupSteps: steps ?? Math.floor((ratio ?? 0) * stepCount) };
    return (step) => learningRate(step, stepCount, rateSchedule);
  };
}

/** Returns the learning rates of a configured list with one rate per step. The settings of a schedule are rejected beside a list. */
function listedRates(rates: readonly number[], settings: StepConfig, path: string): StepSettings["rates"] {
  const scheduleSettings = ["learning_rate_schedule", "warmup_steps", "warmup_ratio", "min_learning_rate"] as const;
  const unused = scheduleSettings.find((name) => isSet(settings[name]));
  if (unused !== undefined) {
    throw new ArgumentError(`Expected one \`learning_rate\` beside \`${unused}\`, got a list. The list is the schedule; leave one out.`, {
      param: `${path}.${unused}`,
    });
  }
  return (stepCount) => {
    if (rates.length === stepCount) return (step) => rates[step] as number;
    throw new ArgumentError(`Expected one learning rate per batch, ${stepCount} in all (over all epochs), got ${rates.length}.`, {
      param: "config.learning_rate",
    });
  };
}

/** Creates the error for two settings that exclude each other. */
function bothSetError(path: string, [first, second]: readonly [string, string], why: string): ArgumentError {
  return new ArgumentError(`Expected \`${first}\` or \`${second}\`, got both. ${why}; set one.`, {
    param: `${path}.${second}`,
  });
}

/** Whether a setting is neither null nor absent. */
function isSet<T>(value: T | null | undefined): value is T {
  return value !== null && value !== undefined;
}
