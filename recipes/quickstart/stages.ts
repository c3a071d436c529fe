/** Stages of the quickstart, written with a few library calls each. */
import { gatherTrajectoryGroups, type Model, type Policy, type Service, trajectory, type TrajectoryGroup, uploadDataset } from "whetstone";
import {
  extractAnswer,
  goldAnswer,
  MAX_COMPLETION_TOKENS,
  reverseMessages,
  reverseReward,
  type ReverseScenario,
  reverseScenario,
  type Split,
} from "../reverse-text/task.ts";
import { uniform } from "../shared/draws.ts";
import { rlLearningRate } from "../shared/sft-then-rl.ts";
import type { QuickstartConfig } from "./config.ts";

const CONCURRENCY = 256;

/** Greedy evaluation of a policy on problems without training. */
export interface Score {
  /** Fraction of problems answered exactly. */
  readonly exact: number;
  /** Mean reward. */
  readonly ratio: number;
  /** First four problems with the policy's completions. */
  readonly samples: readonly { readonly prompt: string; readonly wrote: string }[];
}

export function scenarios(split: Split, seed: number, from: number, count: number): ReverseScenario[] {
  return Array.from({ length: count }, (_, index) => reverseScenario(split, seed, from + index));
}

/** Evaluates a policy with one greedy completion per problem. */
export async function measure(policy: Policy, problems: readonly ReverseScenario[], signal: AbortSignal): Promise<Score> {
  const groups = await gatherTrajectoryGroups(
    problems,
    async (scenario, context) => {
      const t = trajectory({ messages: reverseMessages(scenario) });
      await t.sample(policy, { temperature: 0, maxCompletionTokens: MAX_COMPLETION_TOKENS, signal: context.signal });
      return t.finish({ reward: reverseReward(t.lastText, scenario), metrics: { exact: extractAnswer(t.lastText) === scenario.answer } });
    },
    { groupSize: 1, concurrency: CONCURRENCY, signal, progress: false },
  );
  return {
    exact: groups.stats.metrics["exact"]!.mean,
    ratio: groups.stats.reward.mean,
    samples: groups.slice(0, 4).map((group, index) => ({ prompt: problems[index]!.prompt, wrote: group.trajectories[0]!.lastText })),
  };
}

/** Runs supervised job number `job` on unused problems and returns its mean loss. */
export async function superviseJob(
  service: Service,
  model: Model,
  config: QuickstartConfig,
  job: number,
  signal: AbortSignal,
): Promise<number> {
  const { stepsPerJob, batchSize, learningRate } = config.sft;
  const count = stepsPerJob * batchSize;
  const train = scenarios("sft", config.seed, job * count, count).map((scenario) => ({
    messages: [...reverseMessages(scenario), { role: "assistant", content: goldAnswer(scenario) }],
  }));
  const dataset = await uploadDataset(service, { project: model.project, name: `${model.name}-sft`, train, signal });
  const losses: number[] = [];
  const running = await model.trainSft(dataset, { batchSize, learningRate, signal });
  for await (const event of running.events({ signal })) if (event.type === "gradient-step") losses.push(event.metrics["loss"] ?? NaN);
  return losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
}

/** Result of an RL step. */
export interface RlStep {
  /** Newest checkpoint; the sampled one if the batch had nothing to learn. */
  readonly step: number;
  readonly reward: number;
  readonly exact: number;
  readonly sampledTokens: number;
  readonly trainedTokens: number;
  readonly metrics: Readonly<Record<string, number>>;
}

/** Samples rollouts of a batch of problems with the newest checkpoint, then trains one step on them. */
export async function reinforce(model: Model, config: QuickstartConfig, index: number, step: number, signal: AbortSignal): Promise<RlStep> {
  const { prompts, groupSize, maxGradNorm } = config.rl;
  const policy = await model.policy(step);
  const rolled = await gatherTrajectoryGroups(
    scenarios("train", config.seed, index * prompts, prompts),
    async (scenario, context) => {
      const t = trajectory({ messages: reverseMessages(scenario) });
      await t.sample(policy, { temperature: 1, maxCompletionTokens: MAX_COMPLETION_TOKENS, seed: context.seed, signal: context.signal });
      return t.finish({ reward: reverseReward(t.lastText, scenario), metrics: { exact: extractAnswer(t.lastText) === scenario.answer } });
    },
    { groupSize, concurrency: CONCURRENCY, seed: config.seed * 1_000_003 + index, signal, progress: false },
  );
  const groups = config.shuffleRewards ? rolled.map((group, at) => shuffleRewards(group, config.seed, index, at)) : rolled;
  const { stats } = rolled;
  const found = { reward: stats.reward.mean, exact: stats.metrics["exact"]!.mean, sampledTokens: stats.tokens.completion };
  // Groups of equal rewards have zero advantages. The control run reaches this state after it has unlearned the task.
  if (stats.trainableGroups === 0) return { ...found, step, trainedTokens: 0, metrics: {} };
  const job = await model.train(groups, { learningRate: rlLearningRate(config, index), maxGradNorm, signal });
  const { metrics, step: trained } = await job.done({ signal });
  return { ...found, step: trained, trainedTokens: metrics["tokens/trained"] ?? found.sampledTokens, metrics };
}

/** Permutes the rewards of a group at random, so that rewards are independent of the completions. */
export function shuffleRewards(group: TrajectoryGroup, seed: number, step: number, index: number): TrajectoryGroup {
  const rewards = [...group.rewards];
  for (let i = rewards.length - 1; i > 0; i--) {
    const j = Math.floor(uniform(BigInt(seed), step, index, i) * (i + 1));
    [rewards[i], rewards[j]] = [rewards[j]!, rewards[i]!];
  }
  return group.with({ trajectories: group.trajectories.map((one, i) => one.with({ reward: rewards[i]! })) });
}
