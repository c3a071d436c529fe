import { curvesSection, redraw } from "./curves.js";
import { h } from "./dom.js";
import { factsSection } from "./facts.js";
import { number, seconds } from "./format.js";
import { groupsSection } from "./groups.js";
import { readerSection } from "./reader.js";
import { data, restore } from "./state.js";
import { themeControl } from "./theme.js";

function headline() {
  const { train, eval: evaluations } = data.metrics;
  const fact = (name) => data.facts.find(([each]) => each === name)?.[1];
  const known = (columns) => (columns["reward/mean"] ?? []).filter((value) => value !== null);
  const rewards = known(train.columns);
  const evaluated = known(evaluations.columns);
  const best = rewards.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const change = (values) => [number(values[0]), h("i", { class: "arrow" }, " → "), number(values.at(-1))];
  const numbers = [
    rewards.length > 0 && ["Reward, training", change(rewards)],
    evaluated.length > 0 && ["Reward, evaluation", change(evaluated)],
    rewards.length > 0 && ["Best step", [number(best), h("small", {}, ` step ${train.steps[train.columns["reward/mean"].indexOf(best)]}`)]],
    train.steps.length > 0 && ["Steps", number(train.steps.length)],
    fact("Seconds") !== undefined && ["Time", seconds(Number(fact("Seconds")))],
    fact("Checkpoints") !== undefined && ["Checkpoints", data.checkpoints.filter(({ state }) => state !== "deleted").length, "kept"],
  ].filter(Boolean);
  return h(
    "header",
    { class: "top" },
    h(
      "div",
      { class: "bar" },
      h("div", {}, h("p", { class: "eyebrow" }, "Training run", fact("Model") && ` · ${fact("Model")}`), h("h1", {}, data.title)),
      h(
        "div",
        { class: "controls" },
        h(
          "nav",
          { "aria-label": "Sections" },
          [
            ["curves", "Curves"],
            ["groups", "Groups"],
            ["trajectory", "Trajectory"],
            ["facts", "Run"],
          ].map(([id, label]) => h("button", { type: "button", class: "link", on: { click: () => jump(id) } }, label)),
        ),
        themeControl(),
      ),
    ),
    numbers.length > 0 &&
      h(
        "dl",
        { class: "numbers" },
        numbers.map(([name, value, unit]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, unit && h("small", {}, ` ${unit}`)))),
      ),
  );
}

/** Not a link: what follows `#` says which trajectory is shown. */
function jump(id) {
  const section = document.getElementById(id);
  section.scrollIntoView({ block: "start" });
  const heading = section.querySelector("h2");
  heading?.setAttribute("tabindex", "-1");
  heading?.focus({ preventScroll: true });
}

function start() {
  document.getElementById("page").append(headline(), h("main", {}, curvesSection(), groupsSection(), readerSection(), factsSection()));
  addEventListener("hashchange", restore);
  // Also draws the charts, now that the page has a width.
  restore();
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    redraw();
  });
  document.documentElement.dataset.ready = "";
}

start();
