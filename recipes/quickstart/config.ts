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
    /** Rises over `warmupSteps`, then falls in a line to three tenths. */
    readonly peakLearningRate: number;
    readonly warmupSteps: number;
    readonly maxGradNorm: number;
  };
}

/** The rate of RL step `index` of `config.rl.steps`. */
export function rlLearningRate({ rl }: QuickstartConfig, index: number): number {
  return rl.peakLearningRate * Math.min(1, (index + 1) / rl.warmupSteps) * (1 - (0.7 * index) / rl.steps);
}

export const defaults: QuickstartConfig = {
  seed: 1,
  shuffleRewards: false,
  heldOut: 256,
  sft: { validation: 256, stopAtExact: 0.31, stepsPerJob: 3, maxJobs: 60, batchSize: 32, learningRate: 3e-4 },
  rl: { steps: 360, prompts: 16, groupSize: 16, peakLearningRate: 3e-4, warmupSteps: 20, maxGradNorm: 0.5 },
};
