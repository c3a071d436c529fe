/** Environments as rollouts: plays a scenario, scores the trajectory, and on request scores rollouts that time out. */
import { ArgumentError } from "../../base/errors.ts";
import type { Rollout, RolloutContext } from "../rollout/index.ts";
import { recordBuilders } from "../../base/trajectory/builder-scope.ts";
import { Trajectory, TrajectoryBuilder, type TrajectoryGroup } from "../../base/trajectory/index.ts";
import { scoredGroup } from "../../base/trajectory/group-scoring.ts";
import { scored } from "../../base/trajectory/scoring.ts";
import type { Environment } from "./environment.ts";
import { scenarioIdOf } from "./scenarios.ts";

/** Options of {@link environmentRollout}. */
export interface EnvironmentRolloutOptions {
  /**
   * Whether a rollout that reaches its timeout is scored instead of failing. Its trajectory is the first one that the rollout started with
   * `trajectory()`, up to the last completed turn of the main conversation, with its other histories as far as they got; the rewards have
   * `timeoutMs` again. Every trajectory has the metric `timed_out`, 1 or 0. The rollout fails as without the option if no turn was
   * completed, if the rewards were already being computed, or if the environment has no rewards.
   *
   * @default false
   */
  readonly scoreTimeouts?: boolean | undefined;
}

/**
 * Returns a rollout for `gatherTrajectoryGroups` that plays the scenario, scores it and finishes the trajectory. The total reward is
 * `Σ weight · value`; each raw value is recorded as the metric `reward/<name>`, and the metadata get `scenario_id`.
 *
 * A reward that throws or is not finite fails only its own rollout with a `RewardError`; the other rollouts of the group continue. Group
 * rewards are computed when the last rollout of a group ends; if one throws, every rollout of the group fails.
 *
 * @param environment - Environment to play and score.
 * @param options - Scoring of rollouts that time out.
 * @returns a rollout that rejects with ArgumentError `E_ARGUMENT` if the environment's own rollout does not return a trajectory.
 * @example
 * ```ts
 * import { gatherTrajectoryGroups } from "whetstone";
 *
 * const groups = await gatherTrajectoryGroups(environment.scenarios.eval, environmentRollout(environment), { policy, groupSize: 4 });
 * ```
 */
export function environmentRollout<S>(environment: Environment<S>, { scoreTimeouts = false }: EnvironmentRolloutOptions = {}): Rollout<S> {
  const rollout = scoreTimeouts ? timedRollout(environment) : plainRollout(environment);
  if (environment.groupRewards.length === 0) return rollout;
  return Object.assign(rollout, {
    scoreGroup: (scenario: S, group: TrajectoryGroup, signal: AbortSignal) => scoreGroup(environment, scenario, group, signal),
  });
}

/** Returns a rollout whose timeouts are failures. */
function plainRollout<S>(environment: Environment<S>): Rollout<S> {
  return async (scenario, context) => {
    const played: unknown = await environment.rollout(scenario, context);
    return scoreRollout(environment, scenario, finishedTrajectory(environment, played), context.signal);
  };
}

/** State of an attempt whose timeout is scored. */
interface TimedAttempt {
  /** Builders that the rollout has created. */
  readonly builders: TrajectoryBuilder[];
  /** Result of a rollout that returned after its timeout, e.g. because it ends on the signal; absent otherwise. */
  lateResult?: unknown;
  /** Whether the rollout has ended in time and its rewards are being computed. */
  isScoring: boolean;
}

