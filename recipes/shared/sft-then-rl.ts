/** The stages that recipes share: measure, learn from examples, learn from practice. Each is a few lines of the library. */
import {
  gatherTrajectoryGroups,
  type GatherOptions,
  type Model,
  type Policy,
  type Service,
  type TrajectoryGroups,
  uploadDataset,
} from "whetstone";
import type { ChatExample } from "whetstone/dataset";
import { type Environment, environmentRollout, trainScenarios } from "whetstone/environment";

/** Everything that decides how a run goes. */
export interface SftThenRlConfig {
  readonly seed: number;
  /** Games or problems that are measured after each stage. */
  readonly heldOut: number;
  /** Temperature of every measurement: 0 is greedy. */
  readonly measureTemperature: number;
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

/** How good a policy is. */
export interface Score {
  /** Share of right answers. */
  readonly exact: number;
  readonly reward: number;
  /** Mean of each reward, unweighted, by name. */
  readonly rewards: Readonly<Record<string, number>>;
}

/** The rate of RL step `index`. */
export function rlLearningRate({ rl }: SftThenRlConfig, index: number): number {
  return rl.peakLearningRate * Math.min(1, (index + 1) / rl.warmupSteps) * (1 - (0.7 * index) / rl.steps);
}

const CONCURRENCY = 256;

/** Plays scenarios, `options.groupSize` times each. */
function play<S>(recipe: Recipe<S>, scenarios: readonly S[], options: GatherOptions<S>): Promise<TrajectoryGroups> {
  return gatherTrajectoryGroups(scenarios, environmentRollout(recipe.environment), {
    concurrency: CONCURRENCY,
    // With its seed a rollout played again is the same one, so a lost connection need not end the run.
    retries: 2,
    ...options,
  });
}

function scoreOf<S>({ environment, exact }: Recipe<S>, { stats }: TrajectoryGroups): Score {
  const mean = (name: string) => stats.metrics[`reward/${name}`]?.mean ?? NaN;
  return {
    exact: mean(exact),
    reward: stats.reward.mean,
    rewards: Object.fromEntries(environment.rewards.map(({ name }) => [name, mean(name)])),
  };
}

/** Plays each of some scenarios once; `held-out` and `validation` have draws of their own, should they share scenarios. */
export async function measure<S>(
  recipe: Recipe<S>,
  policy: Policy,
  which: "held-out" | "validation",
  { measureTemperature: temperature, seed }: SftThenRlConfig,
  signal: AbortSignal,
): Promise<Score> {
  const scenarios = which === "held-out" ? recipe.environment.scenarios.eval : recipe.validation;
  const drawn = which === "held-out" ? 2 * seed : 2 * seed + 1;
  return scoreOf(recipe, await play(recipe, scenarios, { policy, groupSize: 1, temperature, seed: drawn, signal }));
}

/** One supervised job on examples that no earlier job saw; returns its mean loss. */
export async function superviseJob<S>(
  service: Service,
  model: Model,
  recipe: Recipe<S>,
  { sft }: SftThenRlConfig,
  job: number,
  signal: AbortSignal,
): Promise<number> {
  const { stepsPerJob, batchSize, learningRate } = sft;
  const count = stepsPerJob * batchSize;
  const train = Array.from({ length: count }, (_, index) => recipe.example(job * count + index));
  const dataUrl = await uploadDataset(service, { project: model.project, name: `${model.name}-sft`, train, signal });
  const losses: number[] = [];
  const running = await model.trainSft(dataUrl, { batchSize, learningRate, signal });
  for await (const event of running.events({ signal })) if (event.type === "gradient-step") losses.push(event.metrics["loss"] ?? NaN);
  return losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
}

/** What one RL step did. */
export interface RlStep extends Score {
  /** The newest checkpoint: the one sampled from, when nothing could be learned from the batch. */
  readonly step: number;
  readonly sampledTokens: number;
  readonly trainableGroups: number;
}

/** Practice on one batch with the newest checkpoint, then one training step on it. */
export async function reinforce<S>(
  model: Model,
  recipe: Recipe<S>,
  config: SftThenRlConfig,
  index: number,
  step: number,
  signal: AbortSignal,
): Promise<RlStep> {
  const { prompts, groupSize, maxGradNorm } = config.rl;
  const scenarios = trainScenarios(recipe.environment.scenarios.train, { seed: config.seed, from: index * prompts, count: prompts });
  const policy = await model.policy(step);
  const groups = await play(recipe, scenarios, { policy, groupSize, seed: config.seed * 1_000_003 + index, signal });
  const { tokens, trainableGroups } = groups.stats;
  const found = { ...scoreOf(recipe, groups), sampledTokens: tokens.completion, trainableGroups };
  // Attempts that all score the same say nothing about what to do more of.
  if (trainableGroups === 0) return { ...found, step };
  const job = await model.train(groups, { learningRate: rlLearningRate(config, index), maxGradNorm, signal });
  return { ...found, step: (await job.done({ signal })).step };
}
