/** Validation of the thread and row counts in the options of the embedded engine. */
import { ConfigError } from "../../base/errors.ts";
import { shown } from "../../base/util/shown.ts";
import { MAX_THREADS } from "./runtime/thread-limits.ts";

/** Numbers of threads, and of sequences sampled at once (rows); see `OnnxEngineOptions`. */
interface Counts {
  readonly samplers?: number | undefined;
  readonly samplerThreads?: number | undefined;
  readonly trainerThreads?: number | undefined;
  readonly maxSamplingRows?: number | undefined;
}

/**
 * Checks the numbers of threads and rows.
 *
 * @throws ConfigError `E_CONFIG` for a number that is not an integer of at least 1, and for more than 4 trainer threads.
 */
export function checkThreadCounts({ samplers, samplerThreads, trainerThreads, maxSamplingRows }: Counts): void {
  for (const [param, value] of Object.entries({ samplers, samplerThreads, trainerThreads, maxSamplingRows })) {
    if (value === undefined || (Number.isInteger(value) && value >= 1)) continue;
    throw new ConfigError(`Expected \`${param}\` to be a whole number from 1, got ${shown(value)}`, { param });
  }
  if (trainerThreads !== undefined && trainerThreads > MAX_THREADS) {
    throw new ConfigError(
      `Expected \`trainerThreads\` to be at most ${MAX_THREADS}, got ${trainerThreads}: with more, the last bits of a step would depend on how many`,
      { param: "trainerThreads" },
    );
  }
}
