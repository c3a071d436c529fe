import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Settings of the recipe. `docs/notebook/2026-11-21-tool-lookup.md` lists alternatives. */
export const defaults: SftThenRlConfig = {
  seed: 1,
  heldOut: 256,
  measureTemperature: 0,
  sft: { validation: 128, stopAtExact: 0.4, stepsPerJob: 1, maxJobs: 20, batchSize: 32, learningRate: 3e-4 },
  rl: { steps: 60, prompts: 16, groupSize: 8, peakLearningRate: 3e-4, warmupSteps: 10, maxGradNorm: 0.5 },
};
