import type { BootstrapEstimate } from "./bootstrap.ts";
import { Displayable, type MediaBundle } from "./display.ts";
import { Table } from "./table.ts";

/** Mean of a run over the scenarios or steps, with an interval of its own. */
export interface ComparedRun extends BootstrapEstimate {
  /** Name of the run or of the selected evaluation. */
  readonly name: string;
  /** Scenarios without a value, because all their rollouts failed. */
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
    /** Id of the scenario, or number of the step. */
    readonly unit: string;
    /** Value of the run minus value of the baseline. */
    readonly difference: number;
  }[];
}

/** Result of `compare`: a mean per run, and paired differences to the baseline. In a notebook, a comparison shows itself as a table. */
export class Comparison extends Displayable {
  /** Compared metric. */
  readonly metric: string;
  /** Unit of the pairs. */
  readonly by: "scenario" | "step";
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
      const found = this.differences.find((each) => each.name === name);
      return {
        run: name,
        mean: finite(mean),
        low: finite(low),
        high: finite(high),
        difference: finite(found?.mean),
        difference_low: finite(found?.low),
        difference_high: finite(found?.high),
        pairs: found?.count ?? null,
      };
    });
    return new Table(rows);
  }

  /** Returns the table of the comparison for notebooks. */
  override toMedia(): MediaBundle {
    return this.table().toMedia();
  }
}

function finite(value: number | undefined): number | null {
  return value !== undefined && Number.isFinite(value) ? value : null;
}
