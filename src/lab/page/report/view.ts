/** Step, group and trajectory that the report shows, held by the address `#train/12/3/0`. */
import { useEffect, useState } from "preact/hooks";
import type { PageData, StepData } from "../../report/page-data.ts";

/**
 * Step, group and trajectory that the page shows, as indexes; -1 for none. The address holds them after `#`, so that a view can be linked
 * and Back works.
 */
export interface View {
  readonly step: number;
  readonly group: number;
  readonly trajectory: number;
}

/** Returns the current view, which follows the address. */
export function useView(steps: PageData["steps"]): View {
  const [view, setView] = useState(() => viewAt(steps, location.hash));
  useEffect(() => {
    const follow = () => setView(viewAt(steps, location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, [steps]);
  return view;
}

/** Shows another step and its best trajectory in the page. */
export function showStep(step: StepData): void {
  showTrajectory(step, ...firstReadable(step));
}

/** Shows a trajectory of a step. */
export function showTrajectory({ split, step }: StepData, group: number, trajectory: number): void {
  location.hash = `#${split}/${step}/${group}/${trajectory}`;
}

/** Returns the step nearest to a number, preferably of the given split; undefined without steps. */
export function nearestStep(steps: PageData["steps"], step: number, split: StepData["split"]): StepData | undefined {
  const distance = (each: StepData) => Math.abs(each.step - step) + (each.split === split ? 0 : 0.5);
  return steps.toSorted((a, b) => distance(a) - distance(b))[0];
}

/** Returns the view of an address. If the address names no step of the page, the view is the last training step. */
function viewAt(steps: PageData["steps"], hash: string): View {
  const [, split, stepNumber, groupText = -1, trajectoryText = -1] = /^#(train|eval)\/(\d+)\/(-?\d+)\/(-?\d+)$/.exec(hash) ?? [];
  const namedIndex = steps.findIndex((each) => each.split === split && each.step === Number(stepNumber));
  const index = namedIndex < 0 ? defaultStep(steps) : namedIndex;
  const step = steps[index];
  const [group, trajectory] = [Number(groupText), Number(trajectoryText)];
  if (step === undefined || step.groups[group]?.trajectories[trajectory]) return { step: index, group, trajectory };
  const [readableGroup, readableTrajectory] = firstReadable(step);
  return { step: index, group: readableGroup, trajectory: readableTrajectory };
}

/** Returns the index of the last training step; of the last step without one. */
function defaultStep(steps: PageData["steps"]): number {
  const lastTrainIndex = steps.findLastIndex((each) => each.split === "train");
  return lastTrainIndex < 0 ? steps.length - 1 : lastTrainIndex;
}

/** Returns the indexes of the best trajectory of the first trainable group with contents, otherwise of another group. */
function firstReadable({ groups }: StepData): [group: number, trajectory: number] {
  const readable = groups.filter(({ trajectories }) => trajectories.some((each) => each.detail !== null));
  const group = readable.find((each) => each.isTrainable) ?? readable[0] ?? groups.find((each) => each.trajectories.length > 0);
  if (group === undefined) return [-1, -1];
  const maxReward = Math.max(...group.trajectories.map((each) => each.reward));
  return [groups.indexOf(group), group.trajectories.findIndex((each) => each.reward === maxReward)];
}
