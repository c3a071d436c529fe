import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Settings of the recipe. `docs/notebook/2026-11-23-instructions.md` lists alternatives. */
export const defaults: SftThenRlConfig = {
  base: "HuggingFaceTB/SmolLM2-135M-Instruct",
  seed: 1,
  heldOut: 160,
  measureTemperature: 0,
  loraRank: 16,
  sft: { validation: 16, stopAtExact: 1, stepsPerJob: 36, maxJobs: 1, batchSize: 16, learningRate: 1e-3 },
  rl: { steps: 24, prompts: 12, groupSize: 8, peakLearningRate: 1e-3, warmupSteps: 2, maxGradNorm: 0.5 },
};
