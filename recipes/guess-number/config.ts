import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Settings of the recipe. `docs/notebook/2026-11-21-guess-number.md` lists alternatives. */
export const defaults: SftThenRlConfig = {
  seed: 1,
  heldOut: 256,
  measureTemperature: 1,
  sft: { validation: 256, stopAtExact: 0.55, stepsPerJob: 10, maxJobs: 40, batchSize: 32, learningRate: 1e-3 },
  rl: { steps: 100, prompts: 16, groupSize: 16, peakLearningRate: 3e-4, warmupSteps: 10, maxGradNorm: 0.5 },
};
