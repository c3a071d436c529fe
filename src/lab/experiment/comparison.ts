/** Result of `compare` and of a sweep's comparison, as a table and as a chart. */
import { barChart } from "./bar-chart.ts";
import type { BootstrapEstimate } from "./bootstrap.ts";
import type { Chart } from "./chart.ts";
import { Displayable, type MediaBundle } from "./display.ts";
import { Table } from "./table.ts";

/** Mean of a run over the scenarios or steps, with an interval of its own. */
export interface ComparedRun extends BootstrapEstimate {
  /** Name of the run or of the selected evaluation; in a sweep, the settings of the cells. */
  readonly name: string;
  /** Number of units without a value: scenarios in which all rollouts failed, or seeds with a failed cell. */
  readonly missing: number;
}

/** Mean of the paired differences of a run to the baseline, with a paired interval. */
export interface Difference extends BootstrapEstimate {
  /** Name of the run; positive differences mean that its values are higher. */
  readonly name: string;
  /** Name of the baseline. */
  readonly baseline: string;
  /** Difference of each pair, in the order of the baseline. */
  readonly pairs: readonly {
    /** Id of the scenario, number of the step, or seed. */
    readonly unit: string;
    /** Value of the run minus value of the baseline. */
    readonly difference: number;
  }[];
}

/** Result of a comparison: a mean per run, and paired differences to the baseline. In a notebook, a comparison shows itself as a table. */
export class Comparison extends Displayable {
  /** Name of the compared metric or value. */
  readonly metric: string;
  /** Unit of the pairs. */
  readonly by: "scenario" | "step" | "seed";
  /** Name of the baseline. */
  readonly baseline: string;
  /** Runs in the given order. */
  readonly runs: readonly ComparedRun[];
  /** Differences of all other runs to the baseline, in the given order. */
  readonly differences: readonly Difference[];

  /** @internal */
  constructor({ metric, by, baseline, runs, differences }: Pick<Comparison, "metric" | "by" | "baseline" | "runs" | "differences">) {
    super();
    this.metric = metric;
    this.by = by;
    this.baseline = baseline;
    this.runs = runs;
    this.differences = differences;
  }

  /**
   * Returns one row per run: its mean with interval, and its difference to the baseline with interval.
   *
   * @returns Table with the columns `run`, `mean`, `low`, `high`, `difference`, `difference_low`, `difference_high` and `pairs`; the columns of
   *   the difference are null for the baseline.
   * @example
   * ```ts
   * import { compare, openRuns } from "whetstone/experiment";
   *
   * console.log((await compare(await openRuns("runs/*"))).table().toCSV());
   * ```
   */
  table(): Table {
    const rows = this.runs.map(({ name, mean, low, high }) => {
      const difference = this.differences.find((each) => each.name === name);
      return {
        run: name,
        mean: finite(mean),
        low: finite(low),
        high: finite(high),
        difference: finite(difference?.mean),
        difference_low: finite(difference?.low),
        difference_high: finite(difference?.high),
        pairs: difference?.count ?? null,
      };
    });
    return new Table(rows);
  }

  /**
   * Draws the mean differences to the baseline with their intervals.
   *
   * @returns Chart with a bar per run except the baseline.
   * @throws ArgumentError `E_ARGUMENT` if a run has no pair with the baseline.
   * @example
   * ```ts
   * import { compare, openRuns } from "whetstone/experiment";
   *
   * await (await compare(await openRuns("runs/*"))).chart().write("differences.svg");
   * ```
   */
  chart(): Chart {
    const bars = this.differences.map(({ name, mean, low, high }) => ({ name, value: mean, low, high }));
    return barChart({ title: `${this.metric}: difference to ${this.baseline}, paired by ${this.by}`, yLabel: "difference", bars });
  }

  /**
   * Returns the table of the comparison for notebooks.
   *
   * @returns Contents by media type.
   */
  override toMedia(): MediaBundle {
    return this.table().toMedia();
  }
}

/** Returns a finite number; null for any other value. */
function finite(value: number | undefined): number | null {
  return value !== undefined && Number.isFinite(value) ? value : null;
}
