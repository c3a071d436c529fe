/** Comparison of two steps of one run, scenario by scenario. `compare-runs.ts` compares runs. */
import type { GroupData } from "../report/page-data.ts";
import type { ScenarioPair } from "./api.ts";
import type { RolloutFile, Rollouts } from "./rollouts.ts";

/**
 * Pairs the rollouts of two steps by scenario, in the order of step `a`, then the scenarios that only `b` has. In an evaluation,
 * the index in the list identifies a scenario. In training, the index counts over the whole run, so that the id identifies the scenario.
 */
export async function compareSteps(rollouts: Rollouts, a: RolloutFile, b: RolloutFile): Promise<ScenarioPair[]> {
  const groupsOf = async (file: RolloutFile) => {
    const groups = await rollouts.groups(file);
    return new Map(groups.map(({ scenario, data }) => [file.split === "eval" ? String(scenario) : data.id, data]));
  };
  const groupsA = await groupsOf(a);
  const groupsB = await groupsOf(b);
  const keys = new Set([...groupsA.keys(), ...groupsB.keys()]);
  return [...keys].map((key) => pair(groupsA.get(key) ?? null, groupsB.get(key) ?? null));
}

/** Returns the pair of a scenario, of which one of the steps may have no group. */
function pair(a: GroupData | null, b: GroupData | null): ScenarioPair {
  const [meanA, meanB] = [a?.mean ?? null, b?.mean ?? null];
  const difference = meanA === null || meanB === null ? null : meanB - meanA;
  return { scenario: (a ?? b)?.id ?? "", a, b, difference };
}
