/** Evaluation of a policy on an environment: plays the scenarios, and estimates reward and pass@k with confidence intervals. */
import { ConfigError } from "../../base/errors.ts";
import { checkInteger, refuse } from "../../base/util/values.ts";
import { gatherGroups } from "../rollout/gather.ts";
import type { GatherOptions } from "../rollout/index.ts";
import {
  clusteredMean,
  passAtK,
  type Estimate,
  type PassAtK,
  type Policy,
  type Summary,
  type TrajectoryGroup,
  type TrajectoryGroups,
} from "../../base/trajectory/index.ts";
import { checkLevel } from "../../base/trajectory/interval.ts";
import { byScenario } from "../../base/trajectory/scenarios.ts";
import { REWARD_PREFIX } from "../../base/trajectory/scoring.ts";
import type { Environment } from "./environment.ts";
import { highestReward } from "./highest-reward.ts";
import { environmentRollout } from "./rollout.ts";
import { scenarioIdOf } from "./scenarios.ts";

/** Options of {@link evaluate}; options shared with `gatherTrajectoryGroups` have the same meaning. */
export interface EvaluateOptions<S> extends Pick<
  GatherOptions<S>,
  "concurrency" | "concurrencyBy" | "chatTemplateKwargs" | "timeoutMs" | "maxExceptions" | "retries" | "progress" | "onProgress" | "signal"
> {
  /** Scenarios to play, at least one. @default the environment's `eval` scenarios */
  readonly scenarios?: readonly S[] | undefined;
  /** Rollouts per scenario, at least 1. @default 1 */
  readonly samples?: number | undefined;
  /** Sampling temperature, at least 0. @default 0 with one sample, else 1, because greedy samples would all be the same */
  readonly temperature?: number | undefined;
  /** Values of `k` for pass@k, integers from 1 to `samples`. @default 1 and `samples` */
  readonly k?: number | readonly number[] | undefined;
  /**
   * Minimum reward of a rollout that passes; finite.
   *
   * @default the sum of the positive reward weights (the maximum if raw rewards are in [0, 1]), or 1 without rewards; lowered by the
   *   fraction 1e-9 for rounding errors
   */
  readonly threshold?: number | undefined;
  /** Confidence level of the intervals, in (0, 1). @default 0.95 */
  readonly level?: number | undefined;
  /** Sampling seed, an integer; the same seed gives the same draws. @default 0 */
  readonly seed?: number | undefined;
}

/** Result of {@link evaluate}. */
export interface Evaluation {
  /** Name of the environment. */
  readonly environment: string;
  /** Id of the policy. */
  readonly policy: string;
  /** Rollouts per scenario. */
  readonly samples: number;
  /** Temperature that the rollouts got as `sampling.temperature`. */
  readonly temperature: number;
  /** Seed from which the rollouts' seeds were derived. */
  readonly seed: number;
  /** Number of played scenarios. */
  readonly scenarios: number;
  /** Number of failed rollouts, which are excluded from all other numbers. */
  readonly exceptions: number;
  /**
   * Mean reward, with a confidence interval clustered by scenario: scenarios, not rollouts, count as independent. If all rewards are in
   * [0, 1], the interval is cut to that range.
   */
  readonly reward: Estimate;
  /** Minimum reward of a rollout that passes. */
  readonly threshold: number;
  /** Estimates of pass@k, ascending by `k`. A `k` is omitted if every scenario has fewer than `k` rollouts that did not fail. */
  readonly passAtK: readonly PassAtK[];
  /** Mean raw value of each reward by name, unweighted, with a confidence interval clustered by scenario. */
  readonly rewards: Readonly<Record<string, Estimate>>;
  /** Summary of every trajectory metric by name. */
  readonly metrics: Readonly<Record<string, Summary>>;
  /** Played groups in the order of the scenarios, with `scenario_id` in their metadata. */
  readonly groups: TrajectoryGroups;
}

/**
 * Evaluates a policy on an environment's `eval` scenarios: mean reward, pass@k and mean raw rewards, with confidence intervals.
 *
 * @param environment - Environment to play.
 * @param policy - Policy to sample from.
 * @param options - All optional.
 * @returns The estimates and the played groups.
 * @throws ConfigError `E_CONFIG` without scenarios.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds, before anything is played.
 * @throws TooManyExceptionsError `E_TOO_MANY_EXCEPTIONS` when more rollouts fail than `maxExceptions` allows.
 * @throws the signal's reason.
 * @example
 * ```ts
 * const { reward, passAtK: [one] } = await evaluate(environment, policy, { samples: 4 });
 * console.log(`${reward.mean} (${reward.low} to ${reward.high}), pass@1 ${one?.mean}`);
 * ```
 */
