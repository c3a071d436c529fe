import type { StepData } from "./page-data.ts";

/** A step to show, and why. */
export interface SelectedStep {
  readonly step: number;
  readonly reason: StepData["reason"];
}

/**
 * Which steps of a run to show, most telling first: the last, the first, the best, then always the one farthest from those
 * already chosen, so that any number of them is spread evenly.
 *
 * @param available - Steps that have trajectories; not modified.
 * @param options - `rewards`: mean reward by step, from which the best is found; `count`: how many to choose at most.
 */
export function selectSteps(
  available: readonly number[],
  { rewards, count }: { readonly rewards: ReadonlyMap<number, number>; readonly count: number },
): SelectedStep[] {
  const steps = [...new Set(available)].sort((a, b) => a - b);
  const chosen: SelectedStep[] = [];
  const choose = (step: number | undefined, reason: SelectedStep["reason"]) => {
    if (step === undefined || chosen.length >= count || chosen.some((each) => each.step === step)) return;
    chosen.push({ step, reason });
  };
  choose(steps.at(-1), "last");
  choose(steps[0], "first");
  choose(bestOf(steps, rewards), "best");
  while (chosen.length < Math.min(count, steps.length)) choose(farthestOf(steps, chosen), "spaced");
  return chosen;
}

/** The step of the highest reward, the earliest of several. */
function bestOf(steps: readonly number[], rewards: ReadonlyMap<number, number>): number | undefined {
  let best: number | undefined;
  for (const step of steps) {
    const reward = rewards.get(step);
    if (reward !== undefined && (best === undefined || reward > (rewards.get(best) as number))) best = step;
  }
  return best;
}

function farthestOf(steps: readonly number[], chosen: readonly SelectedStep[]): number {
  const distance = (step: number) => Math.min(...chosen.map((each) => Math.abs(each.step - step)));
  return steps.reduce((far, step) => (distance(step) > distance(far) ? step : far));
}
