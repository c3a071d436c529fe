import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Settings of the recipe. */
export const defaults: SftThenRlConfig = {
  base: "hf:HuggingFaceTB/SmolLM2-135M-Instruct",
  seed: 1,
  heldOut: 150,
  measureTemperature: 0,
  loraRank: 16,
  sft: { validation: 70, stopAtExact: 0.3, stepsPerJob: 4, maxJobs: 12, batchSize: 16, learningRate: 5e-4 },
  rl: { steps: 20, prompts: 14, groupSize: 8, peakLearningRate: 3e-4, warmupSteps: 2, maxGradNorm: 0.5 },
};
