import { useEffect, useState } from "preact/hooks";
import type { PageData, StepData } from "../../report/page-data.ts";

/**
 * Step, group and trajectory that the page shows, as indexes; -1 for none. The address holds it after `#`, so that a view can be linked and
 * Back works.
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
  const found = /^#(train|eval)\/(\d+)\/(-?\d+)\/(-?\d+)$/.exec(hash);
  let index = steps.findIndex((each) => each.split === found?.[1] && each.step === Number(found[2]));
  if (index < 0) index = defaultStep(steps);
  const step = steps[index];
  let [group, trajectory] = [Number(found?.[3] ?? -1), Number(found?.[4] ?? -1)];
  if (step !== undefined && !step.groups[group]?.trajectories[trajectory]) [group, trajectory] = firstReadable(step);
  return { step: index, group, trajectory };
}

/** Returns the index of the last training step; of the last step without one. */
function defaultStep(steps: PageData["steps"]): number {
  const train = steps.findLastIndex((each) => each.split === "train");
  return train < 0 ? steps.length - 1 : train;
}

/** Returns the indexes of the best trajectory of the first trainable group with contents, otherwise of another group. */
function firstReadable({ groups }: StepData): [group: number, trajectory: number] {
  const readable = groups.filter(({ trajectories }) => trajectories.some((each) => each.detail !== null));
  const group = readable.find((each) => each.isTrainable) ?? readable[0] ?? groups.find((each) => each.trajectories.length > 0);
  if (group === undefined) return [-1, -1];
  const best = Math.max(...group.trajectories.map((each) => each.reward));
  return [groups.indexOf(group), group.trajectories.findIndex((each) => each.reward === best)];
}