/** Returns a rollout that scores timeouts, see {@link EnvironmentRolloutOptions}. */
function timedRollout<S>(environment: Environment<S>): Rollout<S> {
  const attempts = new WeakMap<RolloutContext, TimedAttempt>();
  const rollout: Rollout<S> = async (scenario, context) => {
    const attempt: TimedAttempt = { builders: [], isScoring: false };
    attempts.set(context, attempt);
    const played: unknown = await recordBuilders(attempt.builders, () => environment.rollout(scenario, context));
    if (context.signal.aborted) attempt.lateResult = played;
    context.signal.throwIfAborted();
    attempt.isScoring = true;
    const trajectory = await scoreRollout(environment, scenario, finishedTrajectory(environment, played), context.signal);
    return trajectory.with({ metrics: { timed_out: 0 } });
  };
  // Called by the runner after a timeout, with the context of the attempt and a new signal.
  const afterTimeout = async (scenario: S, context: RolloutContext, signal: AbortSignal) => {
    const attempt = attempts.get(context);
    if (attempt === undefined || attempt.isScoring) return null;
    const played = interruptedTrajectory(environment, attempt);
    return played === null ? null : scoreRollout(environment, scenario, played, signal);
  };
  return Object.assign(rollout, { afterTimeout });
}

/**
 * Returns the unscored trajectory of an attempt that has timed out: a late result, else the first builder of the rollout. Null if no turn
 * was completed, or if there are no rewards to score it.
 */
function interruptedTrajectory<S>({ rewards, groupRewards }: Environment<S>, { builders, lateResult }: TimedAttempt): Trajectory | null {
  const metrics = { timed_out: 1 };
  if (Trajectory.isInstance(lateResult)) return lateResult.with({ metrics });
  if (rewards.length + groupRewards.length === 0) return null;
  const builder = TrajectoryBuilder.isInstance(lateResult) ? lateResult : builders[0];
  return builder?.finishInterrupted(metrics) ?? null;
}

/**
 * Converts the return value of an environment's rollout to a trajectory that is not scored yet.
 *
 * @throws ArgumentError `E_ARGUMENT` for any other value, and for a builder if the environment has no rewards to finish it with.
 */
function finishedTrajectory<S>({ name, rewards, groupRewards }: Environment<S>, played: unknown): Trajectory {
  if (Trajectory.isInstance(played)) return played;
  if (!TrajectoryBuilder.isInstance(played)) {
    throw new ArgumentError(
      `Expected the rollout of environment \`${name}\` to return its trajectory, got ${typeof played}: end it with \`return t\``,
    );
  }
  if (rewards.length + groupRewards.length > 0) return played.finish({ reward: 0 });
  throw new ArgumentError(
    `Environment \`${name}\` has no rewards, so its rollout must give one: \`return t.finish({ reward })\`, or list \`rewards\``,
  );
}

/**
 * Returns a copy of a trajectory scored with the environment's rewards, with `scenario_id` in its metadata. Without rewards, the copy has
 * the reward of the trajectory. Group rewards are left to {@link scoreGroup}.
 */
export async function scoreRollout<S>(
  environment: Environment<S>,
  scenario: S,
  played: Trajectory,
  signal: AbortSignal,
): Promise<Trajectory> {
  const { name, rewards } = environment;
  const id = scenarioIdOf(environment, scenario);
  const subject = () => `environment \`${name}\`, scenario \`${id}\``;
  const result = rewards.length === 0 ? played : await scored(played, { rewards, scenario, subject, signal });
  return result.with({ metadata: { scenario_id: id } });
}

/**
 * Returns a copy of a group of trajectories scored by {@link scoreRollout}, with the environment's group rewards. Trajectories on which a
 * group reward fails become exceptions.
 */
export async function scoreGroup<S>(
  environment: Environment<S>,
  scenario: S,
  group: TrajectoryGroup,
  signal: AbortSignal,
): Promise<TrajectoryGroup> {
  const { name, rewards, groupRewards } = environment;
  if (groupRewards.length === 0) return group;
  const subject = () => `environment \`${name}\`, scenario \`${scenarioIdOf(environment, scenario)}\``;
  return scoredGroup(group, { groupRewards, includesOwn: rewards.length > 0, scenario, subject, signal });
}
