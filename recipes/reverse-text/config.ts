import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** How the recipe runs: the settings of the quickstart. What was tried besides is in `docs/explanation/experiments.md`. */
export const defaults: SftThenRlConfig = {
  seed: 1,
  heldOut: 256,
  measureTemperature: 0,
  sft: { validation: 256, stopAtExact: 0.31, stepsPerJob: 3, maxJobs: 60, batchSize: 32, learningRate: 3e-4 },
  rl: { steps: 360, prompts: 16, groupSize: 16, peakLearningRate: 3e-4, warmupSteps: 20, maxGradNorm: 0.5 },
};
