import type { SftThenRlConfig } from "../shared/sft-then-rl.ts";

/** Everything that decides how a run goes; it measures greedily. The sweep behind the numbers is in `docs/explanation/experiments.md`. */
export interface QuickstartConfig extends Omit<SftThenRlConfig, "measureTemperature"> {
  /** Permute rewards inside each group: the control, which must not learn. */
  readonly shuffleRewards: boolean;
}

export const defaults: QuickstartConfig = {
  seed: 1,
  shuffleRewards: false,
  heldOut: 256,
  sft: { validation: 256, stopAtExact: 0.31, stepsPerJob: 3, maxJobs: 60, batchSize: 32, learningRate: 3e-4 },
  rl: { steps: 360, prompts: 16, groupSize: 16, peakLearningRate: 3e-4, warmupSteps: 20, maxGradNorm: 0.5 },
};
