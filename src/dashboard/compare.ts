import type { GroupData, Split } from "../report/page-data.ts";
import type { ScenarioPair } from "./api.ts";
import type { FoundRun } from "./find-runs.ts";
import type { Rollouts } from "./rollouts.ts";

/**
 * Pairs the rollouts of two steps by scenario, in the order of step `a`, then the scenarios that only `b` has. Scenarios of an evaluation
 * are identified by their index in the list of scenarios; in training the index counts over the whole run, so the id of the scenario counts.
 */
export async function compareSteps(
  rollouts: Rollouts,
  { run, split, a, b }: { readonly run: FoundRun; readonly split: Split; readonly a: number; readonly b: number },
): Promise<ScenarioPair[]> {
  const groupsOf = async (step: number) => {
    const groups = await rollouts.groups({ run, split, step });
    return new Map(groups.map(({ scenario, data }) => [split === "eval" ? String(scenario) : data.id, data]));
  };
  const [before, after] = [await groupsOf(a), await groupsOf(b)];
  return [...new Set([...before.keys(), ...after.keys()])].map((key) => pair(before.get(key) ?? null, after.get(key) ?? null));
}

function pair(a: GroupData | null, b: GroupData | null): ScenarioPair {
  const [before, after] = [a?.mean ?? null, b?.mean ?? null];
  return { scenario: (a ?? b)?.id ?? "", a, b, difference: before === null || after === null ? null : after - before };
}
