/** Opening of run directories as {@link Run} objects, by path or glob. */
import { stat } from "node:fs/promises";
import { basename, dirname, resolve } from "node:path";
import { expandPaths } from "../../library/dataset/paths.ts";
import { DataError, NotFoundError } from "../../base/errors.ts";
import { readRun } from "../../run/read-run.ts";
import { isLocked } from "../../run/status.ts";
import { Run, type ReadRunOptions } from "./run.ts";

/**
 * Opens the directory of a run, also of a run in progress or interrupted.
 *
 * @param dir - Directory written by `trainRl`, `trainSft`, a recipe or `whetstone eval --out`.
 * @param options - Signal.
 * @returns The run as it is on disk now.
 * @throws NotFoundError `E_NOT_FOUND` if the directory contains no files of a run.
 * @throws DataError `E_DATA` with file and line for a file that does not match its schema; an incomplete last line is skipped.
 * @example
 * ```ts
 * const run = await openRun("runs/reverse");
 * console.log(run.state, run.steps, run.series("reward/mean").at(-1));
 * ```
 */
export async function openRun(dir: string, { signal }: ReadRunOptions = {}): Promise<Run> {
  const path = resolve(dir);
  const files = await readRun(path, signal);
  return new Run(path, basename(path), files, await isLocked(path));
}

/**
 * Opens several run directories. Equal directory names are replaced by their paths below the common parent, so that names are distinct.
 *
 * @param patterns - Directory, glob such as `runs/*`, or a list of these. A glob selects the directories with a `metrics.jsonl`.
 * @param options - Signal.
 * @returns The runs in the order of the patterns, ordered by path within a glob; each directory once.
 * @throws NotFoundError `E_NOT_FOUND` for a directory that contains no files of a run, and for a glob that matches no run.
 * @throws DataError `E_DATA` with file and line for a file that does not match its schema.
 * @example
 * ```ts
 * const runs = await openRuns("runs/*");
 * console.log(runs.map(({ name, state, steps }) => `${name}: ${state}, ${steps} steps`).join("\n"));
 * ```
 */
export async function openRuns(patterns: string | readonly string[], options: ReadRunOptions = {}): Promise<Run[]> {
  const dirs = new Set<string>();
  for (const pattern of typeof patterns === "string" ? [patterns] : patterns) {
    for (const dir of await runDirs(pattern)) dirs.add(dir);
  }
  const runs = await Promise.all([...dirs].map((dir) => openRun(dir, options)));
  const names = distinctNames(runs.map(({ dir }) => dir));
  return runs.map((run, index) => run.named(names[index] as string));
}

/**
 * Returns the run directories that a path or a glob selects.
 *
 * @throws NotFoundError `E_NOT_FOUND` if no path is a run directory or contains one.
 */
export async function runDirs(pattern: string): Promise<string[]> {
  if (await isDirectory(pattern)) return [resolve(pattern)];
  try {
    return (await expandPaths(`${pattern.replace(/\/+$/u, "")}/metrics.jsonl`)).map((path) => resolve(dirname(path)));
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw new NotFoundError(`Expected \`${pattern}\` to be a run directory or a glob of run directories; no metrics.jsonl is there`, {
      cause,
      param: "patterns",
    });
  }
}

/** Whether a path is an existing directory. */
export async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

/** Returns the last segments of each path, as many as make all of them distinct. @param paths - All different, so that the search ends. */
function distinctNames(paths: readonly string[]): string[] {
  const tails = (count: number) => paths.map((path) => path.split(/[\\/]/u).slice(-count).join("/"));
  for (let count = 1; ; count++) {
    const names = tails(count);
    if (new Set(names).size === names.length) return names;
  }
}
