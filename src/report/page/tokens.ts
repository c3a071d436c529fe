import type { SampledData, TrajectoryData } from "../page-data.ts";
import { type Child, fill, h } from "./dom.ts";
import { signed } from "./format.ts";

/** A sampled turn and its trajectory. */
interface Turn {
  readonly sampled: SampledData;
  readonly trajectory: TrajectoryData;
}

/** A way to color tokens. */
export interface Coloring {
  readonly name: string;
  readonly label: string;
  readonly legend: readonly [low: string, high: string] | null;
  readonly kind: "sequential" | "diverging" | "none";
  /** Returns -1 to 1 (below 0: cool, above: warm, 0: none), or null if the turn has no such number. */
  readonly scale: (turn: Turn, at: number) => number | null;
}

/** Colorings in the order of their control; the first is the default. */
export const COLORINGS = [
  {
    name: "logprob",
    label: "Log-probability",
    legend: ["certain", "unlikely"],
    kind: "sequential",
    scale: ({ sampled }, at) => {
      const logprob = sampled.logprobs?.[at];
      return logprob === undefined ? null : Math.min(1, -logprob / 4) ** 0.7;
    },
  },
  {
    name: "advantage",
    label: "Advantage",
    legend: ["less of this", "more of this"],
    kind: "diverging",
    scale: ({ sampled, trajectory }) => Math.max(-1, Math.min(1, (sampled.advantage ?? trajectory.advantage) / 2)),
  },
  {
    name: "difference",
    label: "Trained − sampled",
    legend: ["sampler surer", "trainer surer"],
    kind: "diverging",
    scale: ({ sampled }, at) => {
      const trained = sampled.trained?.[at];
      const logprob = sampled.logprobs?.[at];
      if (trained === undefined || logprob === undefined) return null;
      return Math.sign(trained - logprob) * Math.min(1, Math.abs(trained - logprob) / 0.5) ** 0.5;
    },
  },
  { name: "plain", label: "None", legend: null, kind: "none", scale: () => null },
] as const satisfies readonly Coloring[];

/** Steps of the arrow keys in tokens. */
const KEYS: Readonly<Record<string, number>> = {
  ArrowRight: 1,
  ArrowLeft: -1,
  ArrowDown: 10,
  ArrowUp: -10,
  Home: -Infinity,
  End: Infinity,
};

/** Tokens of a turn on the page; `paint` colors them anew. */
export type TokenBlock = ReturnType<typeof tokenBlock>;

/**
 * Creates the tokens of a turn as one focusable block: arrow keys move from token to token, a pointer picks a token, and the line below
 * shows the facts of the picked token.
 */
export function tokenBlock(turn: Turn, coloring: Coloring, hint: string | null) {
  const readout = h("p", { class: "token-readout", "aria-live": "polite" }, hint);
  const spans = turn.sampled.texts.map((text, at) => h("span", { class: "token", "data-at": at }, visible(text)));
  let picked = -1;
  const pick = (at: number) => {
    spans[picked]?.classList.remove("picked");
    picked = Math.max(0, Math.min(spans.length - 1, at));
    spans[picked]?.classList.add("picked");
    fill(readout, tokenFacts(turn, picked));
  };
  const point = ({ target }: Event) => {
    const at = target instanceof HTMLElement ? target.dataset["at"] : undefined;
    if (at !== undefined) pick(Number(at));
  };
  const label = `${spans.length} sampled tokens; arrow keys read them`;
  const block = h("div", { class: "tokens", tabindex: 0, role: "group", "aria-label": label }, spans);
  block.addEventListener("pointerover", point);
  block.addEventListener("click", point);
  block.addEventListener("keydown", (event) => {
    const by = KEYS[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    pick(picked < 0 ? (by === Infinity ? spans.length - 1 : 0) : picked + by);
  });
  const paint = ({ scale, kind }: Coloring) => {
    for (const [at, { dataset, style }] of spans.entries()) {
      const value = scale(turn, at);
      dataset["kind"] = value === null ? "none" : kind === "sequential" ? "warm" : value < 0 ? "down" : "up";
      style.setProperty("--strength", value === null ? "0" : Math.abs(value).toFixed(3));
    }
  };
  paint(coloring);
  return { element: h("div", { class: "sampled" }, block, readout), paint };
}

function tokenFacts({ sampled, trajectory }: Turn, at: number): Child {
  const logprob = sampled.logprobs?.[at];
  const trained = sampled.trained?.[at];
  const fact = (name: string, value: Child) => h("span", {}, h("small", {}, name), " ", value);
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

function minus(value: number): string {
  return value.toFixed(4).replace("-", "−");
}

function signedFine(value: number): string {
  return `${value < 0 ? "" : "+"}${minus(value)}`;
}

/** Marks line ends and tabs with a symbol, so that they can be seen and pointed at; a line end still ends the line. */
function visible(text: string): string {
  return text.replaceAll("\n", "↵\n").replaceAll("\t", "⇥\t");
}
