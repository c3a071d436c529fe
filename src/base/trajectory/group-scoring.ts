/** Rewards that compare the rollouts of a group. `scoring.ts` has the rewards of single rollouts. */

import { createHash } from "node:crypto";
import { ConfigError, isAbort } from "../errors.ts";
import type { RolloutException } from "../schema/index.ts";
import type { TrajectoryGroup } from "./group.ts";
import { addMetrics, checkedScore, REWARD_PREFIX, RewardError, rewardFailure, type RewardScore, withScore } from "./scoring.ts";
import type { Trajectory } from "./trajectory.ts";

/** Metric with the reward that a rollout had before its group was scored. */
export const INDEPENDENT_REWARD = "independent_reward";

/** Argument of a group reward function. */
export interface GroupRewardInput<S> {
  /** Scenario that was played. */
  readonly scenario: S;
  /** Successful rollouts of the scenario, in order; at least one. */
  readonly trajectories: readonly Trajectory[];
  /** Seed derived from the group's `seed` and `scenario_index`, in [0, 2^48): for random choices that a resumed run repeats. */
  readonly seed: number;
  /** Aborts with the run. Pass it to every operation that waits. */
  readonly signal: AbortSignal;
}

/** Value of a group reward for one rollout, with additional data for its trajectory. */
export type GroupScore = RewardScore;

/** Result of a group reward function with data about the group as a whole. */
export interface GroupScores {
  /** One score per trajectory, in the order of the input. An error in the list fails the rollout at its position. */
  readonly scores: readonly (number | boolean | GroupScore | Error)[];
  /** Metrics added to the group. Numbers of the same name from several rewards are added up. @default {} */
  readonly metrics?: Readonly<Record<string, number | boolean>> | undefined;
  /** Log lines appended to the group. @default [] */
  readonly logs?: readonly string[] | undefined;
}

/** Result of a group reward function: a list with one score per trajectory, or the list with data about the group. */
export type GroupRewardResult = GroupScores["scores"] | GroupScores;

/** Function that scores the rollouts of one scenario relative to each other. */
export type GroupRewardFunction<S> = (input: GroupRewardInput<S>) => GroupRewardResult | Promise<GroupRewardResult>;

/** Named component of the total reward that is computed from a whole group. */
export interface GroupReward<S> {
  /** Name of the reward; its raw value is recorded as the metric `reward/<name>` of each trajectory. */
  readonly name: string;
  /** Factor of the raw value in the total reward; finite. 0 records the value without rewarding it. */
  readonly weight: number;
  /** Returns one raw value per trajectory. */
  readonly scoreGroup: GroupRewardFunction<S>;
}

/**
 * Accepted forms of a group reward: a {@link GroupReward} with an optional weight (default 1), or a named function (its name, weight 1).
 */
export type GroupRewardLike<S> =
  | GroupRewardFunction<S>
  | (Omit<GroupReward<S>, "weight"> & {
      /** Factor of the raw value in the total reward; finite. @default 1 */
      readonly weight?: number | undefined;
    });

/**
 * Converts a list of group rewards.
 *
 * @param rewards - List; may be empty.
 * @param owner - Object that the rewards belong to, for the message of an error.
 * @param taken - Names of the owner's other rewards.
 * @throws ConfigError `E_CONFIG` if the value is not a list, a reward is invalid, or two rewards have the same name.
 */
export function normalizedGroupRewards<S>(
  rewards: readonly GroupRewardLike<S>[],
  owner: string,
  taken: Iterable<string>,
): readonly GroupReward<S>[] {
  const fail = (problem: string): never => {
    throw new ConfigError(`Expected the group rewards of ${owner} ${problem}`, { param: "groupRewards" });
  };
  if (!Array.isArray(rewards)) return fail(`to be a list, got ${typeof rewards}`);
  const names = new Set(taken);
  const normalized = (rewards as readonly GroupRewardLike<S>[]).map((part) => {
    const { name, weight = 1, scoreGroup } = typeof part === "function" ? { name: part.name, scoreGroup: part } : part;
    if (typeof name !== "string" || name.trim() === "") fail("to have names; write `{ name, scoreGroup }` for a function without one");
    if (typeof scoreGroup !== "function")
      fail(`to be functions of \`{ scenario, trajectories }\`, got ${typeof scoreGroup} for \`${name}\``);
    if (!Number.isFinite(weight)) fail(`to have finite weights, got \`${String(weight)}\` for \`${name}\``);
    if (names.has(name)) fail(`to have names that no other reward has, got \`${name}\` twice`);
    names.add(name);
    return Object.freeze({ name, weight, scoreGroup });
  });
  return Object.freeze(normalized);
}

/** Parameters of {@link scoredGroup}. */
export interface GroupScoreParams<S> {
  /** At least one group reward. */
  readonly groupRewards: readonly GroupReward<S>[];
  /**
   * Whether the trajectories' own rewards are part of the total. If false, group rewards replace the reward that a rollout has set itself.
   */
  readonly includesOwn: boolean;
  readonly scenario: S;
  /** Returns the description of the scored group for the message of an error. */
  readonly subject: () => string;
  readonly signal: AbortSignal;
}

