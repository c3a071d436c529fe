import type { PageData, StepData } from "../page-data.ts";
import { byId } from "./dom.ts";

/** Data of the page. */
export const data = JSON.parse(byId("data").textContent) as PageData;

/** Current view as indexes; -1 for none. The address holds it after `#`, so that a view can be linked and Back works. */
export const view = { step: -1, group: -1, trajectory: -1 };

/** Change of the view: another step, or another trajectory of the same step. */
type Change = "step" | "trajectory";
const watchers: ((changed: Change) => void)[] = [];

/** Calls `watcher` on every change of the view. */
export function onView(watcher: (changed: Change) => void): void {
  watchers.push(watcher);
}

/** Returns the current step, or null. */
export function currentStep(): StepData | null {
  return data.steps[view.step] ?? null;
}

/** Shows another step (index into `data.steps`) and its best trajectory in the page. */
export function showStep(index: number): void {
  const step = data.steps[index];
  if (step !== undefined) show(step, ...firstReadable(step));
}

/** Shows a trajectory of the current step. */
export function showTrajectory(group: number, trajectory: number): void {
  const step = currentStep();
  if (step !== null) show(step, group, trajectory);
}

function show({ split, step }: StepData, group: number, trajectory: number): void {
  const address = `#${split}/${step}/${group}/${trajectory}`;
  if (location.hash === address) restore();
  else location.hash = address;
}

/** Sets the view from the address; the last step if the address names none. */
export function restore(): void {
  const found = /^#(train|eval)\/(\d+)\/(-?\d+)\/(-?\d+)$/.exec(location.hash);
  let index = data.steps.findIndex((each) => each.split === found?.[1] && each.step === Number(found[2]));
  if (index < 0) index = defaultStep();
  const step = data.steps[index];
  let [group, trajectory] = [Number(found?.[3] ?? -1), Number(found?.[4] ?? -1)];
  if (step !== undefined && !step.groups[group]?.trajectories[trajectory]) [group, trajectory] = firstReadable(step);
  const changed = index === view.step ? "trajectory" : "step";
  Object.assign(view, { step: index, group, trajectory });
  for (const watcher of watchers) watcher(changed);
}

function defaultStep(): number {
  const train = data.steps.findLastIndex((each) => each.split === "train");
  return train < 0 ? data.steps.length - 1 : train;
}

/** Returns the indexes of the best trajectory of the first trainable group with contents, otherwise of another group. */
function firstReadable({ groups }: StepData): [group: number, trajectory: number] {
  const readable = groups.filter(({ trajectories }) => trajectories.some((each) => each.detail !== null));
  const group = readable.find((each) => each.isTrainable) ?? readable[0] ?? groups.find((each) => each.trajectories.length > 0);
  if (group === undefined) return [-1, -1];
  const best = Math.max(...group.trajectories.map((each) => each.reward));
  return [groups.indexOf(group), group.trajectories.findIndex((each) => each.reward === best)];
}
