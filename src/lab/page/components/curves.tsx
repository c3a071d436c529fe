/** Section of charts: standard curves, metrics of rollouts, any chosen metric, and all numbers as tables. */
import { useMemo, useState } from "preact/hooks";
import type { Split } from "../../../run/data.ts";
import { MetricChart, type ChartProps, type Zoom } from "./chart.tsx";
import { number } from "./format.ts";
import { linesOf, type MetricChoice, type NamedRunMetrics } from "./series.ts";
import { Select, Scroll } from "./controls.tsx";
import { DataTable } from "./table.tsx";
import { type AxisKind, axisOf, hasAxis } from "./x-axis.ts";

/** Kinds of rows of metrics, in the order of the section. */
const SPLITS = ["train", "eval"] as const;
/** Choices of the horizontal axis. */
const AXES: readonly { readonly value: AxisKind; readonly label: string }[] = [
  { value: "step", label: "Steps" },
  { value: "tokens", label: "Trained tokens" },
  { value: "time", label: "Time in steps" },
];
/** Number of axis positions per run above which curves are smoothed by default, with the original values drawn faintly. */
const LONG_RUN = 80;
/** Default weight of the exponential mean for long runs. */
const DEFAULT_SMOOTHING = 0.6;

/** Title and optional lines of a metric's chart. */
interface Curve {
  readonly title: string;
  readonly note?: string;
  /** Metric that has the deviation for the band. */
  readonly band?: string;
  /** Whether the metric of evaluations is drawn too. */
  readonly evaluation?: boolean;
}

/**
 * Charts in order. Each draws the first of `keys` that a run has, and is left out if no run has one. `docs/reference/metrics.md` describes
 * the metrics.
 */
const STANDARD: readonly (Curve & { readonly keys: readonly string[] })[] = [
  { title: "Reward", note: "mean, one deviation either side", keys: ["reward/mean", "reward"], band: "reward/std", evaluation: true },
  { title: "Loss", keys: ["loss"] },
  { title: "Gradient norm", note: "before clipping", keys: ["grad_norm"] },
  { title: "Entropy", note: "nats", keys: ["entropy"] },
  { title: "KL", note: "nats", keys: ["kl", "kl/mean", "kl_divergence", "kl_policy_reference"] },
  { title: "Tokens per second", keys: ["time/tokens_per_second", "tokens_per_second"] },
  { title: "Sampler and trainer", note: "mean |Δ logprob|", keys: ["logprob_difference_mean"] },
  { title: "Seconds per step", keys: ["time/step_seconds"] },
];

/** Prefix of the names of metrics that rollouts report. */
const ROLLOUT_METRIC = /^metric\//;
/** Max metrics of rollouts that have a chart by default. */
const MAX_ROLLOUT_CHARTS = 4;

/** Chart of a metric. */
interface Card extends MetricChoice {
  readonly title: string;
  readonly note: string | undefined;
  readonly isWide: boolean;
}

/** Properties of {@link Curves}. */
export interface CurvesProps {
  readonly runs: readonly NamedRunMetrics[];
  /** Step with a hairline; null for none. */
  readonly mark: number | null;
  readonly onPick?: ((step: number) => void) | undefined;
}

/** Section with the standard curves of the runs, a chart of any metric, and all numbers as tables. */
export function Curves({ runs, mark, onPick }: CurvesProps) {
  const [chosenAxis, setChosenAxis] = useState<AxisKind>("step");
  // A run without the metric of the chosen axis is drawn over steps.
  const kind = hasAxis(runs, chosenAxis) ? chosenAxis : "step";
  const axis = useMemo(() => axisOf(runs, kind), [runs, kind]);
  const [zoom, setZoom] = useState<Zoom | null>(null);
  const [isLog, setLog] = useState(false);
  /** Weight that the user has chosen; null for the default. */
  const [chosenSmoothing, setChosenSmoothing] = useState<number | null>(null);
  const isLong = axis.xs.length > LONG_RUN * runs.length;
  const smoothing = chosenSmoothing ?? (isLong ? DEFAULT_SMOOTHING : 0);
  const cards = useMemo(() => cardsOf(runs).map((card) => ({ ...card, lines: linesOf(runs, axis, card) })), [runs, axis]);
  if (axis.xs.length === 0) {
    return (
      <section id="curves">
        <h2>Curves</h2>
        <p class="empty">No step has been written yet.</p>
      </section>
    );
  }
  const shared = { axis, smoothing, isLog, zoom, onZoom: setZoom, mark, onPick };
  const axes = AXES.map((each) => ({ ...each, disabled: !hasAxis(runs, each.value) }));
  const chooseAxis = (value: string) => {
    setChosenAxis(AXES.find((each) => each.value === value)?.value ?? "step");
    setZoom(null);
  };
  return (
    <section id="curves" aria-labelledby="curves-title">
      <div class="bar">
        <h2 id="curves-title">Curves</h2>
        <div class="controls">
          {zoom !== null && (
            <button type="button" class="reset" onClick={() => setZoom(null)}>
              Reset zoom
            </button>
          )}
          <label class="control">
            <span>x</span>
            <Select label="Horizontal axis" options={axes} value={kind} onChange={chooseAxis} />
          </label>
          <label class="control">
            <input type="checkbox" checked={isLog} onChange={({ currentTarget }) => setLog(currentTarget.checked)} />
            <span>Logarithmic</span>
          </label>
          <label class="control">
            <span>Smooth</span>
            <input
              id="smooth"
              type="range"
              min={0}
              max={0.95}
              step={0.05}
              value={smoothing}
              onInput={({ currentTarget }) => setChosenSmoothing(Number(currentTarget.value))}
            />
            <output for="smooth">{smoothing === 0 ? "off" : smoothing.toFixed(2)}</output>
          </label>
        </div>
      </div>
      <div class="curves">
        {cards.map(({ key, title, note, isWide, lines }) => (
          <MetricChart key={key} metric={key} title={title} label={title} note={note} isWide={isWide} lines={lines} {...shared} />
        ))}
        <Explorer runs={runs} {...shared} />
      </div>
      <StepTables runs={runs} />
    </section>
  );
}

