/** Supervised training runs. */
import { startDatasetRun } from "./dataset-run.ts";
import type { TrainSftOptions } from "./options.ts";
import type { TrainingRun } from "./training-run.ts";

/** Metrics of gradient steps whose sum is a metric of the run's step. */
const SUMS = ["num_trajectories", "num_tokens", "num_trainable_tokens"];

/**
 * Trains a model on examples: one supervised job per dataset, with evaluation after jobs, early stop, retention of checkpoints and resume.
 *
 * The run starts immediately. If it is interrupted, the same call with the same `runDir` resumes it and re-attaches to a running job.
 *
 * @param options - Model, data and run directory; all other options have defaults.
 * @returns The started run; its `done` resolves to the result.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds. Every other error rejects `done`.
 * @example
 * ```ts
 * const run = trainSft({ model, data: "artifact:///team/demo/examples:v0", train: { epochs: 2, learningRate: 2e-4 }, runDir: "runs/sft" });
 * console.log((await run.done).metrics["loss"]);
 * ```
 */
export function trainSft<S>(options: TrainSftOptions<S>): TrainingRun {
  const { model } = options;
  return startDatasetRun({
    kind: "sft",
    options,
    start: (dataset, settings) => model.trainSft(dataset, settings),
    sums: SUMS,
    means: ["loss"],
  });
}
