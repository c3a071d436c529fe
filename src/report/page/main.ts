import type { ColumnsData } from "../page-data.ts";
import { curvesSection, redraw } from "./curves.ts";
import { byId, type Child, h } from "./dom.ts";
import { factsSection } from "./facts.ts";
import { number, seconds } from "./format.ts";
import { groupsSection } from "./groups.ts";
import { readerSection } from "./reader.ts";
import { data, restore } from "./state.ts";
import { themeControl } from "./theme.ts";

function headline(): HTMLElement {
  const { train, eval: evaluations } = data.metrics;
  const fact = (name: string) => data.facts.find(([each]) => each === name)?.[1];
  const known = ({ columns }: ColumnsData) => (columns["reward/mean"] ?? []).filter((value) => value !== null);
  const rewards = known(train);
  const evaluated = known(evaluations);
  const best = rewards.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const bestStep = () => train.steps[train.columns["reward/mean"]?.indexOf(best) ?? -1];
  const change = (values: readonly number[]) => [number(values[0]), h("i", { class: "arrow" }, " → "), number(values.at(-1))];
  const numbers: readonly (false | readonly [name: string, value: Child, unit?: string])[] = [
    rewards.length > 0 && ["Reward, training", change(rewards)],
    evaluated.length > 0 && ["Reward, evaluation", change(evaluated)],
    rewards.length > 0 && ["Best step", [number(best), h("small", {}, ` step ${bestStep()}`)]],
    train.steps.length > 0 && ["Steps", number(train.steps.length)],
    fact("Seconds") !== undefined && ["Time", seconds(Number(fact("Seconds")))],
    fact("Checkpoints") !== undefined && ["Checkpoints", data.checkpoints.filter(({ state }) => state !== "deleted").length, "kept"],
  ];
  const shown = numbers.filter((each) => each !== false);
  const sections = Object.entries({ curves: "Curves", groups: "Groups", trajectory: "Trajectory", facts: "Run" });
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
          sections.map(([id, label]) => h("button", { type: "button", class: "link", click: () => jump(id) }, label)),
        ),
        themeControl(),
      ),
    ),
    shown.length > 0 &&
      h(
        "dl",
        { class: "numbers" },
        shown.map(([name, value, unit]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, unit && h("small", {}, ` ${unit}`)))),
      ),
  );
}

/** Scrolls to a section. A link would not do: the address after `#` names the trajectory that is shown. */
function jump(id: string): void {
  const section = byId(id);
  section.scrollIntoView({ block: "start" });
  const heading = section.querySelector("h2");
  heading?.setAttribute("tabindex", "-1");
  heading?.focus({ preventScroll: true });
}

byId("page").append(headline(), h("main", {}, curvesSection(), groupsSection(), readerSection(), factsSection()));
addEventListener("hashchange", restore);
// Also draws the charts, now that the page has a width.
restore();
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  redraw();
});
document.documentElement.dataset["ready"] = "";
