/** Statistics of rewards, turns, tokens and metrics over trajectory groups. */

import type { AssistantChoice, RolloutException } from "../schema/index.ts";
import { getOrInsert } from "../util/values.ts";
import { histogram, type Histogram } from "./histogram.ts";
import { clusteredMean, type Estimate } from "./interval.ts";
import { byScenario } from "./scenarios.ts";
import { isTrainable } from "./token-values.ts";
import type { Scalar } from "./trajectory.ts";

/** Summary statistics. All except `count` are NaN when `count` is 0. */
export interface Summary {
  /** Number of values. */
  readonly count: number;
  /** Arithmetic mean of the values. */
  readonly mean: number;
  /** Population standard deviation: `sqrt(mean((x − mean)²))`. */
  readonly std: number;
  /** Smallest of the values. */
  readonly min: number;
  /** Lower quartile: 25 % of the values are at most this. */
  readonly p25: number;
  /** Middle of the sorted values; the mean of the middle two for an even number of values. */
  readonly median: number;
  /** Upper quartile: 75 % of the values are at most this. */
  readonly p75: number;
  /** Largest of the values. */
  readonly max: number;
}

/** Statistics over a list of groups. */
export interface GroupStatistics {
  /** Number of groups, empty ones included. */
  readonly groups: number;
  /** Number of successful rollouts. */
  readonly trajectories: number;
  /** Number of failed rollouts. */
  readonly exceptions: number;
  /** Fraction of failed rollouts: `exceptions / (trajectories + exceptions)`; 0 when both are 0. */
  readonly exceptionRate: number;
  /** Number of trainable groups: at least two trajectories with different rewards, or token advantages other than 0. */
  readonly trainableGroups: number;
  /** Summary of the rewards of all trajectories. */
  readonly reward: Summary;
  /** Mean reward with its 95 % confidence interval; scenarios are the independent samples, see `clusteredMean`. */
  readonly rewardMean: Estimate;
  /** Population standard deviation of the rewards within a group, averaged over groups of at least two; NaN without such a group. */
  readonly rewardStdWithinGroups: number;
  /** Sampled turns per trajectory. */
  readonly turns: {
    /** Summary of the number of turns. */
    readonly perTrajectory: Summary;
    /** Number of trajectories per bin of turns. */
    readonly histogram: Histogram;
  };
  /** Token counts, choices of additional histories included. */
  readonly tokens: {
    /** Sampled tokens over all choices. */
    readonly completion: number;
    /** Sampled tokens per trajectory. */
    readonly completionPerTrajectory: Summary;
    /** Sampled tokens per trajectory in bins `[0, 1)`, `[1, 2)`, `[2, 4)`, `[4, 8)` … */
    readonly completionHistogram: Histogram;
    /** Prompt and sampled tokens of each trajectory's longest turn, which must fit the model's context. */
    readonly longestPerTrajectory: Summary;
    /** Prompt and sampled tokens of each trajectory's longest turn, in the same bins. */
    readonly longestHistogram: Histogram;
    /** Prompt tokens over all choices; a prefix sent twice counts twice. */
    readonly prompt: number;
  };
  /** Summary of each trajectory metric by name, over the trajectories that have it; booleans count as 0 and 1. */
  readonly metrics: Readonly<Record<string, Summary>>;
}

/** Input of {@link statisticsOf}: a `TrajectoryGroup` or any object of this shape. */
export interface StatisticsInput {
  readonly trajectories: readonly {
    readonly reward: number;
    readonly metrics: Readonly<Record<string, number | boolean>>;
    readonly allChoices: readonly AssistantChoice[];
    readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
  }[];
  readonly exceptions: readonly RolloutException[];
  readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
}

/**
 * Computes mean, population standard deviation and quantiles (linear interpolation between the two nearest ranks).
 *
 * @param values - Shape `[N]`; not modified.
 * @returns Summary; all fields except `count` are NaN for an empty list.
 * @example
 * ```ts
 * const { mean, p75 } = summarize([1, 2, 3, 4]); // 2.5, 3.25
 * ```
 */
export function summarize(values: readonly number[]): Summary {
  const sorted = [...values].sort((a, b) => a - b);
  const count = sorted.length;
  const mean = count === 0 ? Number.NaN : values.reduce((sum, value) => sum + value, 0) / count;
  const variance = count === 0 ? Number.NaN : values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / count;
  return {
    count,
    mean,
    std: Math.sqrt(variance),
    min: quantile(sorted, 0),
    p25: quantile(sorted, 0.25),
    median: quantile(sorted, 0.5),
    p75: quantile(sorted, 0.75),
    max: quantile(sorted, 1),
  };
}

