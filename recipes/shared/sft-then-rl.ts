/** Stages shared by the recipes: evaluation, SFT on examples, RL. Each stage is one call of the library. */
import { type Model, type Policy, type Service, type TrainingRun, trainRl, trainSft, type TrajectoryGroup, uploadDataset } from "whetstone";
import type { ChatExample } from "whetstone/dataset";
import { defineEnvironment, type Environment, evaluate } from "whetstone/environment";

/** Settings of a run. */
export interface SftThenRlConfig {
  /**
   * Base model, as `baseModel` of `models.create`: a known name, a directory, a `.gguf` file, `hf:<owner>/<name>` or `ollama:<name>`.
   *
   * @default the model of the package
   */
  readonly base?: string | undefined;
  readonly seed: number;
  /** Number of held-out problems, evaluated after each stage. */
  readonly heldOut: number;
  /** Sampling temperature of every evaluation; 0 is greedy. */
  readonly measureTemperature: number;
  /** Rank of a trained adapter; without it, the full model is trained. @default none */
  readonly loraRank?: number | undefined;
  readonly sft: {
    /** Number of validation problems for early stopping; neither trained on nor reported. */
    readonly validation: number;
    /** Stop at this fraction of exact validation answers; RL improves from there. */
    readonly stopAtExact: number;
    /** Optimizer steps per job; the validation problems are evaluated after each job. */
    readonly stepsPerJob: number;
    /** Max number of SFT jobs; 0 = no SFT. */
    readonly maxJobs: number;
    readonly batchSize: number;
    readonly learningRate: number;
    /** Max global gradient norm. @default the service's */
    readonly maxGradNorm?: number | undefined;
  };
  readonly rl: {
    readonly steps: number;
    readonly prompts: number;
    readonly groupSize: number;
    /** Peak learning rate. The rate rises linearly over `warmupSteps` and decays linearly to 0.3 of the peak at the last step. */
    readonly peakLearningRate: number;
    readonly warmupSteps: number;
    readonly maxGradNorm: number;
  };
}

/** A task for the stages: its environment and its examples, all for one seed. */
export interface Recipe<S> {
  /** Environment; `train` has the scenarios of RL, `eval` those reported. */
  readonly environment: Environment<S>;
  readonly validation: readonly S[];
  /** Returns the conversation of example `index`, tools included. */
  readonly example: (index: number) => ChatExample;
  /** Name of the reward that is 1 for a correct answer. */
  readonly exact: string;
  /** Changes the rewards of an RL group before training. @default keeps the group */
  readonly scoreGroup?: ((group: TrajectoryGroup) => TrajectoryGroup) | undefined;
}

/** Input of a stage. */
export interface Stage<S> {
  readonly service: Service;
  readonly model: Model;
  readonly recipe: Recipe<S>;
  readonly config: SftThenRlConfig;
  /** Directory of the stage. */
  readonly runDir: string;
  readonly signal: AbortSignal;
}

/** Bounds of a confidence interval. */
export interface Interval {
  readonly low: number;
  readonly high: number;
}

/** Evaluation result of a policy. */
export interface Score {
  /** Fraction of correct answers. */
  readonly exact: number;
  /** Bounds of the 95 % confidence interval of `exact`. */
  readonly exactInterval: Interval;
  readonly reward: number;
  /** Unweighted mean of each reward, by name. */
  readonly rewards: Readonly<Record<string, number>>;
  /** Question and last text of the first rollouts. */
  readonly samples: readonly { readonly prompt: string; readonly wrote: string }[];
}

/** Returns the learning rate of RL step `index`. */
export function rlLearningRate({ rl }: Pick<SftThenRlConfig, "rl">, index: number): number {
  return rl.peakLearningRate * Math.min(1, (index + 1) / rl.warmupSteps) * (1 - (0.7 * index) / rl.steps);
}

