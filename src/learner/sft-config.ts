/** Conversion of an SFT job's configuration to settings. Unsupported settings are rejected by name. */

import { UnsupportedError } from "../base/errors.ts";
import type { SftConfig, SftExperimentalConfig } from "../base/schema/index.ts";
import { stepSettings, type StepSettings } from "./step-settings.ts";

/** Batch size, in examples, for `batch_size: "auto"`. */
const AUTO_BATCH_SIZE = 2;
/** Default of `learning_rate`. */
const DEFAULT_LEARNING_RATE = 5e-5;

/** SFT configuration with all defaults filled in. */
export interface SftSettings extends StepSettings {
  readonly assistantTurns: "all" | "last";
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
  const { enabled: isLogging = false, ...loggingSettings } = config?.metric_logging ?? {};
  if (isLogging || Object.keys(loggingSettings).length > 0) {
    throw new UnsupportedError(
      '`metric_logging` is not supported by this service: expected null or {"enabled": false}. Metrics are in the job\'s events.',
      { param: "config.metric_logging" },
    );
  }
  const batchSize = typeof config?.batch_size === "number" ? config.batch_size : AUTO_BATCH_SIZE;
  const jobSettings = { batchSize, learningRate: config?.learning_rate ?? DEFAULT_LEARNING_RATE, path: "experimental_config" };
  return { ...stepSettings(experimental ?? {}, jobSettings), assistantTurns: config?.assistant_turns ?? "all" };
}
