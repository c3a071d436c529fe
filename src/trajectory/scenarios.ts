import type { Scalar } from "./trajectory.ts";

/** What tells which scenario a group belongs to. */
export interface ScenarioInput {
  readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
  readonly trajectories: readonly { readonly metadata?: Readonly<Record<string, Scalar>> | undefined }[];
}

/**
 * Groups by scenario, in order of first appearance: those with the same `scenario_id` in their metadata, or else in that of their first
 * trajectory, are one; a group that has none stands for itself.
 */
export function byScenario<G extends ScenarioInput>(groups: readonly G[]): G[][] {
  const scenarios = new Map<unknown, G[]>();
  for (const group of groups) {
    const key = group.metadata?.["scenario_id"] ?? group.trajectories[0]?.metadata?.["scenario_id"] ?? group;
    const same = scenarios.get(key);
    if (same === undefined) scenarios.set(key, [group]);
    else same.push(group);
  }
  return [...scenarios.values()];
}
