import { h, pairs } from "./dom.js";
import { number } from "./format.js";
import { data } from "./state.js";

/** The section of settings, checkpoints and events. */
export function factsSection() {
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
      h("div", {}, h("h3", {}, "Checkpoints"), checkpoints(), data.events.length > 0 && [h("h3", {}, "Events"), pairs(data.events)]),
    ),
  );
}

function checkpoints() {
  if (data.checkpoints.length === 0) return h("p", { class: "empty" }, "None was recorded.");
  const key = "reward/mean";
  const hasReward = data.checkpoints.some(({ metrics }) => key in metrics);
  const rows = data.checkpoints
    .toReversed()
    .map(({ step, id, state, metrics }) =>
      h(
        "tr",
        { class: state },
        h("th", { scope: "row" }, step),
        h("td", { class: "id", title: id }, id),
        h("td", {}, state),
        hasReward && h("td", {}, number(metrics[key])),
      ),
    );
  const head = ["step", "id", "state", hasReward && "reward"]
    .filter(Boolean)
    .map((name) => h("th", { scope: "col", class: name === "id" && "id" }, name));
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Checkpoints" },
    h("table", { class: "grid" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)),
  );
}
