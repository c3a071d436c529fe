/** The data and what is being looked at. The address after `#` says the latter, so that a view can be linked and Back works. */
export const data = JSON.parse(document.getElementById("data").textContent);

export const view = { step: -1, group: -1, trajectory: -1 };
const watchers = [];

/** Calls `watcher` with what changed (`step`, `trajectory`) whenever it does. */
export function onView(watcher) {
  watchers.push(watcher);
}

/** The step being looked at, or null. */
export function currentStep() {
  return data.steps[view.step] ?? null;
}

/** Looks at another step (index into `data.steps`), and at its best trajectory that is in the page. */
export function showStep(index) {
  if (index < 0 || index >= data.steps.length) return;
  const [group, trajectory] = firstReadable(data.steps[index]);
  show(index, group, trajectory);
}

/** Looks at one trajectory of the current step. */
export function showTrajectory(group, trajectory) {
  show(view.step, group, trajectory);
}

function show(step, group, trajectory) {
  const { split, step: number } = data.steps[step];
  const address = `#${split}/${number}/${group}/${trajectory}`;
  if (location.hash === address) restore();
  else location.hash = address;
}

/** Takes the view from the address; the last step where it names none. */
export function restore() {
  const found = /^#(train|eval)\/(\d+)\/(-?\d+)\/(-?\d+)$/.exec(location.hash);
  let step = found ? data.steps.findIndex((each) => each.split === found[1] && each.step === Number(found[2])) : -1;
  let [group, trajectory] = found ? [Number(found[3]), Number(found[4])] : [-1, -1];
  if (step < 0) step = defaultStep();
  if (step >= 0 && !data.steps[step].groups[group]?.trajectories[trajectory]) [group, trajectory] = firstReadable(data.steps[step]);
  const changed = step === view.step ? "trajectory" : "step";
  Object.assign(view, { step, group, trajectory });
  for (const watcher of watchers) watcher(changed);
}

function defaultStep() {
  const train = data.steps.findLastIndex((each) => each.split === "train");
  return train < 0 ? data.steps.length - 1 : train;
}

/** The best trajectory of the first group in which something differs: that is where there is most to see. */
function firstReadable(step) {
  const readable = (group) => group.trajectories.some((each) => each.detail !== null);
  let group = step.groups.findIndex((each) => each.isTrainable && readable(each));
  if (group < 0) group = step.groups.findIndex(readable);
  if (group < 0) group = step.groups.findIndex((each) => each.trajectories.length > 0);
  if (group < 0) return [-1, -1];
  const { trajectories } = step.groups[group];
  const best = Math.max(...trajectories.map((each) => each.reward));
  return [group, trajectories.findIndex((each) => each.reward === best)];
}
