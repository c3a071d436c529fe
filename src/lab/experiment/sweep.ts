/** Runs of a function over a grid of settings and seeds, resumable through the records of `sweep-cell.ts`. */
import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import PQueue from "p-queue";
import { ArgumentError, WhetstoneError } from "../../base/errors.ts";
import { takeLock } from "../../base/util/process-lock.ts";
import { cellsOf, readCell, writeCell, type SweepCell, type CellRecord, type Grid, type Settings } from "./sweep-cell.ts";
import { SweepResult, type CellResult } from "./sweep-result.ts";

/** Argument of the function that runs a cell of a sweep. */
export interface CellContext<S> extends SweepCell<S> {
  /** Aborts when the sweep is aborted. */
  readonly signal: AbortSignal;
}

/** Directory, grid, function and limits of a {@link sweep}. */
export interface SweepOptions<G extends Grid, V> {
  /** Directory of the sweep, with one subdirectory per cell. If it already holds cells of this grid, the sweep resumes. */
  readonly dir: string;
  /** Values of each setting, at least one; JSON. */
  readonly grid: G;
  /** Seeds of each combination; distinct integers. @default [0] */
  readonly seeds?: readonly number[] | undefined;
  /**
   * Runs one cell and returns its result, which is recorded as JSON. Pass `dir` as `runDir` to `trainRl` or `trainSft`, so that an
   * interrupted cell resumes, and give every cell a model of its own.
   */
  readonly run: (cell: CellContext<Settings<G>>) => V | Promise<V>;
  /** Max number of cells that run at the same time, at least 1. @default 1 */
  readonly concurrency?: number | undefined;
  /** Whether cells that failed in an earlier call run again. @default true */
  readonly retryFailed?: boolean | undefined;
  /** Called when a cell starts or ends, and for each cell that an earlier call finished. */
  readonly onCell?: ((cell: CellResult<Settings<G>, V>) => void) | undefined;
  /** Stops the sweep: running cells get the signal, and the call rejects with its reason after they have ended. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs a function for every combination of settings and seed. Each cell has a directory with a name made from its settings, and a record
 * `cell.json` in it. The same call with the same directory resumes after any interruption, also after the loss of the process: finished
 * cells are not run again, and interrupted cells are run with the same directory. The grid may change from one call to the next; cells that
 * are in both keep their results, and directories of other cells remain.
 *
 * An error of `run` fails its cell and not the sweep: the error is recorded, and the other cells continue.
 *
 * @param options - Directory, grid, seeds and function; all other options have defaults.
 * @returns All cells of the grid with their results.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds, before anything runs.
 * @throws ConflictError `E_CONFLICT` while another sweep uses the directory.
 * @throws DataError `E_DATA` for a damaged `cell.json`.
 * @throws the signal's reason.
 * @example
 * ```ts
 * import { trainRl } from "whetstone";
 *
 * const result = await sweep({
 *   dir: "runs/learning-rate",
 *   grid: { learningRate: [1e-4, 3e-4] },
 *   seeds: [0, 1, 2],
 *   async run({ name, dir, settings, seed, signal }) {
 *     const model = await service.models.create({ project: "sweep", name, baseModel: "whetstone-tiny", returnExisting: true });
 *     const run = trainRl({ model, environment, steps: 50, seed, train: settings, evaluation: { every: 50 }, runDir: dir, signal });
 *     return (await run.done).evaluation ?? {};
 *   },
 * });
 * console.log(result.compare({ value: "eval/reward/mean" }).table().toMarkdown());
 * ```
 */
export async function sweep<const G extends Grid, V>(options: SweepOptions<G, V>): Promise<SweepResult<Settings<G>, V>> {
  const { grid, seeds = [0], concurrency = 1, signal } = options;
  if (typeof options.dir !== "string" || options.dir === "") throw new ArgumentError("Expected `dir` to be a path", { param: "dir" });
  if (!(Number.isSafeInteger(concurrency) && concurrency >= 1))
    throw new ArgumentError(`Expected \`concurrency\` to be an integer of at least 1, got \`${concurrency}\``, { param: "concurrency" });
  const dir = resolve(options.dir);
  const cells = cellsOf(dir, grid, seeds);
  signal?.throwIfAborted();
  await mkdir(dir, { recursive: true });
  const unlock = await takeLock(resolve(dir, "sweep.lock"), { noun: "sweep", param: "dir" });
  try {
    return new SweepResult(await runCells(cells, options, concurrency));
  } finally {
    await unlock();
  }
}

/** Runs the cells, at most `concurrency` at a time, and returns their results in the order of the cells. */
async function runCells<G extends Grid, V>(
  cells: readonly SweepCell<Settings<G>>[],
  options: SweepOptions<G, V>,
  concurrency: number,
): Promise<CellResult<Settings<G>, V>[]> {
  const queue = new PQueue({ concurrency });
  // A failure to read or write a record, or an error of `onCell`, stops the sweep; the running cells end first.
  const failure = new AbortController();
  const signal = AbortSignal.any([failure.signal, ...(options.signal === undefined ? [] : [options.signal])]);
  const results = cells.map((cell) =>
    queue.add(async () => {
      signal.throwIfAborted();
      try {
        return await runCell(cell, options, signal);
      } catch (error) {
        failure.abort(error);
        throw error;
      }
    }),
  );
  await Promise.allSettled(results);
  signal.throwIfAborted();
  return Promise.all(results);
}

/** Runs a cell and records its start and end. A finished cell is only reported. */
async function runCell<G extends Grid, V>(
  cell: SweepCell<Settings<G>>,
  { run, retryFailed = true, onCell }: SweepOptions<G, V>,
  signal: AbortSignal,
): Promise<CellResult<Settings<G>, V>> {
  const previous = await readCell(cell);
  /** Reports a record to `onCell` and returns the record as a result. */
  const report = (contents: CellRecord): CellResult<Settings<G>, V> => {
    const { state, attempts, seconds, value, error } = contents;
    const result = { ...cell, state, attempts, seconds, value: value as V | null, error };
    onCell?.(result);
    return result;
  };
  if (previous?.state === "completed" || (previous?.state === "failed" && !retryFailed)) return report(previous);
  const started: CellRecord = {
    version: 1,
    settings: JSON.parse(JSON.stringify(cell.settings)) as CellRecord["settings"],
    seed: cell.seed,
    state: "running",
    attempts: (previous?.attempts ?? 0) + 1,
    seconds: null,
    value: null,
    error: null,
  };
  await writeCell(cell, started);
  report(started);
  const startedMs = performance.now();
  const outcome = await outcomeOf(() => run({ ...cell, signal }), signal);
  const ended: CellRecord = { ...started, ...outcome, seconds: (performance.now() - startedMs) / 1000 };
  await writeCell(cell, ended);
  return report(ended);
}

/** Runs the function of a cell. An abort is rethrown, and the cell stays `running` on disk, so that the next call resumes it. */
async function outcomeOf(run: () => unknown, signal: AbortSignal): Promise<Pick<CellRecord, "state" | "value" | "error">> {
  try {
    const value: unknown = await run();
    return { state: "completed", value: JSON.parse(JSON.stringify(value ?? null)) as CellRecord["value"], error: null };
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    const code = WhetstoneError.isInstance(error) ? error.code : null;
    const [type, message] = error instanceof Error ? [error.name, error.message] : ["unknown", String(error)];
    return { state: "failed", value: null, error: { type, code, message } };
  }
}