/**
 * Returns the quantile with linear interpolation between the two nearest ranks; NaN for an empty list.
 *
 * @param sorted - Ascending.
 * @param q - Probability, in [0, 1].
 * @source Hyndman, Fan, The American Statistician 50 (1996), definition 7.
 */
export function quantile(sorted: ArrayLike<number>, q: number): number {
  if (sorted.length === 0) return Number.NaN;
  const rank = q * (sorted.length - 1);
  const low = sorted[Math.floor(rank)] as number;
  const high = sorted[Math.ceil(rank)] as number;
  return low + (high - low) * (rank - Math.floor(rank));
}

/** Returns the number of sampled tokens of a choice: its token ids, or else its log-probabilities. */
export function completionTokens(choice: AssistantChoice): number {
  return choice.token_ids?.length ?? choice.logprobs?.content?.length ?? 0;
}

/** Returns the number of prompt and sampled tokens of a choice, i.e. the length of the sequence that ends with it. */
export function sequenceTokens(choice: AssistantChoice): number {
  return (choice.prompt_token_ids?.length ?? 0) + completionTokens(choice);
}

/** Computes statistics over all trajectories of all groups. */
export function statisticsOf(groups: readonly StatisticsInput[]): GroupStatistics {
  const trajectories = groups.flatMap((group) => group.trajectories);
  const exceptions = groups.reduce((sum, group) => sum + group.exceptions.length, 0);
  const rewardsByGroup = groups.map(rewardsOf);
  const total = trajectories.length + exceptions;
  return {
    groups: groups.length,
    trajectories: trajectories.length,
    exceptions,
    exceptionRate: total === 0 ? 0 : exceptions / total,
    trainableGroups: groups.filter((group, index) =>
      isTrainable(
        rewardsByGroup[index] ?? [],
        group.trajectories.flatMap(({ allChoices }) => allChoices),
      ),
    ).length,
    reward: summarize(trajectories.map((trajectory) => trajectory.reward)),
    rewardMean: clusteredMean(byScenario(groups).map((scenarioGroups) => scenarioGroups.flatMap(rewardsOf))),
    rewardStdWithinGroups: summarize(rewardsByGroup.filter((rewards) => rewards.length > 1).map((rewards) => summarize(rewards).std)).mean,
    ...tokenStatistics(trajectories.map((trajectory) => trajectory.allChoices)),
    metrics: metricStatistics(trajectories),
  };
}

/** Returns the rewards of a group's trajectories in order. */
function rewardsOf({ trajectories }: StatisticsInput): number[] {
  return trajectories.map(({ reward }) => reward);
}

/** Computes the statistics of turns and tokens. @param choices - Sampled turns of each trajectory. */
function tokenStatistics(choices: readonly (readonly AssistantChoice[])[]): Pick<GroupStatistics, "turns" | "tokens"> {
  const turns = choices.map((each) => each.length);
  const sampled = choices.map((each) => each.reduce((sum, choice) => sum + completionTokens(choice), 0));
  const longest = choices.map((each) => each.reduce((max, choice) => Math.max(max, sequenceTokens(choice)), 0));
  return {
    turns: { perTrajectory: summarize(turns), histogram: histogram(turns) },
    tokens: {
      completion: sampled.reduce((sum, count) => sum + count, 0),
      completionPerTrajectory: summarize(sampled),
      completionHistogram: histogram(sampled),
      longestPerTrajectory: summarize(longest),
      longestHistogram: histogram(longest),
      prompt: choices.flat().reduce((sum, choice) => sum + (choice.prompt_token_ids?.length ?? 0), 0),
    },
  };
}

/** Computes the summary of each metric over the trajectories that have it. */
function metricStatistics(trajectories: readonly Pick<StatisticsInput["trajectories"][number], "metrics">[]): Record<string, Summary> {
  const metrics = new Map<string, number[]>();
  for (const trajectory of trajectories) {
    for (const [name, value] of Object.entries(trajectory.metrics)) {
      getOrInsert(metrics, name, () => []).push(Number(value));
    }
  }
  return Object.fromEntries([...metrics].map(([name, values]) => [name, summarize(values)]));
}
