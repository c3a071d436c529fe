import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Settings of the recipe. `docs/notebook/2026-11-23-instructions.md` lists alternatives. */
export const defaults: SftThenRlConfig = {
  base: "hf:HuggingFaceTB/SmolLM2-135M-Instruct",
  seed: 1,
  heldOut: 160,
  measureTemperature: 0,
  loraRank: 16,
  sft: { validation: 16, stopAtExact: 1, stepsPerJob: 30, maxJobs: 1, batchSize: 16, learningRate: 1e-3 },
  rl: { steps: 30, prompts: 12, groupSize: 8, peakLearningRate: 5e-4, warmupSteps: 3, maxGradNorm: 0.5 },
};
