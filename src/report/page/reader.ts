import type { DetailData, GroupData, ItemData, Scalars, StepData, TrajectoryData } from "../page-data.ts";
import { type Child, fill, h, pairs, refill, segmented } from "./dom.ts";
import { count, number, prettyJson, rewardText, scalar, seconds, signed } from "./format.ts";
import { currentStep, data, onView, showTrajectory, view } from "./state.ts";
import { type Coloring, COLORINGS, type TokenBlock, tokenBlock } from "./tokens.ts";

let coloring: Coloring = COLORINGS[0];
let blocks: TokenBlock[] = [];

/** Creates the section of the current trajectory. */
export function readerSection(): HTMLElement {
  if (data.steps.length === 0) return h("section", { id: "trajectory", hidden: true });
  const title = h("h2", { id: "trajectory-title", tabindex: -1 }, "Trajectory");
  const controls = h("div", { class: "controls" });
  const siblings = h("nav", { class: "siblings", "aria-label": "Trajectories of the group" });
  const body = h("div", { class: "reader" });
  onView(() => {
    blocks = [];
    const step = currentStep();
    const group = step?.groups[view.group];
    const trajectory = group?.trajectories[view.trajectory];
    if (!step || !group || !trajectory) {
      fill(controls);
      fill(siblings);
      fill(body, h("p", { class: "empty" }, "No rollout of this step ended with a trajectory."));
      return;
    }
    fill(title, "Trajectory ", h("span", { class: "which" }, `${group.id} · ${view.trajectory}`));
    fill(controls, coloringControl(trajectory));
    refill(siblings, siblingButtons(group));
    fill(body, conversation(step, group, trajectory), aside(group, trajectory));
  });
  const bar = h("div", { class: "bar" }, title, controls);
  return h("section", { id: "trajectory", "aria-labelledby": "trajectory-title" }, bar, siblings, body);
}

function coloringControl(trajectory: TrajectoryData): Child {
  const hasTrained = (trajectory.detail?.histories ?? []).flat().some((item) => item.sampled?.trained);
  const options = COLORINGS.map((each) => {
    const isMissing = each.name === "difference" && !hasTrained;
    const title = isMissing ? "The run kept no log-probabilities of the trainer for this trajectory" : null;
    return { each, value: each.name, label: each.label, disabled: isMissing, title };
  });
  if (coloring.name === "difference" && !hasTrained) coloring = COLORINGS[0];
  const legend = h("span", { class: "legend" });
  const onChange = ({ each }: { readonly each: Coloring }) => {
    coloring = each;
    for (const block of blocks) block.paint(each);
    fill(legend, scaleOf(each));
  };
  fill(legend, scaleOf(coloring));
  return [legend, segmented("Colour tokens by", options, { name: "colour", value: coloring.name, onChange })];
}

function scaleOf({ legend, kind }: Coloring): Child {
  return legend && [h("small", {}, legend[0]), h("i", { class: `scale ${kind}` }), h("small", {}, legend[1])];
}

function siblingButtons({ trajectories }: GroupData): Child {
  if (trajectories.length < 2) return null;
  return trajectories.map(({ reward }, index) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(index === view.trajectory),
        "aria-label": `Trajectory ${index}, reward ${rewardText(reward)}`,
        click: () => showTrajectory(view.group, index),
      },
      h("small", {}, index),
      rewardText(reward),
    ),
  );
}

function conversation(step: StepData, group: GroupData, trajectory: TrajectoryData): HTMLElement {
  const { detail } = trajectory;
  if (detail === null) {
    const place = `${step.file}, line ${group.line}, trajectory ${view.trajectory}`;
    return h("div", { class: "conversation" }, h("p", { class: "empty" }, `Left out to keep this page small. It is in ${place}.`));
  }
  const [main = [], ...additional] = detail.histories;
  return h(
    "div",
    { class: "conversation" },
    history(main, trajectory),
    step.split === "train" && comparison(detail),
    additional.map((items, index) =>
      h(
        "details",
        { class: "history", open: additional.length === 1 },
        h("summary", {}, `Additional history ${index + 1}: ${count(items.length, "message")}`),
        history(items, trajectory),
      ),
    ),
  );
}

/** Creates a note if the trainer's log-probabilities of some turns are missing. */
function comparison({ histories }: DetailData): Child {
  const turns = histories.flat().flatMap((item) => item.sampled ?? []);
  const missing = turns.filter(({ trained }) => trained === null).length;
  if (missing === 0) return null;
  const which = missing === turns.length ? "this trajectory" : `${missing} of its ${turns.length} turns`;
  const text = `The trainer's log-probabilities of ${which} were not kept, so sampled and trained cannot be compared.`;
  return h("p", { class: "hint trained-absent" }, text);
}

function history(items: readonly ItemData[], trajectory: TrajectoryData): HTMLElement {
  if (items.length === 0) return h("p", { class: "empty" }, "No message.");
  const names = new Map(items.flatMap((item) => item.calls.map((call) => [call.id, call.name] as const)));
  return h(
    "ol",
    { class: "turns" },
    items.map((item) => turn(item, item.name ?? (item.callId === null ? null : names.get(item.callId)), trajectory)),
  );
}

