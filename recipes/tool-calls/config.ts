import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Settings of the recipe. */
export const defaults: SftThenRlConfig = {
  base: "hf:HuggingFaceTB/SmolLM2-135M-Instruct",
  seed: 1,
  heldOut: 150,
  measureTemperature: 0,
  loraRank: 16,
  sft: { validation: 15, stopAtExact: 1, stepsPerJob: 8, maxJobs: 1, batchSize: 16, learningRate: 1e-3 },
  rl: { steps: 10, prompts: 10, groupSize: 8, peakLearningRate: 5e-4, warmupSteps: 3, maxGradNorm: 0.5 },
};