export async function evaluate<S>(environment: Environment<S>, policy: Policy, options: EvaluateOptions<S> = {}): Promise<Evaluation> {
  const {
    scenarios = environment.scenarios.eval,
    samples = 1,
    temperature = samples === 1 ? 0 : 1,
    k,
    threshold,
    level,
    seed = 0,
    ...gatherOptions
  } = options;
  if (scenarios.length === 0) {
    const message = `Environment \`${environment.name}\` has no \`eval\` scenarios; list some, or pass \`scenarios\``;
    throw new ConfigError(message, { param: "scenarios" });
  }
  checkInteger("samples", samples, 1);
  const ks = checkedKs(k, samples);
  checkBounds(threshold, level);
  const groups = await gatherGroups(scenarios, environmentRollout(environment), {
    ...gatherOptions,
    title: `evaluation of ${policy.id} on ${environment.name}`,
    policy,
    groupSize: samples,
    temperature,
    seed,
    afterEach: (group, index) => withScenarioId(group, scenarioIdOf(environment, scenarios[index] as S)),
  });
  return {
    environment: environment.name,
    policy: policy.id,
    samples,
    temperature,
    seed,
    scenarios: scenarios.length,
    ...evaluationEstimates(environment, groups, { ks, threshold, level }),
    metrics: groups.stats.metrics,
    groups,
  };
}

/** Numbers that {@link evaluationEstimates} computes from played groups. */
export type EvaluationEstimates = Pick<Evaluation, "exceptions" | "reward" | "threshold" | "passAtK" | "rewards">;

/** Settings of {@link evaluationEstimates}, with the meanings of {@link EvaluateOptions}. */
export interface EstimateSettings {
  /** Values of `k`, ascending. */
  readonly ks: readonly number[];
  readonly threshold?: number | undefined;
  readonly level?: number | undefined;
}

/** Computes the estimates of an evaluation from its groups, as played or as stored. */
export function evaluationEstimates<S>(
  environment: Environment<S>,
  groups: readonly TrajectoryGroup[],
  { ks, threshold = roundedDown(highestReward(environment)), level }: EstimateSettings,
): EvaluationEstimates {
  /** Trajectories of each scenario. */
  const clusters = byScenario(groups).map((groupsOfScenario) => groupsOfScenario.flatMap((group) => group.trajectories));
  /** Returns the mean of a value over all trajectories. */
  const estimate = (valueOf: (trajectory: TrajectoryGroup["trajectories"][number]) => number) => {
    const values = clusters.map((trajectories) => trajectories.map(valueOf));
    return withinUnit(clusteredMean(values, { level }), values.flat());
  };
  const rewards = [...environment.rewards, ...environment.groupRewards].map(
    ({ name }) => [name, estimate(({ metrics }) => Number(metrics[REWARD_PREFIX + name]))] as const,
  );
  const possibleKs = ks.filter((k) => clusters.some((trajectories) => trajectories.length >= k));
  return {
    exceptions: groups.reduce((sum, { exceptions }) => sum + exceptions.length, 0),
    reward: estimate((trajectory) => trajectory.reward),
    threshold,
    passAtK: possibleKs.map((k) => passAtK(groups, { k, threshold, level })),
    rewards: Object.fromEntries(rewards),
  };
}

/** Cuts an interval to [0, 1] if all values are in it: the normal approximation can exceed the range of the values. */
function withinUnit(estimate: Estimate, values: readonly number[]): Estimate {
  if (values.some((value) => !(value >= 0 && value <= 1))) return estimate;
  return { ...estimate, low: Math.max(0, estimate.low), high: Math.min(1, estimate.high) };
}

/**
 * Lowers the default threshold by the fraction 1e-9, at least by 1e-9. The best answer must pass, although a sum of its rewards may be too
 * low in floating point: 0.7 + 0.2 + 0.1 is less than 1.
 */
function roundedDown(highest: number): number {
  return highest - 1e-9 * Math.max(1, Math.abs(highest));
}

/** Returns the values of `k`, ascending and without duplicates. @throws ArgumentError `E_ARGUMENT` for one outside 1 to `samples`. */
function checkedKs(k: EvaluateOptions<never>["k"], samples: number): number[] {
  const given = typeof k === "number" ? [k] : (k ?? [1, samples]);
  const ks = [...new Set(given)].sort((a, b) => a - b);
  const invalid = ks.find((each) => !(Number.isInteger(each) && each >= 1 && each <= samples));
  if (invalid !== undefined) refuse("k", `an integer from 1 to \`samples\` (${samples})`, invalid);
  return ks;
}

/** @throws ArgumentError `E_ARGUMENT` for a threshold that is not finite, or a confidence level outside (0, 1). */
function checkBounds(threshold: number | undefined, level: number | undefined): void {
  if (threshold !== undefined && !Number.isFinite(threshold)) refuse("threshold", "finite", threshold);
  if (level !== undefined) checkLevel(level);
}

/** Adds `scenario_id` to the group's metadata, because a group of failed rollouts has no trajectory to carry it. */
function withScenarioId(group: TrajectoryGroup, scenarioId: string): TrajectoryGroup {
  return group.with({ metadata: { ...group.metadata, scenario_id: scenarioId } });
}
