import type { Dirent } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";

/** Files that mark a run directory. */
const MARKERS = ["events.jsonl", "metrics.jsonl"];
/** File that marks a data directory of the service, which contains no runs. */
const DATABASE = "whetstone.db";
/** Max depth of a run directory below its root. */
const MAX_DEPTH = 4;

/**
 * Returns the run directories at and below a directory, at most four levels deep. Symbolic links are not followed; hidden directories,
 * `node_modules` and data directories are skipped. A directory that does not exist contains nothing.
 */
export async function runDirectories(directory: string, depth = MAX_DEPTH): Promise<string[]> {
  const entries: Dirent[] = await readdir(directory, { withFileTypes: true }).catch(() => []);
  const names = new Set(entries.map(({ name }) => name));
  if (MARKERS.some((name) => names.has(name))) return [directory];
  if (depth === 0 || names.has(DATABASE)) return [];
  const folders = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith(".") && entry.name !== "node_modules");
  return (await Promise.all(folders.map(({ name }) => runDirectories(join(directory, name), depth - 1)))).flat();
}
