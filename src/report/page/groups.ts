import type { GroupData, Split, StepData, TrajectoryData } from "../page-data.ts";
import { byId, type Child, fill, h, refill, segmented } from "./dom.ts";
import { count, rewardText, signed } from "./format.ts";
import { currentStep, data, onView, showStep, showTrajectory, view } from "./state.ts";

/** Creates the section of the current step's groups, side by side. */
export function groupsSection(): HTMLElement {
  const title = h("h2", { id: "groups-title" }, "Groups");
  const section = h("section", { id: "groups", "aria-labelledby": "groups-title" }, title);
  if (data.steps.length === 0) {
    section.append(h("p", { class: "empty" }, "The run has no file of trajectories yet."));
    return section;
  }
  const controls = h("div", { class: "controls" });
  const about = h("p", { class: "about" });
  const cards = h("div", { class: "groups" });
  section.append(h("div", { class: "bar" }, title, controls), about, cards, h("p", { class: "left-out" }, leftOut()));
  onView((changed) => {
    const step = currentStep();
    if (changed === "step" && step !== null) {
      refill(controls, stepControls(step));
      fill(about, aboutStep(step));
      fill(cards, groupCards(step));
    }
    for (const row of cards.querySelectorAll<HTMLElement>("[data-trajectory]")) {
      const isShown = row.dataset["group"] === String(view.group) && row.dataset["trajectory"] === String(view.trajectory);
      row.setAttribute("aria-pressed", String(isShown));
    }
  });
  return section;
}

/** Describes the steps in the page, the omitted steps, and the location of their files. */
function leftOut(): string {
  const here = (split: Split) => data.steps.filter((each) => each.split === split).length;
  const { train, eval: evaluations } = data.available;
  const files = [train > 0 && "trajectories/train/", evaluations > 0 && "trajectories/eval/"].filter(Boolean).join(" and ");
  const kept = `${here("train")} of ${count(train, "training step")} and ${here("eval")} of ${count(evaluations, "evaluation")}`;
  const isWhole = here("train") === train && here("eval") === evaluations;
  if (isWhole) return `The trajectories of all steps are in this page; the files they come from are in ${files} of the run directory.`;
  return `This page holds the trajectories of ${kept}: the first, the last, the best, and others evenly spaced. The rest are in ${files} of the run directory; the curves show every step.`;
}

function stepControls(step: StepData): Child {
  const splits = [...new Set(data.steps.map((each) => each.split))];
  const own = data.steps.map((each, index) => ({ each, index })).filter(({ each }) => each.split === step.split);
  const at = own.findIndex(({ index }) => index === view.step);
  const toSplit = (split: Split) => {
    const same = data.steps.filter((each) => each.split === split);
    const near = same.reduce((best, each) => (Math.abs(each.step - step.step) < Math.abs(best.step - step.step) ? each : best));
    showStep(data.steps.indexOf(near));
  };
  const choose = (): void => showStep(Number(select.value));
  const options = own.map(({ each: { step: number, reason }, index }) => {
    const text = `step ${number}${reason === "spaced" ? "" : ` · ${reason}`}`;
    return h("option", { value: index, selected: index === view.step }, text);
  });
  const select = h("select", { id: "step", "aria-label": "Step", change: choose }, options);
  const move = (by: number, label: string, sign: string) => {
    const target = own[at + by];
    const click = target && (() => showStep(target.index));
    return h("button", { type: "button", "aria-label": label, disabled: !target, click }, sign);
  };
  return [
    splits.length > 1 &&
      segmented(
        "Rollouts of",
        splits.map((value) => ({ value, label: value === "train" ? "Training" : "Evaluation" })),
        { name: "split", value: step.split, onChange: ({ value }) => toSplit(value) },
      ),
    h("div", { class: "stepper" }, move(-1, "Earlier step", "‹"), select, move(1, "Later step", "›")),
  ];
}

function aboutStep(step: StepData): Child {
  const trajectories = step.groups.flatMap((group) => group.trajectories);
  const failed = step.groups.reduce((sum, group) => sum + group.exceptions.length, 0);
  const mean = trajectories.reduce((sum, each) => sum + each.reward, 0) / trajectories.length;
  const flat = step.groups.filter((group) => group.trajectories.length > 1 && !group.isTrainable).length;
  const parts = [
    `${count(step.groups.length, "group")}, ${count(trajectories.length, "trajectory", "trajectories")}`,
    trajectories.length > 0 && `mean reward ${rewardText(mean)}`,
    failed > 0 && `${count(failed, "rollout")} failed`,
    flat > 0 && `${count(flat, "group")} with equal rewards, nothing to learn from`,
    step.omitted > 0 && `${count(step.omitted, "trajectory", "trajectories")} without contents, to keep this page small`,
  ];
  return [parts.filter(Boolean).join(" · "), " · ", h("code", {}, step.file)];
}

