import { ArgumentError, ConfigError } from "../errors.ts";
import { gatherTrajectoryGroups, type GatherOptions } from "../rollout/index.ts";
import {
  clusteredMean,
  passAtK,
  type Estimate,
  type PassAtK,
  type Policy,
  type Summary,
  type TrajectoryGroup,
  type TrajectoryGroups,
} from "../trajectory/index.ts";
import { byScenario } from "../trajectory/scenarios.ts";
import type { Environment } from "./environment.ts";
import { highestReward } from "./highest-reward.ts";
import { environmentRollout, METRIC_PREFIX } from "./rollout.ts";
import { scenarioIdOf } from "./scenarios.ts";

/** Options of {@link evaluate}; those of `gatherTrajectoryGroups` mean the same. */
export interface EvaluateOptions<S> extends Pick<
  GatherOptions<S>,
  "concurrency" | "concurrencyBy" | "timeoutMs" | "maxExceptions" | "retries" | "onProgress" | "signal"
> {
  /** What to play, at least one. @default the environment's `eval` scenarios */
  readonly scenarios?: readonly S[] | undefined;
  /** Rollouts per scenario, at least 1. @default 1 */
  readonly samples?: number | undefined;
  /** At least 0. @default 0 with one sample, else 1: several greedy ones would be the same */
  readonly temperature?: number | undefined;
  /** The `k` of each pass@k, from 1 to `samples`. @default 1, and `samples` */
  readonly k?: number | readonly number[] | undefined;
  /** A rollout passes with at least this reward. @default what rewards of at most 1 add up to with their weights, rounding aside; 1 without rewards */
  readonly threshold?: number | undefined;
  /** Of the confidence intervals, in (0, 1). @default 0.95 */
  readonly level?: number | undefined;
  /** An integer; the same one gives the same draws. @default 0 */
  readonly seed?: number | undefined;
}

/** What {@link evaluate} found. */
export interface Evaluation {
  readonly environment: string;
  /** The policy's id. */
  readonly policy: string;
  /** Rollouts per scenario. */
  readonly samples: number;
  readonly temperature: number;
  readonly seed: number;
  readonly scenarios: number;
  /** Rollouts that failed; they are in no other number. */
  readonly exceptions: number;
  /** Mean reward, with an interval that takes scenarios, not rollouts, for independent. */
  readonly reward: Estimate;
  /** The least reward of a rollout that passes. */
  readonly threshold: number;
  /** One for each `k`, ascending. */
  readonly passAtK: readonly PassAtK[];
  /** Each reward's raw value by its name, unweighted, with an interval as `reward` has it. */
  readonly rewards: Readonly<Record<string, Estimate>>;
  /** Every metric of the trajectories. */
  readonly metrics: Readonly<Record<string, Summary>>;
  /** What was played, in the order of the scenarios; their metadata have `scenario_id`. */
  readonly groups: TrajectoryGroups;
}

/**
 * Plays an environment's `eval` scenarios with a policy and says how good it is, and how sure that is.
 *
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
  const { scenarios = environment.scenarios.eval, samples = 1, temperature = samples === 1 ? 0 : 1, k, level, seed = 0, ...rest } = options;
  const { threshold = roundedDown(highestReward(environment)), ...gather } = rest;
  if (scenarios.length === 0) {
    throw new ConfigError(`Environment \`${environment.name}\` has no \`eval\` scenarios; list some, or pass \`scenarios\``, {
      param: "scenarios",
    });
  }
  const ks = checkedKs(k, samples);
  checkBounds(threshold, level);
  const groups = await gatherTrajectoryGroups(scenarios, environmentRollout(environment), {
    ...gather,
    policy,
    groupSize: samples,
    temperature,
    seed,
    afterEach: (group, index) => withScenarioId(group, scenarioIdOf(environment, scenarios[index] as S)),
  });
  const clusters = byScenario(groups).map((same) => same.flatMap((group) => group.trajectories));
  const estimate = (of: (trajectory: TrajectoryGroup["trajectories"][number]) => number) =>
    clusteredMean(
      clusters.map((trajectories) => trajectories.map(of)),
      { level },
    );
  return {
    environment: environment.name,
    policy: policy.id,
    samples,
    temperature,
    seed,
    scenarios: scenarios.length,
    exceptions: groups.stats.exceptions,
    reward: estimate((trajectory) => trajectory.reward),
    threshold,
    passAtK: ks
      .filter((each) => clusters.some((trajectories) => trajectories.length >= each))
      .map((each) => passAtK(groups, { k: each, threshold, level })),
    rewards: Object.fromEntries(
      environment.rewards.map(({ name }) => [name, estimate(({ metrics }) => Number(metrics[METRIC_PREFIX + name]))]),
    ),
    metrics: groups.stats.metrics,
    groups,
  };
}

/** 0.7 + 0.2 + 0.1 is less than 1 in floating point; the best answer must pass all the same. */
function roundedDown(highest: number): number {
  return highest - 1e-9 * Math.max(1, Math.abs(highest));
}

function checkedKs(k: EvaluateOptions<never>["k"], samples: number): number[] {
  const ks = [...new Set(k === undefined ? [1, samples] : typeof k === "number" ? [k] : k)].sort((a, b) => a - b);
  const bad = ks.find((each) => !(Number.isInteger(each) && each >= 1 && each <= samples));
  if (bad === undefined || !(Number.isInteger(samples) && samples >= 1)) return ks;
  throw new ArgumentError(`Expected \`k\` to be an integer from 1 to \`samples\` (${samples}), got \`${bad}\``, { param: "k" });
}

function checkBounds(threshold: number, level: number | undefined): void {
  if (!Number.isFinite(threshold))
    throw new ArgumentError(`Expected \`threshold\` to be finite, got \`${threshold}\``, { param: "threshold" });
  if (level === undefined || (level > 0 && level < 1)) return;
  throw new ArgumentError(`Expected \`level\` to be above 0 and below 1, got \`${level}\``, { param: "level" });
}

/** On the group too: one whose rollouts all failed has no trajectory to look at. */
function withScenarioId(group: TrajectoryGroup, scenarioId: string): TrajectoryGroup {
  return group.with({ metadata: { ...group.metadata, scenario_id: scenarioId } });
}
