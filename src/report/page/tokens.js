import { fill, h } from "./dom.js";
import { signed } from "./format.js";

/** Ways to colour tokens. `scale` gives −1…1 (below 0: cool, above: warm, 0: none) or null where a turn has no such number. */
export const COLOURS = {
  logprob: {
    label: "Log-probability",
    legend: ["certain", "unlikely"],
    kind: "sequential",
    scale: ({ sampled }, at) => (sampled.logprobs ? Math.min(1, -sampled.logprobs[at] / 4) ** 0.7 : null),
  },
  advantage: {
    label: "Advantage",
    legend: ["less of this", "more of this"],
    kind: "diverging",
    scale: ({ sampled, trajectory }) => Math.max(-1, Math.min(1, (sampled.advantage ?? trajectory.advantage) / 2)),
  },
  difference: {
    label: "Trained − sampled",
    legend: ["sampler surer", "trainer surer"],
    kind: "diverging",
    scale: ({ sampled }, at) => {
      if (!sampled.trained || !sampled.logprobs) return null;
      const difference = sampled.trained[at] - sampled.logprobs[at];
      return Math.sign(difference) * Math.min(1, Math.abs(difference) / 0.5) ** 0.5;
    },
  },
  plain: { label: "None", legend: null, kind: "none", scale: () => null },
};

/**
 * The tokens of one turn as one focusable block: arrow keys go from token to token, a pointer picks one, and the line below
 * says everything about the one picked.
 */
export function tokenBlock(sampled, trajectory, { colour, hint }) {
  const readout = h("p", { class: "token-readout", "aria-live": "polite" }, hint);
  const spans = sampled.texts.map((text, at) => h("span", { class: "token", "data-at": at }, visible(text)));
  let picked = -1;
  const pick = (at) => {
    spans[picked]?.classList.remove("picked");
    picked = Math.max(0, Math.min(spans.length - 1, at));
    spans[picked].classList.add("picked");
    fill(readout, tokenFacts(sampled, trajectory, picked));
  };
  const block = h(
    "div",
    { class: "tokens", tabindex: 0, role: "group", "aria-label": `${spans.length} sampled tokens; arrow keys read them` },
    spans,
  );
  block.addEventListener("pointerover", (event) => event.target.dataset?.at !== undefined && pick(Number(event.target.dataset.at)));
  block.addEventListener("click", (event) => event.target.dataset?.at !== undefined && pick(Number(event.target.dataset.at)));
  block.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    pick(picked < 0 ? (by === Infinity ? spans.length - 1 : 0) : picked + by);
  });
  paint(spans, { sampled, trajectory }, colour);
  return { element: h("div", { class: "sampled" }, block, readout), paint: (name) => paint(spans, { sampled, trajectory }, name) };
}

function paint(spans, turn, name) {
  const { scale, kind } = COLOURS[name];
  for (const [at, span] of spans.entries()) {
    const value = scale(turn, at);
    span.dataset.kind = value === null ? "none" : kind === "sequential" ? "warm" : value < 0 ? "down" : "up";
    span.style.setProperty("--strength", value === null ? "0" : Math.abs(value).toFixed(3));
  }
}

function tokenFacts(sampled, trajectory, at) {
  const logprob = sampled.logprobs?.[at];
  const trained = sampled.trained?.[at];
  const fact = (name, value) => h("span", {}, h("small", {}, name), " ", value);
  const probability = logprob === undefined ? "" : ` (${(Math.exp(logprob) * 100).toPrecision(3)} %)`;
  return [
    fact(`token ${at + 1} of ${sampled.texts.length}`, h("code", {}, JSON.stringify(sampled.texts[at]))),
    sampled.ids && fact("id", sampled.ids[at]),
    logprob !== undefined && fact("sampled", `${minus(logprob)}${probability}`),
    trained === undefined ? fact("trained", "not kept") : fact("trained", minus(trained)),
    trained !== undefined && logprob !== undefined && fact("difference", signedFine(trained - logprob)),
    fact("advantage", signed(sampled.advantage ?? trajectory.advantage)),
  ];
}

function minus(value) {
  return value.toFixed(4).replace("-", "−");
}

function signedFine(value) {
  return `${value < 0 ? "" : "+"}${minus(value)}`;
}

/** A line end stays one, and can be seen and pointed at. */
function visible(text) {
  return text.replaceAll("\n", "↵\n").replaceAll("\t", "⇥\t");
}
