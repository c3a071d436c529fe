import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Settings of a run; evaluation is greedy. `docs/notebook/2026-11-20-reverse-text.md` has the sweep from which the values were chosen. */
export interface QuickstartConfig extends Omit<SftThenRlConfig, "measureTemperature"> {
  /** Permute rewards inside each group. A control experiment, in which the model must not learn. */
  readonly shuffleRewards: boolean;
}

export const defaults: QuickstartConfig = {
  seed: 1,
  shuffleRewards: false,
  heldOut: 256,
  sft: { validation: 256, stopAtExact: 0.31, stepsPerJob: 3, maxJobs: 60, batchSize: 32, learningRate: 3e-4 },
  rl: { steps: 360, prompts: 16, groupSize: 16, peakLearningRate: 3e-4, warmupSteps: 20, maxGradNorm: 0.5 },
};
