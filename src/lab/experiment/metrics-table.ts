/** Tables of recorded metrics: a row per run and step. */
import { NotFoundError } from "../../base/errors.ts";
import type { Split } from "../../run/data.ts";
import type { Run } from "./run.ts";
import { Table, type Row } from "./table.ts";

/** Options of {@link metricsTable}. */
export interface MetricsTableOptions {
  /** Metrics in the order of the columns. @default all metrics of the runs, sorted */
  readonly metrics?: readonly string[] | undefined;
  /** Rows of training steps or of evaluations. @default "train" */
  readonly split?: Split | undefined;
  /** Rows: every step of each run, or only its last. @default "all" */
  readonly steps?: "all" | "last" | undefined;
}

/**
 * Creates a table of metrics with one row per run and step and the columns `run`, `step` and the metrics.
 *
 * @param runs - Runs in the order of the rows.
 * @param options - Metrics, split and steps.
 * @returns Table; null for a step without the metric.
 * @throws NotFoundError `E_NOT_FOUND` for a metric that no run has; the message lists the metrics.
 * @example
 * ```ts
 * import { openRuns } from "whetstone/experiment";
 *
 * const table = metricsTable(await openRuns("runs/*"), { metrics: ["reward/mean", "loss"], steps: "last" });
 * console.log(table.toMarkdown());
 * ```
 */
export function metricsTable(runs: readonly Run[], { metrics, split = "train", steps = "all" }: MetricsTableOptions = {}): Table {
  const known = [...new Set(runs.flatMap((run) => Object.keys(run.metrics(split).columns)))].sort();
  const unknown = metrics?.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new NotFoundError(`No run has the metric \`${unknown}\` in its ${split} rows; the runs have: ${known.join(", ") || "none"}`, {
      param: "metrics",
    });
  }
  const names = metrics ?? known;
  const rows = runs.flatMap((run) => {
    const { steps: stepNumbers, columns } = run.metrics(split);
    const runRows = stepNumbers.map((step, index): Row => ({
      run: run.name,
      step,
      ...Object.fromEntries(names.map((name) => [name, columns[name]?.[index] ?? null])),
    }));
    return steps === "all" ? runRows : runRows.slice(-1);
  });
  return new Table(rows, ["run", "step", ...names]);
}
