/** Charts of a recorded metric over the steps of several runs. */
import { ArgumentError } from "../../base/errors.ts";
import { first, getOrInsert, getOrThrow } from "../../base/util/values.ts";
import { consecutive } from "../report/axis.ts";
import type { Split } from "../../run/data.ts";
import { bootstrapMean, type BootstrapOptions } from "./bootstrap.ts";
import type { Chart } from "./chart.ts";
import { lineChart, type Series } from "./line-chart.ts";
import type { Run } from "./run.ts";

/** Options of {@link metricChart}. */
export interface MetricChartOptions extends BootstrapOptions {
  /** Name of the metric in `metrics.jsonl`. @default "reward/mean" */
  readonly metric?: string | undefined;
  /** Rows of training steps or of evaluations. @default "train" */
  readonly split?: Split | undefined;
  /**
   * Returns the name of a run's curve. Runs with the same name become one curve: the mean at each step that all of them have, with a band
   * of percentile bootstrap intervals over the runs.
   *
   * @default the name of the run, a curve per run
   */
  readonly groupBy?: ((run: Run) => string) | undefined;
  /** Title above the chart. @default the metric */
  readonly title?: string | undefined;
}

/**
 * Draws a metric of several runs over each other. A step without the metric is a gap in the curve of a single run.
 *
 * @param runs - At least one.
 * @param options - Metric, split and grouping.
 * @returns Chart with a curve per run or group.
 * @throws NotFoundError `E_NOT_FOUND` if a run has no such metric; the message lists its metrics.
 * @throws ArgumentError `E_ARGUMENT` without runs, or if no step has the metric.
 * @example
 * ```ts
 * import { openRuns } from "whetstone/experiment";
 *
 * const runs = await openRuns("runs/sweep/*");
 * await metricChart(runs, { groupBy: ({ name }) => name.replace(/_seed-\d+$/, "") }).write("reward.svg");
 * ```
 */
export function metricChart(runs: readonly Run[], options: MetricChartOptions = {}): Chart {
  const { metric = "reward/mean", split = "train", groupBy = ({ name }) => name, title = metric, ...bootstrap } = options;
  if (runs.length === 0) throw new ArgumentError("Expected at least one run, got none", { param: "runs" });
  const groups = new Map<string, (readonly [number, number])[][]>();
  for (const run of runs) getOrInsert(groups, groupBy(run), () => []).push(run.series(metric, split));
  const series = [...groups].map(([name, curves]): Series => {
    if (curves.length > 1) return { name, ...meanOf(curves, bootstrap) };
    const [points = []] = curves;
    return { name, points: split === "train" ? withGaps(points) : points };
  });
  return lineChart({ title, xLabel: split === "train" ? "step" : "completed steps", series });
}

/** Inserts a null at each missing step, so that the curve has a gap there. */
function withGaps(points: readonly (readonly [number, number])[]): (readonly [number, number | null])[] {
  const values = new Map(points);
  return consecutive([...values.keys()]).map((step) => [step, values.get(step) ?? null]);
}

/** Averages curves at the steps that all of them have. */
function meanOf(curves: readonly (readonly (readonly [number, number])[])[], bootstrap: BootstrapOptions): Omit<Series, "name"> {
  const valuesByStep = curves.map((points) => new Map(points));
  const steps = [...first(valuesByStep).keys()].filter((step) => valuesByStep.every((values) => values.has(step)));
  const estimates = steps.map((step) => {
    const values = valuesByStep.map((curve) => getOrThrow(curve, step));
    return { step, ...bootstrapMean(values, bootstrap) };
  });
  return {
    points: estimates.map(({ step, mean }) => [step, mean]),
    band: estimates.map(({ step, low, high }) => [step, low, high]),
  };
}
