import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Settings of the recipe, equal to those in the quickstart. `docs/notebook/2026-11-20-reverse-text.md` lists alternatives. */
export const defaults: SftThenRlConfig = {
  seed: 1,
  heldOut: 256,
  measureTemperature: 0,
  sft: { validation: 256, stopAtExact: 0.31, stepsPerJob: 3, maxJobs: 60, batchSize: 32, learningRate: 3e-4 },
  rl: { steps: 360, prompts: 16, groupSize: 16, peakLearningRate: 3e-4, warmupSteps: 20, maxGradNorm: 0.5 },
};
