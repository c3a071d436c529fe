import { DataError } from "../errors.ts";
import { Trajectory, type TrajectoryGroup } from "../trajectory/index.ts";
import type { Environment } from "./environment.ts";
import { scored } from "./rollout.ts";
import { scenarioIdOf } from "./scenarios.ts";

/** Options of {@link rescore}. */
export interface RescoreOptions<S> {
  /** Scenarios to find the trajectories' in, beside the environment's lists; those that a function supplies must be given here. @default [] */
  readonly scenarios?: Iterable<S> | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Unknown ids that the error names. */
const MAX_NAMED = 5;

/**
 * Scores stored trajectories again with the environment's rewards, without running the agent. Each finds its scenario by its metadata
 * `scenario_id`, which `environmentRollout` writes. Gives copies, in the same order; those of groups keep everything else of their group.
 *
 * @throws DataError `E_DATA` for trajectories whose scenario is not known, all of them counted, before anything is scored.
 * @throws RewardError `E_REWARD`, of the first trajectory that a reward fails on; the signal's reason.
 * @example
 * ```ts
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
  const { train, eval: held } = environment.scenarios;
  const known = new Map<unknown, S>();
  for (const scenario of [...(typeof train === "function" ? [] : train), ...held, ...scenarios]) {
    known.set(scenarioIdOf(environment, scenario), scenario);
  }
  checkKnown(environment.name, items, known);
  const score = (trajectory: Trajectory) => scored(environment, known.get(trajectory.metadata["scenario_id"]) as S, trajectory, signal);
  const results: (Trajectory | TrajectoryGroup)[] = [];
  for (const item of items) {
    if (item instanceof Trajectory) {
      results.push(await score(item));
      continue;
    }
    const trajectories: Trajectory[] = [];
    for (const trajectory of item.trajectories) trajectories.push(await score(trajectory));
    results.push(item.with({ trajectories }));
  }
  return results;
}

function checkKnown(name: string, items: readonly (Trajectory | TrajectoryGroup)[], known: ReadonlyMap<unknown, unknown>): void {
  const trajectories = items.flatMap((item) => (item instanceof Trajectory ? [item] : item.trajectories));
  const unknown = trajectories.map(({ metadata }) => metadata["scenario_id"]).filter((id) => !known.has(id));
  if (unknown.length === 0) return;
  const ids = [...new Set(unknown.map((id) => (id === undefined ? "none" : `\`${id}\``)))];
  const named = ids.slice(0, MAX_NAMED).join(", ") + (ids.length > MAX_NAMED ? ` and ${ids.length - MAX_NAMED} more` : "");
  throw new DataError(
    `${unknown.length} of ${trajectories.length} trajectories have a \`scenario_id\` that environment \`${name}\` does not know: ${named}. ` +
      "Pass the scenarios they were made with as `scenarios`, e.g. `trainScenarios(environment.scenarios.train, { seed, count })`",
    { param: "scenario_id" },
  );
}
