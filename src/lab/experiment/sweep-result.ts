/** Result of a sweep: its cells as a table, as runs, and compared by their settings. */
import { ArgumentError, NotFoundError } from "../../base/errors.ts";
import { getOrInsert } from "../../base/util/values.ts";
import { property } from "../report/facts.ts";
import type { BootstrapOptions } from "./bootstrap.ts";
import type { Comparison } from "./comparison.ts";
import { compareUnits } from "./pairs.ts";
import { openRun } from "./open-runs.ts";
import type { ReadRunOptions, Run } from "./run.ts";
import type { SweepCell } from "./sweep-cell.ts";
import { Table, type Cell, type Row } from "./table.ts";

/** State and result of a cell. */
export interface CellResult<S, V> extends SweepCell<S> {
  /** `running` only in `onCell`, when the cell starts. */
  readonly state: "running" | "completed" | "failed";
  /** Number of starts, over all calls. */
  readonly attempts: number;
  /** Duration of the last attempt in seconds; null while it runs. */
  readonly seconds: number | null;
  /** Value that `run` returned, as JSON; null unless the cell is completed. */
  readonly value: V | null;
  /** Error that `run` threw; null unless the cell failed. */
  readonly error: {
    /** Name of the error's class. */
    readonly type: string;
    /** Code of an error of this package; null for another error. */
    readonly code: string | null;
    /** Message of the error. */
    readonly message: string;
  } | null;
}

/** Options of {@link SweepResult.compare}. */
export interface SweepCompareOptions<S, V> extends BootstrapOptions {
  /** Number to compare: a name in the object that `run` returned, or a function of the cell. @default the returned value itself, a number */
  readonly value?: string | ((cell: CellResult<S, V>) => number) | undefined;
  /** Index of the combination that the others are compared with, in the order of the cells. @default 0 */
  readonly baseline?: number | undefined;
}

/** Cells of a sweep with their results. */
export class SweepResult<S, V> {
  /** Cells in the order of the grid: all combinations for the first seed, then for the next. */
  readonly cells: readonly CellResult<S, V>[];

  /** @internal */
  constructor(cells: readonly CellResult<S, V>[]) {
    this.cells = cells;
  }

  /** Cells in which `run` threw an error. */
  get failed(): readonly CellResult<S, V>[] {
    return this.cells.filter(({ state }) => state === "failed");
  }

  /**
   * Opens the run directories of the completed cells.
   *
   * @param options - Signal.
   * @returns Runs with the names of their cells, for `compare`, `metricsTable` and charts.
   * @throws NotFoundError `E_NOT_FOUND` for a cell that wrote no run to its directory.
   * @throws DataError `E_DATA` with file and line for a file that does not match its schema.
   */
  runs(options: ReadRunOptions = {}): Promise<Run[]> {
    return Promise.all(this.cells.filter(({ state }) => state === "completed").map(({ dir }) => openRun(dir, options)));
  }

  /**
   * Returns one row per cell: settings, `seed`, `state`, `seconds`, and the returned number or the numbers and texts in the returned object.
   *
   * @returns Table; a setting that is a list or an object is shown as JSON.
   * @example
   * ```ts
   * import { sweep } from "whetstone/experiment";
   *
   * const result = await sweep({ dir: "runs/squares", grid: { base: [2, 3] }, run: ({ settings }) => settings.base ** 2 });
   * console.log(result.table().toMarkdown()); // columns base, seed, state, seconds, value
   * ```
   */
  table(): Table {
    return new Table(
      this.cells.map(({ settings, seed, state, seconds, value, error }): Row => ({
        ...scalars(settings),
        seed,
        state,
        seconds,
        ...(typeof value === "object" && value !== null ? scalars(value) : { value: scalar(value) }),
        ...(error === null ? {} : { error: error.message }),
      })),
    );
  }

  /**
   * Compares the combinations of settings by a number per cell. Differences to the baseline are paired by seed, and the bootstrap draws seeds:
   * the intervals cover the randomness of training, while `compare` covers the choice of scenarios. With few seeds a bootstrap
   * interval is too narrow; use five or more. Seeds with a failed cell have no pair and are counted in `missing`.
   *
   * @param options - Number of a cell, baseline and bootstrap.
   * @returns Mean per combination over its seeds, and paired differences.
   * @throws NotFoundError `E_NOT_FOUND` if a completed cell has no such number.
   * @throws ArgumentError `E_ARGUMENT` for fewer than two combinations, or an option outside its bounds.
   * @example
   * ```ts
   * import { sweep } from "whetstone/experiment";
   *
   * const result = await sweep({ dir: "runs/powers", grid: { base: [2, 3] }, seeds: [1, 2, 3], run: ({ settings, seed }) => settings.base ** seed });
   * console.log(result.compare().table().toMarkdown());
   * ```
   */
  compare({ value, baseline = 0, ...bootstrap }: SweepCompareOptions<S, V> = {}): Comparison {
    const combinations = new Map<string, CellResult<S, V>[]>();
    for (const cell of this.cells) {
      const settings = Object.entries(cell.settings as object);
      const name = settings.map(([key, setting]) => `${key}=${String(scalar(setting))}`).join(" ");
      getOrInsert(combinations, name, () => []).push(cell);
    }
    if (combinations.size < 2)
      throw new ArgumentError(`Expected a grid with at least two combinations to compare, got ${combinations.size}`, { param: "grid" });
    const units = [...combinations].map(([name, cells]) => {
      const completed = cells.filter(({ state }) => state === "completed");
      const values = completed.map((cell) => [String(cell.seed), numberOf(cell, value)] as const);
      return {
        name,
        all: new Set(cells.map(({ seed }) => String(seed))),
        values: new Map(values),
        missing: cells.length - values.length,
      };
    });
    const metric = typeof value === "string" ? value : "value";
    return compareUnits(units, { metric, by: "seed", baseline, bootstrap });
  }
}

/** Returns the number of a completed cell to compare. */
function numberOf<S, V>(cell: CellResult<S, V>, value: SweepCompareOptions<S, V>["value"]): number {
  let selected: unknown = cell.value;
  if (typeof value === "function") selected = value(cell);
  else if (value !== undefined) selected = property(cell.value, value);
  if (typeof selected === "number" && Number.isFinite(selected)) return selected;
  const expected = typeof value === "string" ? `a number \`${value}\`` : "a finite number";
  throw new NotFoundError(`Expected cell \`${cell.name}\` to have ${expected}, its value is ${JSON.stringify(cell.value)}`, {
    param: "value",
  });
}

/** Returns the members of an object as cells of a table. */
function scalars(values: unknown): Row {
  return Object.fromEntries(Object.entries(values as object).map(([name, value]) => [name, scalar(value)]));
}

/** Returns a value as the cell of a table; a list or an object as JSON. */
function scalar(value: unknown): Cell {
  return typeof value === "object" && value !== null ? JSON.stringify(value) : ((value ?? null) as Cell);
}
