import { fill, h } from "./dom.js";
import { number } from "./format.js";
import { color, onTheme } from "./theme.js";
import { currentStep, data, onView, showStep } from "./state.js";

/* global uPlot */

const HEIGHT_PX = 172;
/** Every chart has the same steps, so that what is above one another happened at the same time. */
const steps = [...new Set([...data.metrics.train.steps, ...data.metrics.eval.steps])].sort((a, b) => a - b);
const drawn = [];
/** Long runs start smoothed: the single steps stay behind the line, faint. */
let smoothing = steps.length > 80 ? 0.6 : 0;
const known = new Map();

/** What to draw first, where a run has it; the names are those of the metrics reference. */
const USUAL = [
  { title: "Reward", note: "mean, one deviation either side", keys: ["reward/mean", "reward"], band: "reward/std", evaluation: true },
  { title: "Loss", keys: ["loss"] },
  { title: "Gradient norm", note: "before clipping", keys: ["grad_norm"] },
  { title: "Entropy", note: "nats", keys: ["entropy"] },
  { title: "KL", note: "nats", keys: ["kl", "kl/mean", "kl_divergence", "kl_policy_reference"] },
  { title: "Tokens per second", keys: ["time/tokens_per_second", "tokens_per_second"] },
  { title: "Sampler and trainer", note: "mean |Δ logprob|", keys: ["logprob_difference_mean"] },
  { title: "Seconds per step", keys: ["time/step_seconds"] },
];

/** Metrics of the rollouts themselves that get a curve without being asked for. */
const OWN = /^metric\//;
const MOST_OWN = 4;

/** The section of curves. */
export function curvesSection() {
  const { train, eval: evaluations } = data.metrics;
  if (train.steps.length + evaluations.steps.length === 0) {
    return h("section", { id: "curves" }, h("h2", {}, "Curves"), h("p", { class: "empty" }, "No step has been written yet."));
  }
  const cards = USUAL.flatMap((usual) => {
    const key = usual.keys.find((each) => train.columns[each] ?? (usual.evaluation && evaluations.columns[each]));
    return key === undefined ? [] : [usualCard(usual, key)];
  });
  const own = [...new Set([...Object.keys(train.columns), ...Object.keys(evaluations.columns)])].filter((key) => OWN.test(key));
  cards.splice(
    2,
    0,
    ...own.slice(0, MOST_OWN).map((key) => usualCard({ title: key.replace(OWN, ""), note: "of rollouts", evaluation: true }, key)),
  );
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
      else chart.draw();
    }
  });
  return section;
}

function usualCard({ title, note, band, evaluation }, key) {
  const lines = [];
  const { train, eval: evaluations } = data.metrics;
  if (train.columns[key]) lines.push({ split: "train", key, band: train.columns[band] ? band : null, color: "line-a" });
  if (evaluation && evaluations.columns[key]) lines.push({ split: "eval", key, band: null, color: "line-b" });
  return card({ title, note: lines[0].band || !note?.includes("deviation") ? note : "mean", lines, wide: Boolean(band) });
}

/** A card whose metric can be chosen: every number a run wrote is in it. */
function explorerCard() {
  const options = ["train", "eval"].flatMap((split) => Object.keys(data.metrics[split].columns).map((key) => ({ split, key })));
  const select = h(
    "select",
    { id: "metric", "aria-label": "Metric to draw" },
    ["train", "eval"].map((split) => {
      const own = options.filter((each) => each.split === split);
      return (
        own.length > 0 &&
        h(
          "optgroup",
          { label: split },
          own.map(({ key }) => h("option", { value: `${split} ${key}` }, key)),
        )
      );
    }),
  );
  const holder = h("div", { class: "explorer" });
  let shown = null;
  const choose = () => {
    const at = select.value.indexOf(" ");
    const line = { split: select.value.slice(0, at), key: select.value.slice(at + 1), band: null, color: "line-a" };
    if (shown) drawn.splice(drawn.indexOf(shown), 1);
    const figure = card({ title: select, note: line.split, lines: [line], label: line.key });
    shown = drawn.at(-1);
    fill(holder, figure);
    if (document.body.contains(holder)) shown.draw();
    select.focus({ preventScroll: true });
  };
  const wanted = options.find(({ key }) => key === "data/trainable_trajectories") ?? options[0];
  select.value = `${wanted.split} ${wanted.key}`;
  select.addEventListener("change", choose);
  choose();
  return holder;
}

function card({ title, note, lines, wide = false, label = title }) {
  const plot = h("div", { class: "plot", role: "img", "aria-label": describe(label, lines) });
  const readout = h("p", { class: "readout" });
  const figure = h(
    "figure",
    { class: wide ? "card wide" : "card", "data-metric": lines[0].key },
    h("figcaption", {}, h("span", { class: "title" }, title), note && h("span", { class: "note" }, note)),
    readout,
    plot,
  );
  const chart = { plot, draw: () => draw(chart, lines, readout), uplot: null };
  drawn.push(chart);
  return figure;
}

/** Draws every chart anew: colours, widths and smoothing are fixed when one is made. */
export function redraw() {
  for (const chart of drawn) chart.draw();
}

