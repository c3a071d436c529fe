/** Reading of the selected steps with their trajectories, within the limits of a page. */
import { join } from "node:path";
import { detailData, groupData, type Details } from "./groups.ts";
import type { GroupData, StepData } from "./page-data.ts";
import type { Split } from "../../run/data.ts";
import { trainedFile, trajectoryFile } from "../../run/files.ts";
import { readGroups, readTrained } from "../../run/read-groups.ts";
import type { RunFiles } from "../../run/read-run.ts";
import { selectSteps, type SelectedStep } from "./select-steps.ts";

/** Limits of the trajectories in a page. */
export interface PageLimits {
  /** Max number of steps; a third of them is reserved for evaluations. */
  readonly steps: number;
  /** Max bytes of JSON for the contents of trajectories. */
  readonly bytes: number;
}

/** Remaining budget for trajectory contents in bytes of JSON; reduced as contents are added. */
interface ByteBudget {
  bytes: number;
}

/** Max share of the byte budget per step, so that the first, last and best step of both splits fit: six steps. */
const MAX_STEP_SHARE = 1 / 6;

/**
 * Reads the groups of selected steps, in page order: train before eval, ascending.
 *
 * @throws DataError `E_DATA` with file and line for a line that does not match its schema.
 */
export async function readSteps(
  runDir: string,
  run: RunFiles,
  { limits, signal }: { limits: PageLimits; signal: AbortSignal | undefined },
): Promise<StepData[]> {
  let remainingBytes = limits.bytes;
  const steps: StepData[] = [];
  for (const { split, ...selected } of stepsByImportance(run, limits.steps)) {
    // Steps come in the order of importance, so that the least important ones are left out when the budget is used up.
    const stepBytes = Math.floor(Math.min(remainingBytes, limits.bytes * MAX_STEP_SHARE));
    if (steps.length > 0 && stepBytes <= 0) break;
    const budget: ByteBudget = { bytes: stepBytes };
    const discarded = split === "train" ? run.discarded.get(selected.step) : undefined;
    steps.push(await readStep(runDir, split, { selected, discarded, budget, signal }));
    remainingBytes -= stepBytes - budget.bytes;
  }
  return steps.sort((a, b) => b.split.localeCompare(a.split, "en") || a.step - b.step);
}

/** Selects steps of both splits, most important first and in turns, so that neither split uses up the budget of the other. */
function stepsByImportance(run: RunFiles, count: number): (SelectedStep & { split: Split })[] {
  const select = (split: Split, max: number) =>
    selectSteps(run.trajectories[split], { rewards: rewardsOf(run, split), count: max }).map((selected) => ({ split, ...selected }));
  const evaluations = select("eval", run.trajectories.train.length === 0 ? count : Math.floor(count / 3));
  const train = select("train", count - evaluations.length);
  const length = Math.max(train.length, evaluations.length);
  return Array.from({ length }, (_, index) => [train[index], evaluations[index]])
    .flat()
    .filter((each) => each !== undefined);
}

/** Returns the mean reward by step. */
function rewardsOf({ metrics }: RunFiles, split: Split): Map<number, number> {
  const { steps, columns } = metrics[split];
  const means = columns["reward/mean"] ?? [];
  return new Map(steps.flatMap((step, index) => (typeof means[index] === "number" ? [[step, means[index]]] : [])));
}

/** Input of {@link readStep}. */
interface StepOptions {
  readonly selected: SelectedStep;
  /** Scenario indices of the discarded groups. */
  readonly discarded: ReadonlySet<number> | undefined;
  readonly budget: ByteBudget;
  readonly signal: AbortSignal | undefined;
}

/** Reads the groups of a step, with the contents of trajectories as long as the budget lasts. */
async function readStep(runDir: string, split: Split, { selected, discarded, budget, signal }: StepOptions): Promise<StepData> {
  const file = trajectoryFile(split, selected.step);
  const trained = split === "train" ? await readTrained(join(runDir, trainedFile(selected.step)), signal) : null;
  const groupsByScenario = new Map<number, GroupData>();
  for await (const { line, scenario, group } of readGroups(join(runDir, file), { signal })) {
    // A group may be written twice around a crash; training uses the first one.
    if (groupsByScenario.has(scenario)) continue;
    const details: Details = (trajectory, index) => {
      const detail = detailData(trajectory, trained?.get(`${scenario}/${index}`));
      const size = Buffer.byteLength(JSON.stringify(detail));
      if (size > budget.bytes) return null;
      budget.bytes -= size;
      return detail;
    };
    groupsByScenario.set(scenario, { ...groupData(group, line, details), isDiscarded: discarded?.has(scenario) === true });
  }
  // The file has the groups in order of completion, which differs from run to run.
  const groups = [...groupsByScenario].sort(([a], [b]) => a - b).map(([, group]) => group);
  const omitted = groups.flatMap(({ trajectories }) => trajectories).filter(({ detail }) => detail === null).length;
  return { split, step: selected.step, reason: selected.reason, file, hasTrained: trained !== null, omitted, groups };
}
