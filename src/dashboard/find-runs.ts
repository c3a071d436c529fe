import { createHash } from "node:crypto";
import { realpath } from "node:fs/promises";
import { basename, relative, sep } from "node:path";
import { DataError } from "../errors.ts";
import { runDirectories } from "../report/run-directories.ts";

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
 * Finds the run directories at and below `roots`, at most four levels deep. Symbolic links below a root are not followed, hidden
 * directories, `node_modules` and data directories are skipped, and a root that does not exist contains nothing.
 */
export async function findRuns(roots: readonly string[]): Promise<FoundRun[]> {
  const found = new Map<string, FoundRun>();
  for (const given of roots) {
    const root = await realpath(given).catch(() => null);
    if (root === null) continue;
    for (const path of await runDirectories(root)) {
      const name = relative(root, path).split(sep).join("/");
      if (!found.has(path)) found.set(path, { id: idOf(path), path, root, name: name === "" ? basename(path) : name });
    }
  }
  return [...found.values()];
}

function idOf(path: string): string {
  return createHash("sha256").update(path).digest("hex").slice(0, 16);
}

/**
 * Checks that a file lies below a root after resolving symbolic links.
 *
 * @returns false if there is no such file.
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
