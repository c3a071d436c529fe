/** Stages of the quickstart as single library calls, so that the benchmark can time and measure each step. */
import { gatherTrajectoryGroups, type Model, type Policy, type Service, trajectory, uploadDataset } from "whetstone";
import {
  extractAnswer,
  goldAnswer,
  MAX_COMPLETION_TOKENS,
  reverseMessages,
  reverseReward,
  type ReverseScenario,
  reverseScenario,
  type Split,
} from "../../recipes/reverse-text/task.ts";
import { rlLearningRate, type SftThenRlConfig } from "../../recipes/shared/sft-then-rl.ts";

const CONCURRENCY = 256;

/** Greedy evaluation of a policy on problems without training. */
export interface Score {
  /** Fraction of problems answered exactly. */
  readonly exact: number;
  /** Mean reward. */
  readonly ratio: number;
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
  };
}

/** Runs supervised job number `job` on unused problems and returns its mean loss. */
export async function superviseJob(
  service: Service,
  model: Model,
  config: SftThenRlConfig,
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
export async function reinforce(model: Model, config: SftThenRlConfig, index: number, step: number, signal: AbortSignal): Promise<RlStep> {
  const { prompts, groupSize, maxGradNorm } = config.rl;
  const policy = await model.policy(step);
  const groups = await gatherTrajectoryGroups(
    scenarios("train", config.seed, index * prompts, prompts),
    async (scenario, context) => {
      const t = trajectory({ messages: reverseMessages(scenario) });
      await t.sample(policy, { temperature: 1, maxCompletionTokens: MAX_COMPLETION_TOKENS, seed: context.seed, signal: context.signal });
      return t.finish({ reward: reverseReward(t.lastText, scenario), metrics: { exact: extractAnswer(t.lastText) === scenario.answer } });
    },
    { groupSize, concurrency: CONCURRENCY, seed: config.seed * 1_000_003 + index, signal, progress: false },
  );
  const { stats } = groups;
  const found = { reward: stats.reward.mean, exact: stats.metrics["exact"]!.mean, sampledTokens: stats.tokens.completion };
  // Groups of equal rewards have zero advantages.
  if (stats.trainableGroups === 0) return { ...found, step, trainedTokens: 0, metrics: {} };
  const job = await model.train(groups, { learningRate: rlLearningRate(config, index), maxGradNorm, signal });
  const { metrics, step: trained } = await job.done({ signal });
  return { ...found, step: trained, trainedTokens: metrics["tokens/trained"] ?? found.sampledTokens, metrics };
}
