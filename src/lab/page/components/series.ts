/** Curves of one or several runs: lines, smoothing, texts for the legend and for screen readers. */
import type { ColumnsData, Split } from "../../../run/data.ts";
import { number } from "./format.ts";
import type { Axis } from "./x-axis.ts";

/** Values of a metric, aligned with the positions of a chart: null for a gap, undefined where only other lines have a position. */
export type Values = readonly (number | null | undefined)[];

/** Metrics of a run. */
export interface NamedRunMetrics {
  /** Name in the legend. */
  readonly name: string;
  readonly metrics: Readonly<Record<Split, ColumnsData>>;
}

/** Line of a chart: a metric of one split of one run. */
export interface Line {
  /** Name in the legend: the split of a single run, or the run. */
  readonly name: string;
  readonly split: Split;
  readonly values: Values;
  /** Deviation, drawn as a band; null for none. */
  readonly band: Values | null;
  /** Color variable of the style sheet. */
  readonly color: string;
}

/** Metric of a chart. */
export interface MetricChoice {
  /** Name of the metric. */
  readonly key: string;
  /** Metric that has the deviation for the band; null for no band. */
  readonly band: string | null;
  readonly splits: readonly Split[];
}

/** Number of color variables for runs; further runs use the first ones again. */
const MAX_COLORS = 8;

/** Returns the color variable of the run at an index among several. */
export function runColor(index: number): string {
  return `run-${index % MAX_COLORS}`;
}

/**
 * Returns the lines of a metric, aligned with the axis. A single run has one color per split; several runs have one color each, and their
 * evaluations are dashed.
 */
export function linesOf(runs: readonly NamedRunMetrics[], axis: Axis, { key, band, splits }: MetricChoice): Line[] {
  const isSingle = runs.length === 1;
  return runs.flatMap(({ name, metrics }, index) =>
    splits.flatMap((split) => {
      const { columns } = metrics[split];
      if (columns[key] === undefined) return [];
      const runLabel = split === "eval" ? `${name} (eval)` : name;
      const splitColor = split === "train" ? "line-a" : "line-b";
      const hasBand = isSingle && band !== null && split === "train" && columns[band] !== undefined;
      return {
        name: isSingle ? split : runLabel,
        split,
        values: aligned(metrics, split, { key, axis }),
        band: hasBand ? aligned(metrics, split, { key: band, axis }) : null,
        color: isSingle ? splitColor : runColor(index),
      };
    }),
  );
}

/** Returns the values of a metric at the positions of the axis. */
function aligned(metrics: NamedRunMetrics["metrics"], split: Split, { key, axis }: { readonly key: string; readonly axis: Axis }): Values {
  const { steps, columns } = metrics[split];
  const values = new Map(steps.map((step, index) => [axis.positionOf(metrics, split, step), columns[key]?.[index] ?? null]));
  // A step without a row is a gap of the run; a sum of tokens or time without a row belongs to another line.
  const missing = axis.kind === "step" ? null : undefined;
  return axis.xs.map((x) => (values.has(x) ? values.get(x) : missing));
}

/**
 * Returns the exponential mean with bias correction, so that the start is not pulled to zero.
 *
 * @param weight - Weight of earlier values, in [0, 1).
 */
export function smoothed(values: Values, weight: number): Values {
  let weightedSum = 0;
  let totalWeight = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    weightedSum = weight * weightedSum + (1 - weight) * value;
    totalWeight = weight * totalWeight + (1 - weight);
    return weightedSum / totalWeight;
  });
}

/** Describes a chart for screen readers. */
export function describe(label: string, lines: readonly Line[], { xs, text }: Axis): string {
  const parts = lines.map(({ name, values }) => {
    const points = values.flatMap((value, index) => (typeof value === "number" ? [{ place: text(xs[index] as number), value }] : []));
    const [first, last] = [points[0], points.at(-1)];
    if (first === undefined || last === undefined) return `${name}: no value`;
    const low = points.reduce((min, { value }) => Math.min(min, value), Infinity);
    const high = points.reduce((max, { value }) => Math.max(max, value), -Infinity);
    return `${name}: ${number(first.value)} at ${first.place}, ${number(last.value)} at ${last.place}, from ${number(low)} to ${number(high)}`;
  });
  return `${label}. ${parts.join("; ")}`;
}