const CONCURRENCY = 256;
/** Max retries of a rollout. A retried rollout has the same seed and therefore the same result, so a lost connection need not end a run. */
const RETRIES = 2;
/** Rollouts shown with a score. */
const SAMPLES = 4;
/** Checkpoint retention: two checkpoints suffice to resume. */
const KEEP_CHECKPOINTS = { recent: 2 };
/** Rollout retention: the report shows at most 24 steps. */
const KEEP_TRAJECTORIES = { every: 20 };

/** Evaluates a policy with one rollout per held-out scenario. */
export async function measure<S>(
  { environment, exact }: Recipe<S>,
  policy: Policy,
  { measureTemperature: temperature, seed }: SftThenRlConfig,
  signal: AbortSignal,
): Promise<Score> {
  const options = { temperature, seed: seed + 1, concurrency: CONCURRENCY, retries: RETRIES, signal };
  const { reward, rewards: estimates, groups } = await evaluate(environment, policy, options);
  const rewards = Object.fromEntries(Object.entries(estimates).map(([name, { mean }]) => [name, mean]));
  const samples = groups.slice(0, SAMPLES).flatMap(({ trajectories: [first] }) => {
    if (first === undefined) return [];
    const question = first.messages().find(({ role }) => role === "user");
    return [{ prompt: typeof question?.content === "string" ? question.content : "", wrote: first.lastText }];
  });
  const { mean = NaN, low = NaN, high = NaN } = estimates[exact] ?? {};
  return { exact: mean, exactInterval: { low, high }, reward: reward.mean, rewards, samples };
}

/** Starts SFT jobs on new examples until the fraction of exact validation answers reaches `stopAtExact`. */
export function learnFromExamples<S>({ service, model, recipe, config, runDir, signal }: Stage<S>): TrainingRun {
  const { stepsPerJob, batchSize, learningRate, maxGradNorm, maxJobs, stopAtExact } = config.sft;
  const { environment, validation, example, exact } = recipe;
  const count = stepsPerJob * batchSize;
  return trainSft({
    model,
    runDir,
    jobs: maxJobs,
    data: (job) => {
      const train = Array.from({ length: count }, (_, index) => example(job * count + index));
      return uploadDataset(service, { project: model.project, name: `${model.name}-sft`, train, signal });
    },
    train: { batchSize, learningRate, ...(maxGradNorm === undefined ? {} : { maxGradNorm }) },
    environment: defineEnvironment({ ...environment, scenarios: { ...environment.scenarios, eval: validation } }),
    evaluation: { every: 1, temperature: config.measureTemperature },
    stopWhen: ({ evaluation }) => (evaluation?.[`eval/metric/reward/${exact}`] ?? 0) >= stopAtExact,
    keepCheckpoints: KEEP_CHECKPOINTS,
    keepTrajectories: KEEP_TRAJECTORIES,
    concurrency: CONCURRENCY,
    report: false,
    signal,
  });
}

/** Starts RL: each step samples a batch of rollouts with the newest checkpoint and trains on them. */
export function learnFromPractice<S>({ model, recipe, config, runDir, signal }: Stage<S>): TrainingRun {
  const { steps, prompts, groupSize, maxGradNorm } = config.rl;
  return trainRl({
    model,
    runDir,
    environment: recipe.environment,
    steps,
    scenariosPerStep: prompts,
    groupSize,
    train: (step) => ({ learningRate: rlLearningRate(config, step), maxGradNorm }),
    seed: config.seed,
    scoreGroup: recipe.scoreGroup,
    keepCheckpoints: KEEP_CHECKPOINTS,
    keepTrajectories: KEEP_TRAJECTORIES,
    tokenReportEvery: KEEP_TRAJECTORIES.every,
    concurrency: CONCURRENCY,
    retries: RETRIES,
    // A policy that is always correct has no steps to train; skipped steps are not a failure here, regardless of their number.
    maxSkippedSteps: steps + 1,
    signal,
  });
}
