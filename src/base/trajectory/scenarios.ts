/** Partition of trajectory groups by scenario, for statistics in which only scenarios are independent. */

import { getOrInsert } from "../util/values.ts";
import type { Scalar } from "./trajectory.ts";

/** Metadata that identifies a group's scenario. */
export interface ScenarioInput {
  /** Metadata of the group; `scenario_id` identifies the scenario, together with `environment` in a run on several environments. */
  readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
  /** Trajectories whose metadata is read if the group's has no `scenario_id`. */
  readonly trajectories: readonly {
    /** Metadata of the trajectory. */
    readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
  }[];
}

/**
 * Partitions groups by scenario, in order of first appearance. The key is `scenario_id` in the group's metadata, or else in its first
 * trajectory's metadata; a group without one is a scenario of its own. Groups with different `environment` in their metadata are different
 * scenarios.
 */
export function byScenario<G extends ScenarioInput>(groups: readonly G[]): G[][] {
  const scenarios = new Map<unknown, G[]>();
  for (const group of groups) {
    const id = group.metadata?.["scenario_id"] ?? group.trajectories[0]?.metadata?.["scenario_id"];
    const environment = group.metadata?.["environment"] ?? null;
    const key = id === undefined ? group : JSON.stringify([environment, id]);
    getOrInsert(scenarios, key, () => []).push(group);
  }
  return [...scenarios.values()];
}