/** Returns the charts of the runs: the standard ones, and some metrics of their rollouts. */
function cardsOf(runs: readonly NamedRunMetrics[]): Card[] {
  const has = (split: Split, key: string) => runs.some(({ metrics }) => metrics[split].columns[key] !== undefined);
  const card = (key: string, { title, note, band, evaluation = false }: Curve): Card => {
    const hasBand = runs.length === 1 && band !== undefined && has("train", key) && has("train", band);
    // Without a band, the note about the deviation would be wrong.
    const shownNote = hasBand || note?.includes("deviation") !== true ? note : "mean";
    const splits: readonly Split[] = evaluation ? SPLITS : ["train"];
    return { key, title, note: shownNote, band: hasBand ? band : null, splits, isWide: band !== undefined };
  };
  const cards = STANDARD.flatMap((standard) => {
    const key = standard.keys.find((each) => has("train", each) || (standard.evaluation === true && has("eval", each)));
    return key === undefined ? [] : [card(key, standard)];
  });
  const keys = metricNames(runs).map(({ key }) => key);
  const rolloutKeys = [...new Set(keys)].filter((key) => ROLLOUT_METRIC.test(key)).slice(0, MAX_ROLLOUT_CHARTS);
  const rolloutCards = rolloutKeys.map((key) =>
    card(key, { title: key.replace(ROLLOUT_METRIC, ""), note: "of rollouts", evaluation: true }),
  );
  // After reward and loss.
  return [...cards.slice(0, 2), ...rolloutCards, ...cards.slice(2)];
}

/** Returns the metrics of all runs, training metrics first. */
function metricNames(runs: readonly NamedRunMetrics[]): { readonly split: Split; readonly key: string }[] {
  return SPLITS.flatMap((split) => {
    const keys = new Set(runs.flatMap(({ metrics }) => Object.keys(metrics[split].columns)));
    return [...keys].map((key) => ({ split, key }));
  });
}

/** Chart with a choice of any metric of the runs. */
function Explorer({
  runs,
  ...shared
}: { readonly runs: readonly NamedRunMetrics[] } & Omit<ChartProps, "metric" | "title" | "label" | "note" | "isWide" | "lines">) {
  const options = metricNames(runs);
  const [chosen, setChosen] = useState("train data/trainable_trajectories");
  const shown = options.find(({ split, key }) => `${split} ${key}` === chosen) ?? options[0];
  const lines = useMemo(
    () => (shown === undefined ? [] : linesOf(runs, shared.axis, { key: shown.key, band: null, splits: [shown.split] })),
    [runs, shared.axis, shown?.split, shown?.key],
  );
  if (shown === undefined) return null;
  const select = (
    <select
      id="metric"
      aria-label="Metric to draw"
      value={`${shown.split} ${shown.key}`}
      onChange={({ currentTarget }) => setChosen(currentTarget.value)}
    >
      {SPLITS.map((split) => {
        const splitOptions = options.filter((option) => option.split === split);
        if (splitOptions.length === 0) return null;
        return (
          <optgroup key={split} label={split}>
            {splitOptions.map(({ key }) => (
              <option key={key} value={`${split} ${key}`}>
                {key}
              </option>
            ))}
          </optgroup>
        );
      })}
    </select>
  );
  return (
    <div class="explorer">
      <MetricChart metric={shown.key} title={select} label={shown.key} note={shown.split} lines={lines} {...shared} />
    </div>
  );
}

/** Tables of all metrics; rendered on opening, because they can be long. */
function StepTables({ runs }: { readonly runs: readonly NamedRunMetrics[] }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>Every number of every step, as a table</summary>
      {isOpen && (
        <Scroll label="Metrics of every step">
          {runs.flatMap((run) =>
            SPLITS.map((split) => <StepTable key={`${run.name} ${split}`} run={run} split={split} isSingle={runs.length === 1} />),
          )}
        </Scroll>
      )}
    </details>
  );
}

/** Table of all metrics of one split of a run. */
function StepTable({ run, split, isSingle }: { readonly run: NamedRunMetrics; readonly split: Split; readonly isSingle: boolean }) {
  const { steps, columns } = run.metrics[split];
  if (steps.length === 0) return null;
  const shown = [
    { label: "step", isHead: true, cell: (at: number) => steps[at] },
    ...Object.entries(columns).map(([label, values]) => ({ label, cell: (at: number) => number(values[at]) })),
  ];
  return (
    <DataTable class="grid" caption={isSingle ? split : `${run.name}, ${split}`} columns={shown} rows={[...steps.keys()]} keyOf={String} />
  );
}
