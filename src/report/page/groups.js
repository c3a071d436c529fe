import { fill, h, refill, segmented } from "./dom.js";
import { count, rewardText, signed } from "./format.js";
import { currentStep, data, onView, showStep, showTrajectory, view } from "./state.js";

/** The section of one step's groups, side by side. */
export function groupsSection() {
  const section = h("section", { id: "groups", "aria-labelledby": "groups-title" }, h("h2", { id: "groups-title" }, "Groups"));
  if (data.steps.length === 0) {
    section.append(h("p", { class: "empty" }, "The run has no file of trajectories yet."));
    return section;
  }
  const controls = h("div", { class: "controls" });
  const about = h("p", { class: "about" });
  const cards = h("div", { class: "groups" });
  const heading = h("div", { class: "bar" }, section.firstChild, controls);
  section.append(heading, about, cards, h("p", { class: "left-out" }, leftOut()));
  onView((changed) => {
    if (changed === "step") {
      refill(controls, stepControls());
      fill(about, aboutStep(currentStep()));
      fill(cards, groupCards(currentStep()));
    }
    for (const row of cards.querySelectorAll("[data-trajectory]")) {
      const isShown = row.dataset.group === String(view.group) && row.dataset.trajectory === String(view.trajectory);
      row.setAttribute("aria-pressed", String(isShown));
    }
  });
  return section;
}

/** Which steps are here, which are not, and where those are. */
function leftOut() {
  const here = (split) => data.steps.filter((each) => each.split === split).length;
  const { train, eval: evaluations } = data.available;
  const files = [train > 0 && "trajectories/train/", evaluations > 0 && "trajectories/eval/"].filter(Boolean).join(" and ");
  const kept = `${here("train")} of ${count(train, "training step")} and ${here("eval")} of ${count(evaluations, "evaluation")}`;
  const isWhole = here("train") === train && here("eval") === evaluations;
  if (isWhole) return `The trajectories of all steps are in this page; the files they come from are in ${files} of the run directory.`;
  return `This page holds the trajectories of ${kept}: the first, the last, the best, and others evenly spaced. The rest are in ${files} of the run directory; the curves show every step.`;
}

function stepControls() {
  const step = currentStep();
  const splits = [...new Set(data.steps.map((each) => each.split))];
  const own = data.steps.map((each, index) => ({ each, index })).filter(({ each }) => each.split === step.split);
  const at = own.findIndex(({ index }) => index === view.step);
  const toSplit = (split) => {
    const same = data.steps.filter((each) => each.split === split);
    const near = same.reduce((best, each) => (Math.abs(each.step - step.step) < Math.abs(best.step - step.step) ? each : best));
    showStep(data.steps.indexOf(near));
  };
  const select = h(
    "select",
    { id: "step", "aria-label": "Step", on: { change: (event) => showStep(Number(event.target.value)) } },
    own.map(({ each, index }) =>
      h(
        "option",
        { value: index, selected: index === view.step },
        `step ${each.step}${each.reason === "spaced" ? "" : ` · ${each.reason}`}`,
      ),
    ),
  );
  const move = (by, label, sign) =>
    h("button", { type: "button", "aria-label": label, disabled: !own[at + by], on: { click: () => showStep(own[at + by].index) } }, sign);
  return [
    splits.length > 1 &&
      segmented(
        "Rollouts of",
        splits.map((value) => ({ value, label: value === "train" ? "Training" : "Evaluation" })),
        {
          name: "split",
          value: step.split,
          onChange: toSplit,
        },
      ),
    h("div", { class: "stepper" }, move(-1, "Earlier step", "‹"), select, move(1, "Later step", "›")),
  ];
}

function aboutStep(step) {
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

function groupCards(step) {
  const isSingle = step.groups.every((group) => group.trajectories.length + group.exceptions.length <= 1);
  const rewards = step.groups.flatMap((group) => group.trajectories.map((each) => each.reward));
  const range = { low: Math.min(0, ...rewards), high: Math.max(1e-9, ...rewards) };
  const largest = Math.max(1e-9, ...step.groups.flatMap((group) => group.trajectories.map((each) => Math.abs(each.advantage))));
  if (isSingle) {
    const rows = step.groups.map((group, at) => [
      group.trajectories.map((_, index) => row(group, at, { index, label: group.id, range, largest: null })),
      group.exceptions.map((exception) => failure(exception, group.id)),
    ]);
    return h("article", { class: "group single" }, h("div", { class: "rows" }, rows));
  }
  return step.groups.map((group, at) => groupCard(group, at, { range, largest }));
}

function groupCard(group, at, { range, largest }) {
  const summary =
    group.mean === null
      ? "no trajectory"
      : [h("b", {}, rewardText(group.mean)), group.trajectories.length > 1 && ` ± ${rewardText(group.deviation)}`];
  return h(
    "article",
    { class: "group", "data-group-card": at },
    h("header", {}, h("h3", { title: group.id }, group.id), h("span", { class: "mean", title: "mean reward ± deviation" }, summary)),
    h(
      "div",
      { class: "rows" },
      h(
        "div",
        { class: "row head", "aria-hidden": "true" },
        h("span"),
        h("span", {}, "reward"),
        h("span"),
        h("span", {}, "advantage"),
        h("span"),
      ),
      group.trajectories.map((_, index) => row(group, at, { index, label: `${index}`, range, largest })),
      group.exceptions.map((exception) => failure(exception, "")),
    ),
    !group.isTrainable && group.trajectories.length > 1 && h("p", { class: "hint" }, "All rewards equal: nothing to learn from."),
    group.logs.length > 0 && h("details", {}, h("summary", {}, count(group.logs.length, "log line")), h("pre", {}, group.logs.join("\n"))),
  );
}

/** One trajectory as a button: its reward as a bar from the left, its advantage as a bar from the middle. */
function row(group, at, { index, label, range, largest }) {
  const { reward, advantage, detail } = group.trajectories[index];
  const share = (reward - range.low) / (range.high - range.low);
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
      on: { click: () => open(at, index) },
    },
    h("span", { class: "index" }, label),
    h("span", { class: "value" }, rewardText(reward)),
    h("span", { class: "bar-reward", vars: { "--share": share } }),
    largest !== null && h("span", { class: "value" }, signed(advantage)),
    largest !== null &&
      h("span", { class: `bar-advantage ${advantage < 0 ? "down" : "up"}`, vars: { "--share": Math.abs(advantage) / largest } }),
  );
}

function open(group, trajectory) {
  showTrajectory(group, trajectory);
  document.getElementById("trajectory").scrollIntoView({ block: "start", behavior: "instant" });
  document.getElementById("trajectory-title").focus({ preventScroll: true });
}

function failure({ type, message, traceback }, label) {
  return h(
    "details",
    { class: "failure" },
    h("summary", {}, label && `${label} `, h("b", {}, type || "failed"), " ", message),
    h("pre", {}, traceback || message || "No traceback was kept."),
  );
}
