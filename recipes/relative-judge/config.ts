import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Settings of the recipe: RL without examples. */
export const defaults: SftThenRlConfig = {
  seed: 1,
  heldOut: 256,
  measureTemperature: 0,
  sft: { validation: 1, stopAtExact: 1, stepsPerJob: 1, maxJobs: 0, batchSize: 32, learningRate: 3e-4 },
  rl: { steps: 60, prompts: 16, groupSize: 8, peakLearningRate: 3e-4, warmupSteps: 5, maxGradNorm: 0.5 },
};
