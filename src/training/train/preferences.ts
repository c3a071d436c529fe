/** Training runs on preference pairs. */
import { startDatasetRun } from "./dataset-run.ts";
import type { TrainPreferencesOptions } from "./options.ts";
import type { TrainingRun } from "./training-run.ts";

/** Metrics of gradient steps whose sum is a metric of the run's step. */
const SUMS = ["num_pairs", "num_tokens", "num_trainable_tokens"];
/** Metrics of gradient steps whose mean is a metric of the run's step. */
const MEANS = ["loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins"];

/**
 * Trains a model on preference pairs (DPO): one preference job per dataset, with evaluation after jobs, early stop, retention of checkpoints
 * and resume, as `trainSft`.
 *
 * @param options - Model, data and run directory; all other options have defaults.
 * @returns The started run; its `done` resolves to the result.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds. Every other error rejects `done`.
 * @source DPO: arXiv:2305.18290.
 * @example
 * ```ts
 * import { trainPreferences } from "whetstone/train";
 *
 * const run = trainPreferences({ model, data: "artifact:///team/demo/pairs:v0", train: { beta: 0.1 }, runDir: "runs/preferences" });
 * console.log((await run.done).metrics["rewards/accuracies"]);
 * ```
 */
export function trainPreferences<S>(options: TrainPreferencesOptions<S>): TrainingRun {
  const { model } = options;
  return startDatasetRun({
    kind: "preference",
    options,
    start: (dataset, settings) => model.trainPreferences(dataset, settings),
    sums: SUMS,
    means: MEANS,
  });
}
