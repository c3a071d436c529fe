/** The stages that recipes share: measure, learn from examples, learn from practice. Each is one call of the library. */
import { type Model, type Policy, type Service, type TrainingRun, trainRl, trainSft, uploadDataset } from "whetstone";
import type { ChatExample } from "whetstone/dataset";
import { defineEnvironment, type Environment, evaluate } from "whetstone/environment";

/** Everything that decides how a run goes. */
export interface SftThenRlConfig {
  readonly seed: number;
  /** Games or problems that are measured after each stage. */
  readonly heldOut: number;
  /** Temperature of every measurement: 0 is greedy. */
  readonly measureTemperature: number;
  /** Rank of an adapter that is trained in place of the whole model. @default none */
  readonly loraRank?: number | undefined;
  readonly sft: {
    /** Problems that decide when to stop; neither trained on nor reported. */
    readonly validation: number;
    /** Stop once this share of them is exact: the rest is left to RL. */
    readonly stopAtExact: number;
    /** Optimizer steps per job; the validation problems are measured after each job. */
    readonly stepsPerJob: number;
    /** 0 = no examples at all. */
    readonly maxJobs: number;
    readonly batchSize: number;
    readonly learningRate: number;
    /** @default the service's */
    readonly maxGradNorm?: number | undefined;
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

/** A task with what the stages need beside its environment, all of it made for one seed. */
export interface Recipe<S> {
  /** `train` is what practice plays, `eval` what is reported. */
  readonly environment: Environment<S>;
  readonly validation: readonly S[];
  /** The conversation of example `index`, tools included. */
  readonly example: (index: number) => ChatExample;
  /** Name of the reward that is 1 for a right answer. */
  readonly exact: string;
}

/** What a stage needs. */
export interface Stage<S> {
  readonly service: Service;
  readonly model: Model;
  readonly recipe: Recipe<S>;
  readonly config: SftThenRlConfig;
  /** The stage's own directory. */
  readonly runDir: string;
  readonly signal: AbortSignal;
}

/** How good a policy is. */
export interface Score {
  /** Share of right answers. */
  readonly exact: number;
  readonly reward: number;
  /** Mean of each reward, unweighted, by name. */
  readonly rewards: Readonly<Record<string, number>>;
}

/** The rate of RL step `index`. */
export function rlLearningRate({ rl }: Pick<SftThenRlConfig, "rl">, index: number): number {
  return rl.peakLearningRate * Math.min(1, (index + 1) / rl.warmupSteps) * (1 - (0.7 * index) / rl.steps);
}

const CONCURRENCY = 256;
/** With its seed a rollout played again is the same one, so a lost connection need not end a run. */
const RETRIES = 2;
/** Two would do to go on from; the others are disk space. */
const KEEP_CHECKPOINTS = { recent: 2 };

/** Plays each held-out scenario once. */
export async function measure<S>(
  { environment, exact }: Recipe<S>,
  policy: Policy,
  { measureTemperature: temperature, seed }: SftThenRlConfig,
  signal: AbortSignal,
): Promise<Score> {
  const options = { temperature, seed: seed + 1, concurrency: CONCURRENCY, retries: RETRIES, signal };
  const { reward, rewards: estimates } = await evaluate(environment, policy, options);
  const rewards = Object.fromEntries(Object.entries(estimates).map(([name, { mean }]) => [name, mean]));
  return { exact: rewards[exact] ?? NaN, reward: reward.mean, rewards };
}

/** Supervised jobs, each on examples that no earlier one saw, until enough of the validation problems are right. */
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
    concurrency: CONCURRENCY,
    report: false,
    signal,
  });
}

/** RL: each step plays a batch with the newest checkpoint and trains on it. */
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
    keepCheckpoints: KEEP_CHECKPOINTS,
    concurrency: CONCURRENCY,
    retries: RETRIES,
    // A policy that is always right has nothing left to learn from, and that is no failure, however many steps it lasts.
    maxSkippedSteps: steps + 1,
    signal,
  });
}
