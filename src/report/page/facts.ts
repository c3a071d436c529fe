import { type Child, h, pairs } from "./dom.ts";
import { number } from "./format.ts";
import { data } from "./state.ts";

/** Creates the section of settings, checkpoints and events. */
export function factsSection(): HTMLElement {
  return h(
    "section",
    { id: "facts", "aria-labelledby": "facts-title" },
    h("h2", { id: "facts-title" }, "Run"),
    h(
      "div",
      { class: "columns" },
      h("div", {}, h("h3", {}, "Facts"), pairs([...data.facts, ["Page written", data.written.slice(0, 19).replace("T", " ") + " UTC"]])),
      h(
        "div",
        {},
        h("h3", {}, "Configuration"),
        data.config.length === 0 ? h("p", { class: "empty" }, "The run has no config.json.") : pairs(data.config),
      ),
      h(
        "div",
        {},
        h("h3", {}, "Checkpoints"),
        checkpoints(),
        data.events.length > 0 && [h("h3", {}, "Events"), pairs(data.events)],
        notices(),
      ),
    ),
  );
}

function checkpoints(): Child {
  if (data.checkpoints.length === 0) return h("p", { class: "empty" }, "None was recorded.");
  const key = "reward/mean";
  const has = {
    id: data.checkpoints.some(({ id }) => id !== ""),
    run: data.checkpoints.some(({ runStep }) => runStep !== null),
    reward: data.checkpoints.some(({ metrics }) => key in metrics),
  };
  const rows = data.checkpoints
    .toReversed()
    .map(({ step, id, runStep, state, metrics }) =>
      h(
        "tr",
        { class: state },
        h("th", { scope: "row" }, step),
        has.id && h("td", { class: "id", title: id }, id),
        has.run && h("td", {}, runStep ?? "–"),
        h("td", {}, state),
        has.reward && h("td", {}, number(metrics[key])),
      ),
    );
  const head = ["step", has.id && "id", has.run && "made by run step", "state", has.reward && "reward"]
    .filter((name) => name !== false)
    .map((name) => h("th", { scope: "col", class: name === "id" && "id" }, name));
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Checkpoints" },
    h("table", { class: "grid" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)),
  );
}

function notices(): Child {
  if (data.notices.length === 0) return null;
  const lines = data.notices.map(({ type, step, message }) =>
    h("li", {}, h("b", {}, type), step !== null && h("small", {}, ` step ${step} `), " ", message),
  );
  return [h("h3", {}, "Warnings and failures"), h("ul", { class: "notices scroll", tabindex: 0 }, lines)];
}
