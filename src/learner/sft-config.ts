/** Conversion of an SFT job's configuration to settings. Unsupported settings are rejected by name. */

import { ArgumentError, UnsupportedError } from "../base/errors.ts";
import type { SftConfig, SftExperimentalConfig } from "../base/schema/index.ts";
import { learningRate } from "./schedule.ts";
import { resolveAdam } from "./rl-config.ts";
import type { AdamParams } from "../base/training-rows.ts";

/** Batch size, in examples, for `batch_size: "auto"`. */
const AUTO_BATCH_SIZE = 2;
const DEFAULT_LEARNING_RATE = 5e-5;
const DEFAULT_MAX_GRAD_NORM = 1;

/** SFT configuration with all defaults filled in. */
export interface SftSettings {
  readonly batchSize: number;
  readonly epochs: number;
  /** Seed of the example order; null = file order. */
  readonly shuffleSeed: number | null;
  readonly assistantTurns: "all" | "last";
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
}

/**
 * Checks a configuration that the schema has already accepted, and fills in the defaults. Null and absent mean the default: batch size 2,
 * learning rate 5e-5, one epoch, file order, gradient norm clipped at 1, no weight decay, β 0.9 and 0.99, nothing held out.
 *
 * @param config - SFT configuration of the job.
 * @param experimental - Experimental configuration of the job.
 * @throws ArgumentError `E_ARGUMENT` for settings that contradict each other.
 * @throws UnsupportedError `E_UNSUPPORTED` for `metric_logging`.
 */
export function checkSftConfig(config?: SftConfig | null, experimental?: SftExperimentalConfig | null): SftSettings {
  if ((config?.metric_logging?.enabled ?? false) || Object.keys(config?.metric_logging ?? {}).some((key) => key !== "enabled")) {
    throw new UnsupportedError(
      '`metric_logging` is not supported by this service: expected null or {"enabled": false}. Metrics are in the job\'s events.',
      { param: "config.metric_logging" },
    );
  }
  const { validation_split: split, validation_data_url: url, validation_every: every } = experimental ?? {};
  if (isSet(split) && isSet(url)) throw bothSetError("validation_split", "validation_data_url", "Each names what is measured");
  if (isSet(every) && !isSet(split) && !isSet(url)) {
    throw new ArgumentError("Expected `validation_split` or `validation_data_url` beside `validation_every`, which has no effect alone.", {
      param: "experimental_config.validation_every",
    });
  }
  return {
    batchSize: typeof config?.batch_size === "number" ? config.batch_size : AUTO_BATCH_SIZE,
    epochs: experimental?.epochs ?? 1,
    shuffleSeed: experimental?.shuffle_seed ?? null,
    assistantTurns: config?.assistant_turns ?? "all",
    adam: resolveAdam(experimental ?? {}, DEFAULT_MAX_GRAD_NORM),
    validationSplit: split ?? null,
    validationEvery: every ?? null,
    rates: ratesOf(config?.learning_rate ?? DEFAULT_LEARNING_RATE, experimental ?? {}),
  };
}

/** Returns the learning rates of {@link SftSettings.rates}: the configured list, or a schedule from the configured peak rate. */
function ratesOf(rate: number | readonly number[], experimental: SftExperimentalConfig): SftSettings["rates"] {
  const { learning_rate_schedule: schedule, warmup_steps: steps, warmup_ratio: ratio, min_learning_rate: minimum } = experimental;
  if (isSet(steps) && isSet(ratio)) throw bothSetError("warmup_steps", "warmup_ratio", "They are two ways to say one thing");
  if (typeof rate !== "number") {
    const names = ["learning_rate_schedule", "warmup_steps", "warmup_ratio", "min_learning_rate"] as const;
    const unused = names.find((name) => isSet(experimental[name]));
    if (unused !== undefined) {
      throw new ArgumentError(`Expected one \`learning_rate\` beside \`${unused}\`, got a list. The list is the schedule; leave one out.`, {
        param: `experimental_config.${unused}`,
      });
    }
    return (stepCount) => {
      if (rate.length === stepCount) return (step) => rate[step] as number;
      throw new ArgumentError(`Expected one learning rate per batch, ${stepCount} in all (over all epochs), got ${rate.length}.`, {
        param: "config.learning_rate",
      });
    };
  }
  if (isSet(minimum) && minimum > rate) {
    throw new ArgumentError(`Expected \`min_learning_rate\` to be at most the \`learning_rate\` of ${rate}, got ${minimum}.`, {
      param: "experimental_config.min_learning_rate",
    });
  }
  const kind = schedule ?? "constant";
  const isWarmedUp = (steps ?? ratio ?? 0) > 0;
  if (isSet(minimum) && minimum > 0 && kind === "constant" && !isWarmedUp) {
    throw new ArgumentError(
      "Expected a warm-up or another `learning_rate_schedule` beside `min_learning_rate`, which has no effect on a constant rate.",
      { param: "experimental_config.min_learning_rate" },
    );
  }
  return (stepCount) => {
    const given = { kind, peak: rate, minimum: minimum ?? 0, warmupSteps: steps ?? Math.floor((ratio ?? 0) * stepCount) };
    return (step) => learningRate(step, stepCount, given);
  };
}

/** Creates the error for two settings that exclude each other. */
function bothSetError(first: string, second: string, why: string): ArgumentError {
  return new ArgumentError(`Expected \`${first}\` or \`${second}\`, got both. ${why}; set one.`, {
    param: `experimental_config.${second}`,
  });
}

function isSet<T>(value: T | null | undefined): value is T {
  return value !== null && value !== undefined;
}
