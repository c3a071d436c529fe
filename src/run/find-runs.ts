/** Search for run directories, and the check that a file is inside one. */

import { createHash } from "node:crypto";
import type { Dirent } from "node:fs";
import { readdir, realpath } from "node:fs/promises";
import { basename, join, relative, resolve, sep } from "node:path";
import { DataError } from "../base/errors.ts";
import { EVENTS_FILE, METRICS_FILE } from "./files.ts";

/** Files that mark a run directory. */
const MARKERS = [EVENTS_FILE, METRICS_FILE];
/** File that marks a data directory of the service, which contains no runs. */
const DATABASE = "whetstone.db";
/** Max depth of a run directory below its root. */
const MAX_DEPTH = 4;

/** Run directory found below a root. */
export interface FoundRun {
  /** Identifier derived from the path. */
  readonly id: string;
  /** Absolute path without symbolic links. */
  readonly path: string;
  /** Root that contains the run, without symbolic links. */
  readonly root: string;
  /** Path inside the root with `/` separators; name of the directory if the run is the root itself. */
  readonly name: string;
}

/**
 * Finds the run directories at and below a folder, at most four levels deep. Hidden folders, `node_modules`, data directories of a service
 * and symbolic links are skipped.
 *
 * @param folder - Folder to search.
 * @returns Absolute paths, sorted; empty for a folder without runs, or one that does not exist.
 * @example
 * ```ts
 * import { findRuns, openRun } from "whetstone/experiment";
 *
 * for (const dir of await findRuns("runs")) console.log(dir, (await openRun(dir)).state);
 * ```
 */
export async function findRuns(folder: string): Promise<string[]> {
  return (await runDirectories(resolve(folder))).sort();
}

/** Finds the run directories at and below several roots, each once, see {@link findRuns}. Symbolic links of the roots are resolved. */
export async function findRunsBelow(roots: readonly string[]): Promise<FoundRun[]> {
  const found = new Map<string, FoundRun>();
  for (const givenRoot of roots) {
    const root = await realpath(givenRoot).catch(() => null);
    if (root === null) continue;
    for (const path of await findRuns(root)) {
      const name = relative(root, path).split(sep).join("/");
      if (!found.has(path)) found.set(path, { id: idOf(path), path, root, name: name === "" ? basename(path) : name });
    }
  }
  return [...found.values()];
}

/** Returns the run directories at and below a directory, in no particular order. */
async function runDirectories(directory: string, depth = MAX_DEPTH): Promise<string[]> {
  const entries: Dirent[] = await readdir(directory, { withFileTypes: true }).catch(() => []);
  const names = new Set(entries.map(({ name }) => name));
  if (MARKERS.some((name) => names.has(name))) return [directory];
  if (depth === 0 || names.has(DATABASE)) return [];
  const folders = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith(".") && entry.name !== "node_modules");
  return (await Promise.all(folders.map(({ name }) => runDirectories(join(directory, name), depth - 1)))).flat();
}

/** Returns the identifier of a run. */
function idOf(path: string): string {
  return createHash("sha256").update(path).digest("hex").slice(0, 16);
}

/**
 * Returns whether a file exists, and requires that it lies below `root` after resolving symbolic links.
 *
 * @param root - Directory without symbolic links in its path.
 * @throws DataError `E_DATA` if the file lies elsewhere.
 */
export async function isInside(root: string, path: string): Promise<boolean> {
  const real = await realpath(path).catch(() => null);
  if (real === null) return false;
  if (real.startsWith(root.endsWith(sep) ? root : root + sep)) return true;
  throw new DataError(
    `${path}: expected a file below ${root}, got a symbolic link that leads out of it. Copy the file into the run directory`,
  );
}
