import { fill, h, pairs, refill, segmented } from "./dom.js";
import { count, number, prettyJson, rewardText, scalar, seconds, signed } from "./format.js";
import { currentStep, data, onView, showTrajectory, view } from "./state.js";
import { COLOURS, tokenBlock } from "./tokens.js";

let colour = "logprob";
let blocks = [];

/** The section that shows one trajectory. */
export function readerSection() {
  const title = h("h2", { id: "trajectory-title", tabindex: -1 }, "Trajectory");
  const section = h("section", { id: "trajectory", "aria-labelledby": "trajectory-title" });
  if (data.steps.length === 0) return h("section", { id: "trajectory", hidden: true });
  const controls = h("div", { class: "controls" });
  const siblings = h("nav", { class: "siblings", "aria-label": "Trajectories of the group" });
  const body = h("div", { class: "reader" });
  section.append(h("div", { class: "bar" }, title, controls), siblings, body);
  onView(() => {
    blocks = [];
    const group = currentStep()?.groups[view.group];
    const trajectory = group?.trajectories[view.trajectory];
    if (trajectory === undefined) {
      fill(controls);
      fill(siblings);
      fill(body, h("p", { class: "empty" }, "No rollout of this step ended with a trajectory."));
      return;
    }
    fill(title, "Trajectory ", h("span", { class: "which" }, `${group.id} · ${view.trajectory}`));
    fill(controls, colourControl(trajectory));
    refill(siblings, siblingButtons(group));
    fill(body, conversation(group, trajectory), aside(group, trajectory));
  });
  return section;
}

function colourControl(trajectory) {
  const hasTrained = (trajectory.detail?.histories ?? []).flat().some((item) => item.sampled?.trained);
  const options = Object.entries(COLOURS).map(([value, { label }]) => {
    const isMissing = value === "difference" && !hasTrained;
    return {
      value,
      label,
      disabled: isMissing,
      title: isMissing ? "The run kept no log-probabilities of the trainer for this trajectory" : null,
    };
  });
  if (colour === "difference" && !hasTrained) colour = "logprob";
  const legend = h("span", { class: "legend" });
  const apply = (value) => {
    colour = value;
    for (const block of blocks) block.paint(value);
    fill(legend, scaleOf(COLOURS[value]));
  };
  fill(legend, scaleOf(COLOURS[colour]));
  return [legend, segmented("Colour tokens by", options, { name: "colour", value: colour, onChange: apply })];
}

function scaleOf({ legend, kind }) {
  return legend && [h("small", {}, legend[0]), h("i", { class: `scale ${kind}` }), h("small", {}, legend[1])];
}

function siblingButtons(group) {
  const { trajectories } = group;
  if (trajectories.length < 2) return null;
  return trajectories.map(({ reward }, index) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(index === view.trajectory),
        "aria-label": `Trajectory ${index}, reward ${rewardText(reward)}`,
        on: { click: () => showTrajectory(view.group, index) },
      },
      h("small", {}, index),
      rewardText(reward),
    ),
  );
}

function conversation(group, trajectory) {
  const { detail } = trajectory;
  if (detail === null) {
    const { file } = currentStep();
    const place = `${file}, line ${group.line}, trajectory ${view.trajectory}`;
    return h("div", { class: "conversation" }, h("p", { class: "empty" }, `Left out to keep this page small. It is in ${place}.`));
  }
  const [main, ...additional] = detail.histories;
  return h(
    "div",
    { class: "conversation" },
    history(main, trajectory),
    comparison(detail),
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

/** Said where sampled and trained log-probabilities cannot be compared, and of how many turns. */
function comparison({ histories }) {
  const turns = histories.flat().filter((item) => item.sampled !== null);
  const missing = turns.filter((item) => item.sampled.trained === null).length;
  if (missing === 0 || currentStep().split !== "train") return null;
  const which = missing === turns.length ? "this trajectory" : `${missing} of its ${turns.length} turns`;
  const text = `The trainer's log-probabilities of ${which} were not kept, so sampled and trained cannot be compared.`;
  return h("p", { class: "hint trained-absent" }, text);
}

function history(items, trajectory) {
  if (items.length === 0) return h("p", { class: "empty" }, "No message.");
  const names = new Map(items.flatMap((item) => item.calls.map((call) => [call.id, call.name])));
  return h(
    "ol",
    { class: "turns" },
    items.map((item) => turn(item, { trajectory, names })),
  );
}

function turn(item, { trajectory, names }) {
  const { sampled } = item;
  const of = item.callId === null ? item.name : (item.name ?? names.get(item.callId));
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
      of && h("span", {}, of),
      sampled && h("span", { class: "badge" }, "sampled"),
      facts && h("small", {}, facts.filter(Boolean).join(" · ")),
    ),
    h("div", { class: "said" }, said(item, trajectory), item.calls.map(toolCall)),
  );
}

function said(item, trajectory) {
  const { sampled } = item;
  const parts = [];
  if (sampled === null || sampled.texts.length === 0) {
    if (item.reasoning) parts.push(h("blockquote", { class: "reasoning" }, item.reasoning));
    if (item.text !== "")
      parts.push(
        h("div", { class: item.role === "tool" ? "text code" : "text" }, item.role === "tool" ? prettyJson(item.text) : item.text),
      );
    else if (item.calls.length === 0) parts.push(h("p", { class: "hint" }, "No text."));
  } else {
    // Said once: the other turns work alike.
    const hint = blocks.length === 0 ? "Point at a token, or focus the text and use the arrow keys." : null;
    const block = tokenBlock(sampled, trajectory, { colour, hint });
    blocks.push(block);
    parts.push(block.element);
  }
  for (const note of sampled?.notes ?? []) parts.push(h("p", { class: "hint" }, note));
  return parts;
}

function toolCall({ id, name, args }) {
  return h(
    "div",
    { class: "call" },
    h("div", { class: "call-name" }, h("span", {}, "calls"), h("b", {}, name), id && h("small", {}, id)),
    args !== "" && h("pre", {}, prettyJson(args)),
  );
}

function aside(group, trajectory) {
  const { detail } = trajectory;
  const rows = [
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

function detailBlocks(detail) {
  const isTime = (name) => name === "duration" || name.endsWith("_duration");
  const metrics = Object.entries(detail.metrics);
  return [
    timing(metrics.filter(([name]) => isTime(name))),
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

/** Where the seconds of the rollout went: each tracked part beside the whole. */
function timing(entries) {
  if (entries.length === 0) return null;
  const whole = Math.max(1e-9, ...entries.map(([, value]) => Number(value)));
  const ordered = entries.toSorted(([a, x], [b, y]) => Number(b === "duration") - Number(a === "duration") || Number(y) - Number(x));
  return [
    h("h3", {}, "Timing"),
    h(
      "table",
      { class: "timing" },
      h(
        "tbody",
        {},
        ordered.map(([name, value]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, name === "duration" ? "whole rollout" : name.slice(0, -"_duration".length)),
            h("td", {}, h("span", { class: "bar-reward", vars: { "--share": Number(value) / whole } })),
            h("td", {}, seconds(Number(value))),
          ),
        ),
      ),
    ),
  ];
}

function scalars(title, values) {
  const rows = Object.entries(values).map(([name, value]) => [name, scalar(value)]);
  return rows.length > 0 && [h("h3", {}, title), pairs(rows)];
}
