import type { Split } from "../page-data.ts";
import { consecutive, tickText, valueRange } from "../axis.ts";
import { type Child, fill, h } from "./dom.ts";
import { number } from "./format.ts";
import { currentStep, data, onView, showStep } from "./state.ts";
import { color, onTheme } from "./theme.ts";

// uPlot is a global: html.ts puts its own script before this one.

const HEIGHT_PX = 172;
const SPLITS = ["train", "eval"] as const;

/** Steps of every chart, without gaps; all charts share them, so that simultaneous values are aligned vertically. */
const steps = consecutive([...data.metrics.train.steps, ...data.metrics.eval.steps]);
const drawn = new Set<Chart>();
/** Weight of the exponential mean; 0 disables it. Long runs start smoothed: the values of single steps are drawn faintly. */
let smoothing = steps.length > 80 ? 0.6 : 0;
const known = new Map<string, Values>();

/** Values of a metric, aligned with {@link steps}; null for a step without the metric. */
type Values = (number | null)[];

/** Line of a chart: a metric of one split. */
interface Line {
  readonly split: Split;
  readonly key: string;
  /** Metric with the deviation, drawn as a band; null for none. */
  readonly band: string | null;
  readonly color: string;
}

/** A chart on the page. */
interface Chart {
  readonly figure: HTMLElement;
  readonly plot: HTMLElement;
  readonly readout: HTMLElement;
  readonly lines: readonly Line[];
  uplot: uPlot | null;
}

/** Title and optional lines of a metric's chart. */
interface Curve {
  readonly title: string;
  readonly note?: string;
  /** Metric with the deviation. */
  readonly band?: string;
  /** Whether the metric of evaluations is drawn too. */
  readonly evaluation?: boolean;
}

/** Charts in order, each drawn if the run has one of its metrics. `docs/reference/metrics.md` describes the metrics. */
const USUAL: readonly (Curve & { readonly keys: readonly string[] })[] = [
  { title: "Reward", note: "mean, one deviation either side", keys: ["reward/mean", "reward"], band: "reward/std", evaluation: true },
  { title: "Loss", keys: ["loss"] },
  { title: "Gradient norm", note: "before clipping", keys: ["grad_norm"] },
  { title: "Entropy", note: "nats", keys: ["entropy"] },
  { title: "KL", note: "nats", keys: ["kl", "kl/mean", "kl_divergence", "kl_policy_reference"] },
  { title: "Tokens per second", keys: ["time/tokens_per_second", "tokens_per_second"] },
  { title: "Sampler and trainer", note: "mean |Δ logprob|", keys: ["logprob_difference_mean"] },
  { title: "Seconds per step", keys: ["time/step_seconds"] },
];

/** Prefix of the rollouts' own metrics; some of them have a chart by default. */
const OWN = /^metric\//;
const MAX_OWN = 4;

/** Creates the section of curves. */
export function curvesSection(): HTMLElement {
  const { train, eval: evaluations } = data.metrics;
  if (steps.length === 0) {
    return h("section", { id: "curves" }, h("h2", {}, "Curves"), h("p", { class: "empty" }, "No step has been written yet."));
  }
  const cards = USUAL.flatMap((usual) => {
    const key = usual.keys.find((each) => train.columns[each] ?? (usual.evaluation && evaluations.columns[each]));
    return key === undefined ? [] : [usualCard(usual, key)];
  });
  const own = [...new Set([...Object.keys(train.columns), ...Object.keys(evaluations.columns)])].filter((key) => OWN.test(key));
  const ownCard = (key: string) => usualCard({ title: key.replace(OWN, ""), note: "of rollouts", evaluation: true }, key);
  cards.splice(2, 0, ...own.slice(0, MAX_OWN).map(ownCard));
  const section = h(
    "section",
    { id: "curves", "aria-labelledby": "curves-title" },
    h("div", { class: "bar" }, h("h2", { id: "curves-title" }, "Curves"), smoothControl()),
    h("div", { class: "curves" }, cards, explorerCard()),
    tableOfSteps(),
  );
  onTheme(redraw);
  onView((changed) => {
    if (changed !== "step") return;
    for (const chart of drawn) {
      if (chart.uplot) chart.uplot.redraw(false);
      else draw(chart);
    }
  });
  return section;
}

function usualCard({ title, note, band, evaluation }: Curve, key: string): HTMLElement {
  const lines: Line[] = [];
  const { train, eval: evaluations } = data.metrics;
  const hasBand = band !== undefined && train.columns[key] !== undefined && train.columns[band] !== undefined;
  if (train.columns[key]) lines.push({ split: "train", key, band: hasBand ? band : null, color: "line-a" });
  if (evaluation && evaluations.columns[key]) lines.push({ split: "eval", key, band: null, color: "line-b" });
  const { figure } = card(key, title, { note: hasBand || !note?.includes("deviation") ? note : "mean", lines });
  if (band !== undefined) figure.classList.add("wide");
  return figure;
}

