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
  const [before, after] = [await groupsOf(a), await groupsOf(b)];
  return [...new Set([...before.keys(), ...after.keys()])].map((key) => pair(before.get(key) ?? null, after.get(key) ?? null));
}

function pair(a: GroupData | null, b: GroupData | null): ScenarioPair {
  const [before, after] = [a?.mean ?? null, b?.mean ?? null];
  return { scenario: (a ?? b)?.id ?? "", a, b, difference: before === null || after === null ? null : after - before };
}
