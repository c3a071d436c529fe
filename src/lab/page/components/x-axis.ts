/** Horizontal axis of the charts: steps, trained tokens, or time in steps. */
import type { ColumnsData, Split } from "../../../run/data.ts";
import { consecutive, tickText } from "../../report/axis.ts";
import { number } from "./format.ts";

/** Quantity of the horizontal axis. Tokens and time are sums over the steps so far, without interruptions of the run. */
export type AxisKind = "step" | "tokens" | "time";

/** Metrics of both splits of a run. */
type Metrics = Readonly<Record<Split, ColumnsData>>;

/** Horizontal axis that all charts of a page share, so that simultaneous values are aligned vertically. */
export interface Axis {
  readonly kind: AxisKind;
  /** Positions, ascending. Steps are without gaps. */
  readonly xs: readonly number[];
  /** Step at each position. */
  readonly steps: readonly number[];
  /** Returns the position of a step of a run; undefined for none. */
  readonly positionOf: (metrics: Metrics, split: Split, step: number) => number | undefined;
  /** Formats a position for a tick; `distance` is the distance between two ticks. */
  readonly tick: (x: number, distance: number) => string;
  /** Formats a position for the readout. */
  readonly text: (x: number) => string;
}

/** Metrics that the axis sums up. */
const SUMMED_METRICS = { tokens: "tokens/trained", time: "time/step_seconds" } as const;
/** Format of token counts. */
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
/** Units of the time axis; the first one with `max` of at least the longest time in seconds is used. */
const TIME_UNITS = [
  { name: "s", seconds: 1, max: 120 },
  { name: "min", seconds: 60, max: 7200 },
  { name: "h", seconds: 3600, max: Infinity },
] as const;

/** Returns whether every run has the metric of an axis. */
export function hasAxis(runs: readonly { readonly metrics: Metrics }[], kind: AxisKind): boolean {
  return kind === "step" || runs.every(({ metrics }) => metrics.train.columns[SUMMED_METRICS[kind]] !== undefined);
}

/** Creates the axis of some runs. */
export function axisOf(runs: readonly { readonly metrics: Metrics }[], kind: AxisKind): Axis {
  return kind === "step" ? stepAxis(runs) : sumAxis(runs, kind);
}

/** Creates the axis of steps. */
function stepAxis(runs: readonly { readonly metrics: Metrics }[]): Axis {
  const steps = consecutive(runs.flatMap(({ metrics }) => [...metrics.train.steps, ...metrics.eval.steps]));
  const tick = (x: number, distance: number) => (Number.isInteger(x) ? tickText(x, distance) : "");
  return { kind: "step", xs: steps, steps, positionOf: (_, __, step) => step, tick, text: (x) => `step ${x}` };
}

/** Creates the axis of tokens or time: sums of a metric up to each step. */
function sumAxis(runs: readonly { readonly metrics: Metrics }[], kind: "tokens" | "time"): Axis {
  const sums = new Map(runs.map(({ metrics }) => [metrics, sumsOf(metrics, SUMMED_METRICS[kind])]));
  const total = [...sums.values()].reduce((max, { train }) => Math.max(max, ...train.values()), 0);
  const unit = kind === "time" ? TIME_UNITS.find(({ max }) => total <= max) : undefined;
  const scale = unit?.seconds ?? 1;
  const positionOf: Axis["positionOf"] = (metrics, split, step) => {
    const sum = sums.get(metrics)?.[split].get(step);
    return sum === undefined ? undefined : sum / scale;
  };
  /** Step by position. Where a position belongs to several steps, a training step counts. */
  const points = new Map<number, number>();
  for (const { metrics } of runs) {
    for (const split of ["eval", "train"] as const) {
      for (const step of metrics[split].steps) points.set(positionOf(metrics, split, step) as number, step);
    }
  }
  const sorted = [...points].toSorted(([a], [b]) => a - b);
  const [xs, steps] = [sorted.map(([x]) => x), sorted.map(([, step]) => step)];
  if (unit === undefined)
    return { kind, xs, steps, positionOf, tick: (x) => COMPACT.format(x), text: (x) => `${COMPACT.format(x)} tokens` };
  return {
    kind,
    xs,
    steps,
    positionOf,
    tick: (x, distance) => `${tickText(x, distance)} ${unit.name}`,
    text: (x) => `${number(x)} ${unit.name}`,
  };
}

/** Returns the sum of a column up to each training step, and up to each evaluation, whose number counts the completed steps. */
function sumsOf({ train, eval: evaluations }: Metrics, column: string): Readonly<Record<Split, ReadonlyMap<number, number>>> {
  const values = train.columns[column] ?? [];
  let sum = 0;
  const sumsAfter = train.steps.map((step, index) => {
    sum += values[index] ?? 0;
    return [step, sum] as const;
  });
  const sumBefore = (step: number) => sumsAfter.findLast(([trainStep]) => trainStep < step)?.[1] ?? 0;
  return { train: new Map(sumsAfter), eval: new Map(evaluations.steps.map((step) => [step, sumBefore(step)])) };
}
