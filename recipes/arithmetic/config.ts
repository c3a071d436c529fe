import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Settings of the recipe. `docs/notebook/2026-11-21-arithmetic.md` and `2026-11-23-signal-of-a-curriculum.md` list alternatives. */
export const defaults: SftThenRlConfig = {
  seed: 1,
  heldOut: 256,
  measureTemperature: 0,
  sft: { validation: 256, stopAtExact: 0.45, stepsPerJob: 50, maxJobs: 40, batchSize: 32, learningRate: 1e-3 },
  rl: { steps: 200, prompts: 64, groupSize: 4, peakLearningRate: 3e-4, warmupSteps: 20, maxGradNorm: 0.5 },
};
