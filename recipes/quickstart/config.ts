/** Everything that decides how a run goes. The sweep behind the numbers is in `docs/explanation/experiments.md`. */
export interface QuickstartConfig {
  readonly seed: number;
  /** Permute rewards inside each group: the control, which must not learn. */
  readonly shuffleRewards: boolean;
  /** Held-out problems, which no training sees. */
  readonly heldOut: number;
  readonly sft: {
    /** Problems that decide when to stop; neither trained on nor reported. */
    readonly validation: number;
    /** Stop once this share of them is exact: the rest is left to RL. */
    readonly stopAtExact: number;
    /** Optimizer steps per job; the validation problems are measured after each job. */
    readonly stepsPerJob: number;
    readonly maxJobs: number;
    readonly batchSize: number;
    readonly learningRate: number;
  };
  readonly rl: {
    readonly steps: number;
    readonly prompts: number;
    readonly groupSize: number;
    readonly learningRate: number;
    readonly maxGradNorm: number;
  };
}

export const defaults: QuickstartConfig = {
  seed: 1,
  shuffleRewards: false,
  heldOut: 256,
  sft: { validation: 128, stopAtExact: 0.15, stepsPerJob: 20, maxJobs: 12, batchSize: 32, learningRate: 1e-3 },
  rl: { steps: 120, prompts: 16, groupSize: 16, learningRate: 3e-4, maxGradNorm: 0.5 },
};