/** Creates a turn. `name` is the name of the speaker or of the tool, if known. */
function turn(item: ItemData, name: string | null | undefined, trajectory: TrajectoryData): HTMLElement {
  const { sampled } = item;
  const facts = sampled && [
    count(sampled.texts.length, "token"),
    sampled.promptTokens !== null && `after ${count(sampled.promptTokens, "prompt token")}`,
    sampled.finish && `ended by ${sampled.finish}`,
    sampled.policy !== null && `policy step ${sampled.policy}`,
    sampled.advantage !== null && `trainer's advantage ${signed(sampled.advantage)}`,
  ];
  return h(
    "li",
    { class: `turn ${sampled ? "choice" : "context"}`, "data-role": item.role },
    h(
      "div",
      { class: "who" },
      h("b", {}, item.role),
      name && h("span", {}, name),
      sampled && h("span", { class: "badge" }, "sampled"),
      facts && h("small", {}, facts.filter(Boolean).join(" · ")),
    ),
    h("div", { class: "said" }, said(item, trajectory), item.calls.map(toolCall)),
  );
}

function said(item: ItemData, trajectory: TrajectoryData): Child {
  const { sampled } = item;
  const parts: Child[] = [];
  if (sampled === null || sampled.texts.length === 0) {
    if (item.reasoning) parts.push(h("blockquote", { class: "reasoning" }, item.reasoning));
    if (item.text !== "")
      parts.push(
        h("div", { class: item.role === "tool" ? "text code" : "text" }, item.role === "tool" ? prettyJson(item.text) : item.text),
      );
    else if (item.calls.length === 0) parts.push(h("p", { class: "hint" }, "No text."));
  } else {
    // The first block has the hint; all blocks work alike.
    const hint = blocks.length === 0 ? "Point at a token, or focus the text and use the arrow keys." : null;
    const block = tokenBlock({ sampled, trajectory }, coloring, hint);
    blocks.push(block);
    parts.push(block.element);
  }
  for (const note of sampled?.notes ?? []) parts.push(h("p", { class: "hint" }, note));
  return parts;
}

function toolCall({ id, name, args }: ItemData["calls"][number]): HTMLElement {
  return h(
    "div",
    { class: "call" },
    h("div", { class: "call-name" }, h("span", {}, "calls"), h("b", {}, name), id && h("small", {}, id)),
    args !== "" && h("pre", {}, prettyJson(args)),
  );
}

function aside(group: GroupData, trajectory: TrajectoryData): HTMLElement {
  const { detail } = trajectory;
  const rows: [name: string, value: Child][] = [
    ["Reward", rewardText(trajectory.reward)],
    ["Advantage", signed(trajectory.advantage)],
    ["Sampled turns", number(trajectory.turns)],
    ["Sampled tokens", number(trajectory.tokens)],
  ];
  if (detail !== null) {
    const [first, last] = detail.policies;
    if (first !== null) rows.push(["Policy step", first === last || last === null ? first : `${first} to ${last}`]);
    if (detail.start !== null) rows.push(["Started", detail.start.replace("T", " ").replace("Z", " UTC")]);
  }
  return h(
    "aside",
    { "aria-label": "Facts of the trajectory" },
    pairs(rows),
    detail !== null && detailBlocks(detail),
    scalars("Group", { ...group.metadata, ...group.metrics }),
    h("p", { class: "hint" }, "Advantage is (reward − group mean) / group deviation."),
  );
}

function detailBlocks(detail: DetailData): Child {
  const isTime = (name: string) => name === "duration" || name.endsWith("_duration");
  const metrics = Object.entries(detail.metrics);
  return [
    timing(metrics.filter(([name]) => isTime(name)).map(([name, value]) => [name, Number(value)])),
    scalars("Metrics", Object.fromEntries(metrics.filter(([name]) => !isTime(name)))),
    scalars("Metadata", detail.metadata),
    detail.tools.length > 0 &&
      h(
        "details",
        {},
        h("summary", {}, count(detail.tools.length, "tool")),
        pairs(detail.tools.map((tool) => [tool.name, tool.description])),
      ),
    detail.logs.length > 0 && [h("h3", {}, "Log"), h("pre", { class: "log" }, detail.logs.join("\n"))],
  ];
}

/** Creates the table of the rollout's seconds: the whole first, then each measured part. */
function timing(entries: readonly (readonly [name: string, value: number])[]): Child {
  if (entries.length === 0) return null;
  const whole = Math.max(1e-9, ...entries.map(([, value]) => value));
  const ordered = entries.toSorted(([a, x], [b, y]) => Number(b === "duration") - Number(a === "duration") || y - x);
  const rows = ordered.map(([name, value]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name === "duration" ? "whole rollout" : name.slice(0, -"_duration".length)),
      h("td", {}, h("span", { class: "bar-reward", "--share": value / whole })),
      h("td", {}, seconds(value)),
    ),
  );
  return [h("h3", {}, "Timing"), h("table", { class: "timing" }, h("tbody", {}, rows))];
}

function scalars(title: string, values: Scalars): Child {
  const rows = Object.entries(values).map(([name, value]) => [name, scalar(value)] as const);
  return rows.length > 0 && [h("h3", {}, title), pairs(rows)];
}