/** Scales of the bars of a step. */
interface Scales {
  /** Range of the rewards; includes 0. */
  readonly low: number;
  readonly high: number;
  /** Largest advantage by amount; null omits advantages. */
  readonly largest: number | null;
}

function groupCards({ groups }: StepData): Child {
  const isSingle = groups.every((group) => group.trajectories.length + group.exceptions.length <= 1);
  const trajectories = groups.flatMap((group) => group.trajectories);
  const rewards = trajectories.map((each) => each.reward);
  const largest = isSingle ? null : Math.max(1e-9, ...trajectories.map((each) => Math.abs(each.advantage)));
  const scales = { low: Math.min(0, ...rewards), high: Math.max(1e-9, ...rewards), largest };
  if (!isSingle) return groups.map((group, at) => groupCard(group, at, scales));
  const rows = groups.map((group, at) => [
    group.trajectories.map((each, index) => row(each, { label: group.id, group, at, index, scales })),
    group.exceptions.map((exception) => failure(exception, group.id)),
  ]);
  return h("article", { class: "group single" }, h("div", { class: "rows" }, rows));
}

function groupCard(group: GroupData, at: number, scales: Scales): HTMLElement {
  const { mean, deviation } = group;
  const summary =
    mean === null || deviation === null
      ? "no trajectory"
      : [h("b", {}, rewardText(mean)), group.trajectories.length > 1 && ` ± ${rewardText(deviation)}`];
  const head = [null, "reward", null, "advantage", null].map((name) => h("span", {}, name));
  return h(
    "article",
    { class: "group", "data-group-card": at },
    h("header", {}, h("h3", { title: group.id }, group.id), h("span", { class: "mean", title: "mean reward ± deviation" }, summary)),
    h(
      "div",
      { class: "rows" },
      h("div", { class: "row head", "aria-hidden": "true" }, head),
      group.trajectories.map((each, index) => row(each, { label: `${index}`, group, at, index, scales })),
      group.exceptions.map((exception) => failure(exception, "")),
    ),
    !group.isTrainable && group.trajectories.length > 1 && h("p", { class: "hint" }, "All rewards equal: nothing to learn from."),
    group.logs.length > 0 && h("details", {}, h("summary", {}, count(group.logs.length, "log line")), h("pre", {}, group.logs.join("\n"))),
  );
}

/** Creates a trajectory's button: its reward is a bar from the left, its advantage a bar from the middle. `at` is the index of the group. */
function row(
  { reward, advantage, detail }: TrajectoryData,
  { label, group, at, index, scales }: { label: string; group: GroupData; at: number; index: number; scales: Scales },
): HTMLElement {
  const { low, high, largest } = scales;
  const spoken = `${group.id}, trajectory ${index}: reward ${rewardText(reward)}${largest === null ? "" : `, advantage ${signed(advantage)}`}`;
  return h(
    "button",
    {
      type: "button",
      class: `row${detail === null ? " bare" : ""}${largest === null ? " plain" : ""}`,
      "data-group": at,
      "data-trajectory": index,
      "aria-label": spoken,
      "aria-pressed": "false",
      title: detail === null ? "Its contents are not in this page" : null,
      click: () => open(at, index),
    },
    h("span", { class: "index" }, label),
    h("span", { class: "value" }, rewardText(reward)),
    h("span", { class: "bar-reward", "--share": (reward - low) / (high - low) }),
    largest !== null && h("span", { class: "value" }, signed(advantage)),
    largest !== null && h("span", { class: `bar-advantage ${advantage < 0 ? "down" : "up"}`, "--share": Math.abs(advantage) / largest }),
  );
}

function open(group: number, trajectory: number): void {
  showTrajectory(group, trajectory);
  byId("trajectory").scrollIntoView({ block: "start", behavior: "instant" });
  byId("trajectory-title").focus({ preventScroll: true });
}

function failure({ type, message, traceback }: GroupData["exceptions"][number], label: string): HTMLElement {
  return h(
    "details",
    { class: "failure" },
    h("summary", {}, label && `${label} `, h("b", {}, type || "failed"), " ", message),
    h("pre", {}, traceback || message || "No traceback was kept."),
  );
}
