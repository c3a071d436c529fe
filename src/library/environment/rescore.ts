/** Scoring of stored trajectories with the rewards of an environment. */
import { ArgumentError, DataError } from "../../base/errors.ts";
import { Trajectory, type TrajectoryGroup } from "../../base/trajectory/index.ts";
import type { Environment } from "./environment.ts";
import { scoreGroup, scoreRollout } from "./rollout.ts";
import { scenarioIdOf } from "./scenarios.ts";

/** Additional scenarios and a signal for {@link rescore}. */
export interface RescoreOptions<S> {
  /**
   * Scenarios to look up by id in addition to the environment's lists. Required for training scenarios that a function supplies.
   * @default []
   */
  readonly scenarios?: Iterable<S> | undefined;
  /** Stops the scoring, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Max unknown ids named in the error message. */
const MAX_NAMED = 5;

/**
 * Scores stored trajectories again with the environment's rewards, without running the agent. The scenario of a trajectory is looked up by
 * the metadata `scenario_id`, which `environmentRollout` writes.
 *
 * @param environment - Environment with the rewards and scenarios.
 * @param items - Trajectories, or groups of trajectories. Not modified.
 * @param options - Additional scenarios and a signal.
 * @returns Scored copies in the same order. Copies of groups keep all other data of their group.
 * @throws DataError `E_DATA` if scenarios of trajectories are unknown, with their number, before anything is scored, or for a group whose
 *   trajectories have different scenarios.
 * @throws ArgumentError `E_ARGUMENT` for trajectories without groups if the environment has group rewards.
 * @throws RewardError `E_REWARD` for the first trajectory that a reward fails on. A failed group reward is recorded in the `exceptions` of
 *   its group instead.
 * @throws the signal's reason.
 * @example
 * ```ts
 * import { trainScenarios } from "whetstone/environment";
 *
 * const again = await rescore(environment, groups, { scenarios: trainScenarios(environment.scenarios.train, { seed: 7, count: 100 }) });
 * ```
 */
export function rescore<S>(environment: Environment<S>, items: readonly Trajectory[], options?: RescoreOptions<S>): Promise<Trajectory[]>;
export function rescore<S>(
  environment: Environment<S>,
  items: readonly TrajectoryGroup[],
  options?: RescoreOptions<S>,
): Promise<TrajectoryGroup[]>;
export async function rescore<S>(
  environment: Environment<S>,
  items: readonly (Trajectory | TrajectoryGroup)[],
  { scenarios = [], signal = new AbortController().signal }: RescoreOptions<S> = {},
): Promise<(Trajectory | TrajectoryGroup)[]> {
  const { train, eval: heldOut } = environment.scenarios;
  /** Scenarios by id. */
  const scenariosById = new Map<unknown, S>();
  for (const scenario of [...(typeof train === "function" ? [] : train), ...heldOut, ...scenarios]) {
    scenariosById.set(scenarioIdOf(environment, scenario), scenario);
  }
  checkKnown(environment.name, items, scenariosById);
  if (environment.groupRewards.length > 0) items.forEach((item) => checkGroup(environment.name, item));
  const scenarioOf = (trajectory: Trajectory) => scenariosById.get(trajectory.metadata["scenario_id"]) as S;
  const score = (trajectory: Trajectory) => scoreRollout(environment, scenarioOf(trajectory), trajectory, signal);
  /** Scores a group: each trajectory by itself, then all with the group rewards, for which they must have one scenario. */
  const scoreWhole = async (group: TrajectoryGroup) => {
    const trajectories: Trajectory[] = [];
    for (const trajectory of group.trajectories) trajectories.push(await score(trajectory));
    const scored = group.with({ trajectories });
    const [anyTrajectory] = trajectories;
    return anyTrajectory === undefined ? scored : scoreGroup(environment, scenarioOf(anyTrajectory), scored, signal);
  };
  const results: (Trajectory | TrajectoryGroup)[] = [];
  for (const item of items) results.push(await (Trajectory.isInstance(item) ? score(item) : scoreWhole(item)));
  return results;
}

/** @throws DataError `E_DATA` for trajectories of scenarios that the environment `name` does not know. */
function checkKnown(name: string, items: readonly (Trajectory | TrajectoryGroup)[], scenariosById: ReadonlyMap<unknown, unknown>): void {
  const trajectories = items.flatMap((item) => (Trajectory.isInstance(item) ? [item] : item.trajectories));
  const unknownIds = trajectories.map(({ metadata }) => metadata["scenario_id"]).filter((id) => !scenariosById.has(id));
  if (unknownIds.length === 0) return;
  const ids = [...new Set(unknownIds.map((id) => (id === undefined ? "none" : `\`${id}\``)))];
  const named = ids.slice(0, MAX_NAMED).join(", ") + (ids.length > MAX_NAMED ? ` and ${ids.length - MAX_NAMED} more` : "");
  throw new DataError(
    `${unknownIds.length} of ${trajectories.length} trajectories have a \`scenario_id\` that environment \`${name}\` does not know: ${named}. ` +
      "Pass the scenarios they were made with as `scenarios`, e.g. `trainScenarios(environment.scenarios.train, { seed, count })`",
    { param: "scenario_id" },
  );
}

/** Checks that group rewards can score an item: that it is a group, and that its trajectories have one scenario. */
function checkGroup(name: string, item: Trajectory | TrajectoryGroup): void {
  if (Trajectory.isInstance(item)) {
    const message = `Environment \`${name}\` has group rewards, which need whole groups: pass trajectory groups`;
    throw new ArgumentError(message, { param: "items" });
  }
  const ids = new Set(item.trajectories.map(({ metadata }) => metadata["scenario_id"]));
  if (ids.size <= 1) return;
  const message = `Expected a group with the trajectories of one scenario, got ${ids.size} values of \`scenario_id\``;
  throw new DataError(message, { param: "scenario_id" });
}