/** Creates the card with a choice of any metric of the run. */
function explorerCard(): HTMLElement {
  const options = SPLITS.flatMap((split) => Object.keys(data.metrics[split].columns).map((key) => ({ split, key })));
  const groups = SPLITS.map((split) => {
    const own = options.filter((each) => each.split === split).map(({ key }) => h("option", { value: `${split} ${key}` }, key));
    return own.length > 0 && h("optgroup", { label: split }, own);
  });
  const select = h("select", { id: "metric", "aria-label": "Metric to draw" }, groups);
  const holder = h("div", { class: "explorer" });
  let shown: Chart | null = null;
  const choose = () => {
    const chosen = options[select.selectedIndex];
    if (chosen === undefined) return;
    if (shown) drawn.delete(shown);
    const { split, key } = chosen;
    shown = card(key, select, { note: split, lines: [{ split, key, band: null, color: "line-a" }] });
    fill(holder, shown.figure);
    if (document.body.contains(holder)) draw(shown);
    select.focus({ preventScroll: true });
  };
  const wanted = options.findIndex(({ key }) => key === "data/trainable_trajectories");
  select.selectedIndex = Math.max(0, wanted);
  select.addEventListener("change", choose);
  choose();
  return holder;
}

function card(key: string, title: string | HTMLElement, { note, lines }: { note: string | undefined; lines: readonly Line[] }): Chart {
  const plot = h("div", { class: "plot", role: "img", "aria-label": describe(typeof title === "string" ? title : key, lines) });
  const readout = h("p", { class: "readout" });
  const figure = h(
    "figure",
    { class: "card", "data-metric": key },
    h("figcaption", {}, h("span", { class: "title" }, title), note && h("span", { class: "note" }, note)),
    readout,
    plot,
  );
  const chart = { figure, plot, readout, lines, uplot: null };
  drawn.add(chart);
  return chart;
}

/** Draws every chart anew: colors, widths and smoothing are fixed in a drawn chart. */
export function redraw(): void {
  for (const chart of drawn) draw(chart);
}

/** Data, series and bands of a chart for uPlot. */
interface Parts {
  readonly columns: [xs: number[], ...ys: Values[]];
  readonly series: uPlot.Series[];
  readonly bands: uPlot.Band[];
}

function draw(chart: Chart): void {
  chart.uplot?.destroy();
  const parts: Parts = { columns: [steps], series: [{}], bands: [] };
  for (const line of chart.lines) addLine(line, parts);
  const show = (index: number | null) => fill(chart.readout, readoutOf(chart.lines, index));
  const axis = { stroke: color("muted"), font: "11px system-ui, sans-serif", ticks: { show: false } };
  chart.uplot = new uPlot(
    {
      width: Math.max(160, chart.plot.clientWidth),
      height: HEIGHT_PX,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { y: false, sync: { key: "steps" }, drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false }, y: { range: (_, min, max) => valueRange(min, max) } },
      axes: [
        { ...axis, grid: { show: false }, size: 26, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick : "")) },
        {
          ...axis,
          grid: { stroke: color("grid"), width: 1 },
          size: 46,
          values: (_, ticks, __, ___, step) => ticks.map((tick) => tickText(tick, step)),
        },
      ],
      series: parts.series,
      bands: parts.bands,
      hooks: {
        setCursor: [({ cursor }) => show(cursor.idx ?? null)],
        draw: [markStep],
        ready: [(plot) => plot.over.addEventListener("click", () => pickStep(steps[plot.cursor.idx ?? -1]))],
      },
    },
    parts.columns,
    chart.plot,
  );
  show(null);
}

function addLine({ split, key, band, color: name }: Line, { columns, series, bands }: Parts): void {
  const values = aligned(split, key);
  const stroke = color(name);
  if (band !== null) {
    const deviations = aligned(split, band);
    const edge = (sign: number) =>
      values.map((value, at) => {
        const deviation = deviations[at] ?? null;
        return value === null || deviation === null ? null : value + sign * deviation;
      });
    columns.push(edge(1), edge(-1));
    series.push({ width: 0, points: { show: false } }, { width: 0, points: { show: false } });
    bands.push({ series: [columns.length - 2, columns.length - 1], fill: color(`${name}-band`) });
  }
  // Evaluations are few: each is drawn unsmoothed, and a line connects them. A skipped training step leaves a gap.
  const isSparse = values.filter((value) => value !== null).length < 40;
  const isAlone = (at: number) => values[at] !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null;
  const points = isSparse
    ? { show: true, size: 5, fill: stroke }
    : { show: true, size: 3, fill: stroke, filter: () => values.flatMap((_, at) => (isAlone(at) ? [at] : [])) };
  const plain = { spanGaps: split === "eval", stroke, width: 1.75, points };
  if (smoothing === 0 || (isSparse && split === "eval")) {
    columns.push(values);
    series.push(plain);
    return;
  }
  columns.push(values, smoothed(values));
  series.push({ ...plain, stroke: color(`${name}-faint`), width: 1, points: { show: false } }, { ...plain, points: { show: false } });
}