/** Trajectory that is being scored, with the results of the group rewards so far. */
interface Scoring {
  readonly trajectory: Trajectory;
  /** Total reward so far. */
  total: number;
  readonly metrics: Record<string, number | boolean>;
  readonly logs: string[];
  /** First error of a group reward for this trajectory; null without one. */
  failure: RewardError | null;
}

/**
 * Returns a copy of a group with the rewards `own reward + Σ weight · value`. Each raw value is the metric `reward/<name>`, and the own
 * reward is the metric `independent_reward`. Calls the group rewards one after the other, in the order of the list.
 *
 * A group reward that throws, or returns a list of another length, fails every rollout of the group; an error or an invalid value in the
 * list fails one rollout. Failed rollouts are moved to the group's `exceptions`.
 *
 * @throws the signal's reason.
 */
export async function scoredGroup<S>(group: TrajectoryGroup, params: GroupScoreParams<S>): Promise<TrajectoryGroup> {
  const { groupRewards, includesOwn, scenario, subject, signal } = params;
  const { trajectories } = group;
  if (trajectories.length === 0) return group;
  const scorings = trajectories.map((trajectory): Scoring => {
    const recorded = trajectory.metrics[INDEPENDENT_REWARD];
    // A trajectory that is scored again has its own reward in the metric, unless its own rewards have just been computed.
    const ownReward = includesOwn || typeof recorded !== "number" ? trajectory.reward : recorded;
    const total = includesOwn ? ownReward : 0;
    return { trajectory, total, metrics: { [INDEPENDENT_REWARD]: ownReward }, logs: [], failure: null };
  });
  const groupMetrics: Record<string, number | boolean> = {};
  const groupLogs: string[] = [];
  for (const reward of groupRewards) {
    signal.throwIfAborted();
    const site = `Group reward \`${reward.name}\` of ${subject()}`;
    const result = await resultOf(reward, { scenario, trajectories, seed: groupSeed(group), signal }, site);
    if (result instanceof RewardError) {
      for (const scoring of scorings) scoring.failure ??= result;
      continue;
    }
    for (const [index, scoring] of scorings.entries()) addScore(scoring, reward, result.scores[index], site);
    addMetrics(groupMetrics, result.metrics ?? {});
    groupLogs.push(...(result.logs ?? []));
  }
  const metricNames = new Set(groupRewards.map(({ name }) => REWARD_PREFIX + name));
  // Values of rewards that the environment no longer has are not part of the new total.
  const isStale = (name: string) => !includesOwn && !metricNames.has(name);
  const failures = scorings.flatMap(({ failure }) => (failure === null ? [] : [toException(failure)]));
  return group.with({
    trajectories: scorings.filter(({ failure }) => failure === null).map((scoring) => withScore(scoring.trajectory, scoring, isStale)),
    exceptions: [...group.exceptions, ...failures],
    metrics: { ...group.metrics, ...groupMetrics },
    logs: [...group.logs, ...groupLogs],
  });
}

/** Adds the score of one group reward to a trajectory, or records its failure. `site` names reward and group for error messages. */
function addScore(scoring: Scoring, { name, weight }: GroupReward<never>, score: unknown, site: string): void {
  if (score instanceof Error) {
    scoring.failure ??= rewardFailure(site, score);
    return;
  }
  const checked = checkedScore(score);
  if (typeof checked === "string") {
    scoring.failure ??= new RewardError(`${site} ${checked}`);
    return;
  }
  const { value, metrics, logs } = checked;
  scoring.total += weight * value;
  addMetrics(scoring.metrics, metrics);
  scoring.metrics[REWARD_PREFIX + name] = value;
  scoring.logs.push(...logs);
}

/** Calls a group reward. Returns a RewardError if it throws or does not return one score per trajectory. @throws the signal's reason. */
async function resultOf<S>({ scoreGroup }: GroupReward<S>, input: GroupRewardInput<S>, site: string): Promise<GroupScores | RewardError> {
  let result: unknown;
  try {
    result = await scoreGroup(input);
  } catch (error) {
    if (isAbort(error) || (input.signal.aborted && error === input.signal.reason)) throw error;
    return rewardFailure(site, error);
  }
  const scores: unknown = Array.isArray(result) ? result : (result as Partial<GroupScores> | null | undefined)?.scores;
  const count = input.trajectories.length;
  if (Array.isArray(scores) && scores.length === count) {
    return Array.isArray(result) ? { scores: result as GroupScores["scores"] } : (result as GroupScores);
  }
  const got = Array.isArray(scores) ? `${scores.length} values` : typeof result;
  return new RewardError(`${site} must give one value per trajectory (${count}), got ${got}`);
}

/** Converts an error to its recorded form. */
function toException({ name, message, stack }: RewardError): RolloutException {
  return { type: name, message, traceback: stack ?? "" };
}

/** Returns the first 48 bits of SHA-256 over the group's seed and scenario index, which are 0 where unknown. */
function groupSeed({ metadata }: TrajectoryGroup): number {
  const [seed, index] = [metadata["seed"] ?? 0, metadata["scenario_index"] ?? 0];
  return createHash("sha256").update(`group:${seed}:${index}`).digest().readUIntBE(0, 6);
}
