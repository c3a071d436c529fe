import { ArgumentError } from "../errors.ts";
import type { Rollout } from "../rollout/index.ts";
import { Trajectory, TrajectoryBuilder, type TrajectoryGroup } from "../trajectory/index.ts";
import { scoredGroup } from "../trajectory/group-scoring.ts";
import { scored } from "../trajectory/scoring.ts";
import type { Environment } from "./environment.ts";
import { scenarioIdOf } from "./scenarios.ts";

/**
 * Returns a rollout for `gatherTrajectoryGroups` that plays the scenario, scores it and finishes the trajectory. The total reward is
 * `Σ weight · value`; each raw value is recorded as the metric `reward/<name>`, and the metadata get `scenario_id`.
 *
 * A reward that throws or is not finite fails only its own rollout with a `RewardError`; the other rollouts of the group continue. Group
 * rewards are computed when the last rollout of a group ends; if one throws, every rollout of the group fails.
 *
 * @param environment - Environment to play and score.
 * @returns a rollout that rejects with ArgumentError `E_ARGUMENT` if the environment's own rollout does not return a trajectory.
 * @example
 * ```ts
 * import { gatherTrajectoryGroups } from "whetstone";
 *
 * const groups = await gatherTrajectoryGroups(environment.scenarios.eval, environmentRollout(environment), { policy, groupSize: 4 });
 * ```
 */
export function environmentRollout<S>(environment: Environment<S>): Rollout<S> {
  const rollout: Rollout<S> = async (scenario, context) => {
    const played: unknown = await environment.rollout(scenario, context);
    return scoreRollout(environment, scenario, finished(environment, played), context.signal);
  };
  if (environment.groupRewards.length === 0) return rollout;
  return Object.assign(rollout, {
    scoreGroup: (scenario: S, group: TrajectoryGroup, signal: AbortSignal) => scoreGroup(environment, scenario, group, signal),
  });
}

/** Converts the return value of an environment's rollout to a trajectory that is not scored yet. @throws ArgumentError `E_ARGUMENT`. */
function finished<S>({ name, rewards, groupRewards }: Environment<S>, played: unknown): Trajectory {
  if (played instanceof Trajectory) return played;
  if (!(played instanceof TrajectoryBuilder)) {
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
 * Returns a copy of a trajectory scored with the environment's rewards, with `scenario_id` in its metadata. Without rewards, keeps its
 * reward. Group rewards are not computed.
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

/** Returns a copy of a group of scored trajectories with the environment's group rewards. Failed trajectories become exceptions. */
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