function draw(chart, lines, readout) {
  chart.uplot?.destroy();
  const columns = [steps];
  const series = [{}];
  const bands = [];
  for (const line of lines) addLine(line, { columns, series, bands });
  const show = (index) => fill(readout, readoutOf(lines, index));
  const axis = { stroke: color("muted"), font: "11px system-ui, sans-serif", ticks: { show: false } };
  chart.uplot = new uPlot(
    {
      width: Math.max(160, chart.plot.clientWidth),
      height: HEIGHT_PX,
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { y: false, sync: { key: "steps" }, drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false } },
      axes: [
        { ...axis, grid: { show: false }, size: 26, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick : "")) },
        { ...axis, grid: { stroke: color("grid"), width: 1 }, size: 46, values: (_, ticks) => ticks.map(tickText) },
      ],
      series,
      bands,
      hooks: {
        setCursor: [({ cursor }) => show(cursor.idx ?? null)],
        draw: [(plot) => markStep(plot)],
        ready: [(plot) => plot.over.addEventListener("click", () => pickStep(steps[plot.cursor.idx ?? -1]))],
      },
    },
    columns,
    chart.plot,
  );
  show(null);
}

function addLine({ split, key, band, color: name }, { columns, series, bands }) {
  const values = aligned(split, key);
  const stroke = color(name);
  if (band) {
    const deviations = aligned(split, band);
    const edge = (sign) => values.map((value, at) => (value === null || deviations[at] === null ? null : value + sign * deviations[at]));
    columns.push(edge(1), edge(-1));
    series.push({ width: 0, points: { show: false } }, { width: 0, points: { show: false } });
    bands.push({ series: [columns.length - 2, columns.length - 1], fill: color(`${name}-band`) });
  }
  // Evaluations are few: each is shown as it is.
  const isSparse = values.filter((value) => value !== null).length < 40;
  const plain = { spanGaps: true, stroke, width: 1.75, points: { show: isSparse, size: 5, fill: stroke } };
  if (smoothing === 0 || (isSparse && split === "eval")) {
    columns.push(values);
    series.push(plain);
    return;
  }
  columns.push(values, smoothed(values));
  series.push({ ...plain, stroke: color(`${name}-faint`), width: 1, points: { show: false } }, { ...plain, points: { show: false } });
}

/** A column with one value for each of `steps`; kept, because every move of the pointer asks for it. */
function aligned(split, key) {
  const name = `${split} ${key}`;
  if (known.has(name)) return known.get(name);
  const { steps: own, columns } = data.metrics[split];
  const at = new Map(own.map((step, index) => [step, columns[key]?.[index] ?? null]));
  const values = steps.map((step) => at.get(step) ?? null);
  known.set(name, values);
  return values;
}

/** Exponential mean without the pull to zero at the start. */
export function smoothed(values, weight = smoothing) {
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

function readoutOf(lines, index) {
  return lines.map(({ split, key, color: name }) => {
    const values = aligned(split, key);
    // Where a step has no such number, the one before it that has: evaluations are not made at every step.
    const at = values.findLastIndex((value, each) => value !== null && (index === null || each <= index));
    const text = at < 0 ? "–" : number(values[at]);
    const where = at < 0 ? `before step ${steps[index ?? 0]}` : `step ${steps[at]}`;
    const mark = lines.length > 1 && h("i", { class: `swatch ${name}` });
    return h("span", {}, mark, lines.length > 1 && `${split} `, h("b", {}, text), h("small", {}, where));
  });
}

/** What a chart shows, for those who do not see it. */
function describe(label, lines) {
  const parts = lines.map(({ split, key }) => {
    const points = aligned(split, key)
      .map((value, index) => [steps[index], value])
      .filter(([, value]) => value !== null);
    if (points.length === 0) return `${split}: no value`;
    const values = points.map(([, value]) => value);
    const low = values.reduce((a, b) => Math.min(a, b));
    const high = values.reduce((a, b) => Math.max(a, b));
    return `${split}: ${number(values[0])} at step ${points[0][0]}, ${number(values.at(-1))} at step ${points.at(-1)[0]}, from ${number(low)} to ${number(high)}`;
  });
  return `${label}. ${parts.join("; ")}`;
}

function tickText(value) {
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) return value.toExponential(0);
  if (Math.abs(value) >= 1e4) return `${value / 1e3}k`;
  return String(Number(value.toPrecision(4)));
}

/** A hair line at the step whose groups are shown below. */
function markStep(plot) {
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

/** A click on a curve: the nearest step whose trajectories are in the page. */
function pickStep(step) {
  if (step === undefined || data.steps.length === 0) return;
  const split = currentStep()?.split ?? "train";
  const near = data.steps.map((each, index) => ({ index, far: Math.abs(each.step - step) + (each.split === split ? 0 : 0.5) }));
  showStep(near.reduce((best, each) => (each.far < best.far ? each : best)).index);
}

function smoothControl() {
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

/** The same numbers as text; made when it is opened, since it can be long. */
function tableOfSteps() {
  const body = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Metrics of every step" });
  const table = (split) => {
    const { steps, columns } = data.metrics[split];
    const names = Object.keys(columns);
    return (
      steps.length > 0 &&
      h(
        "table",
        { class: "grid" },
        h("caption", {}, split),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["step", ...names].map((name) => h("th", { scope: "col" }, name)),
          ),
        ),
        h(
          "tbody",
          {},
          steps.map((step, at) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, step),
              names.map((name) => h("td", {}, number(columns[name][at]))),
            ),
          ),
        ),
      )
    );
  };
  const details = h("details", {}, h("summary", {}, "Every number of every step, as a table"), body);
  details.addEventListener("toggle", () => {
    if (details.open && body.childElementCount === 0) fill(body, table("train"), table("eval"));
  });
  return details;
}
