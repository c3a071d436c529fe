/** Selection of the steps with trajectories in a page. */
import type { StepData } from "./page-data.ts";

/** A selected step with the reason for its selection. */
export interface SelectedStep {
  readonly step: number;
  readonly reason: StepData["reason"];
}

/**
 * Selects the steps of a run to show, most important first: the last, the first, the best, then repeatedly the step farthest from all
 * selected steps, so that any number of steps is evenly spaced.
 *
 * @param available - Steps that have trajectories; not modified.
 * @param options - `rewards`: mean reward by step, which determines the best step; `count`: max number of steps.
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

/** Returns the step with the highest reward; the earliest in case of a tie. */
function bestOf(steps: readonly number[], rewards: ReadonlyMap<number, number>): number | undefined {
  let best: number | undefined;
  for (const step of steps) {
    const reward = rewards.get(step);
    if (reward !== undefined && (best === undefined || reward > (rewards.get(best) as number))) best = step;
  }
  return best;
}

/** Returns the step with the largest distance to the nearest chosen step; the earliest in case of a tie. */
function farthestOf(steps: readonly number[], chosen: readonly SelectedStep[]): number {
  const distance = (step: number) => Math.min(...chosen.map((each) => Math.abs(each.step - step)));
  return steps.reduce((far, step) => (distance(step) > distance(far) ? step : far));
}