/** Returns a metric with one value for each of {@link steps}; cached, because every move of the pointer needs it. */
function aligned(split: Split, key: string): Values {
  const name = `${split} ${key}`;
  const found = known.get(name);
  if (found !== undefined) return found;
  const { steps: own, columns } = data.metrics[split];
  const at = new Map(own.map((step, index) => [step, columns[key]?.[index] ?? null]));
  const values = steps.map((step) => at.get(step) ?? null);
  known.set(name, values);
  return values;
}

/** Returns the exponential mean with bias correction, so that the start is not pulled to zero. */
function smoothed(values: Values): Values {
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = smoothing * sum + (1 - smoothing) * value;
    total = smoothing * total + (1 - smoothing);
    return sum / total;
  });
}

function readoutOf(lines: readonly Line[], index: number | null): Child {
  return lines.map(({ split, key, color: name }) => {
    const values = aligned(split, key);
    // The last value up to the step: evaluations are not made at every step.
    const at = values.findLastIndex((value, each) => value !== null && (index === null || each <= index));
    const text = at < 0 ? "–" : number(values[at]);
    const where = at < 0 ? `before step ${steps[index ?? 0]}` : `step ${steps[at]}`;
    const mark = lines.length > 1 && h("i", { class: `swatch ${name}` });
    return h("span", {}, mark, lines.length > 1 && `${split} `, h("b", {}, text), h("small", {}, where));
  });
}

/** Describes a chart for screen readers. */
function describe(label: string, lines: readonly Line[]): string {
  const parts = lines.map(({ split, key }) => {
    const points = aligned(split, key).flatMap((value, index) => (value === null ? [] : [{ step: steps[index], value }]));
    const [first, last] = [points[0], points.at(-1)];
    if (first === undefined || last === undefined) return `${split}: no value`;
    const low = points.reduce((min, { value }) => Math.min(min, value), Infinity);
    const high = points.reduce((max, { value }) => Math.max(max, value), -Infinity);
    return `${split}: ${number(first.value)} at step ${first.step}, ${number(last.value)} at step ${last.step}, from ${number(low)} to ${number(high)}`;
  });
  return `${label}. ${parts.join("; ")}`;
}

/** Draws a hairline at the current step. */
function markStep(plot: uPlot): void {
  const step = currentStep();
  if (step === null) return;
  const x = Math.round(plot.valToPos(step.step, "x", true));
  const { left, top, width, height } = plot.bbox;
  if (x < left || x > left + width) return;
  plot.ctx.save();
  plot.ctx.fillStyle = color("mark");
  plot.ctx.fillRect(x, top, devicePixelRatio, height);
  plot.ctx.restore();
}

/** Shows the step nearest to a click on a curve, among the steps with trajectories in the page. */
function pickStep(step: number | undefined): void {
  if (step === undefined || data.steps.length === 0) return;
  const split = currentStep()?.split ?? "train";
  const near = data.steps.map((each, index) => ({ index, far: Math.abs(each.step - step) + (each.split === split ? 0 : 0.5) }));
  showStep(near.reduce((best, each) => (each.far < best.far ? each : best)).index);
}

function smoothControl(): HTMLElement {
  const text = () => (smoothing === 0 ? "off" : smoothing.toFixed(2));
  const value = h("output", { for: "smooth" }, text());
  const input = h("input", { id: "smooth", type: "range", min: 0, max: 0.95, step: 0.05, value: smoothing });
  input.addEventListener("input", () => {
    smoothing = Number(input.value);
    fill(value, text());
    redraw();
  });
  return h("label", { class: "control" }, h("span", {}, "Smooth"), input, value);
}

/** Creates the tables of all metrics; they are inserted on opening, because they can be long. */
function tableOfSteps(): HTMLElement {
  const body = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Metrics of every step" });
  const details = h("details", {}, h("summary", {}, "Every number of every step, as a table"), body);
  details.addEventListener("toggle", () => {
    if (details.open && body.childElementCount === 0) fill(body, SPLITS.map(table));
  });
  return details;
}

function table(split: Split): Child {
  const { steps: rows, columns } = data.metrics[split];
  if (rows.length === 0) return null;
  const head = ["step", ...Object.keys(columns)].map((name) => h("th", { scope: "col" }, name));
  const cells = (at: number) => Object.values(columns).map((values) => h("td", {}, number(values[at])));
  const body = rows.map((step, at) => h("tr", {}, h("th", { scope: "row" }, step), cells(at)));
  return h("table", { class: "grid" }, h("caption", {}, split), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
}
