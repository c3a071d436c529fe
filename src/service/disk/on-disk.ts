/** Lists of the files that are in a data directory. */
import { readdir } from "node:fs/promises";
import { join, relative } from "node:path";
import type { DataDirectory } from "./data-directory.ts";
import { toStoredPath } from "./digests.ts";
import { isTemporaryName } from "./files.ts";

/**
 * Lists the files on disk in the directories that the database describes, except incomplete files. Paths are relative to the data
 * directory.
 */
export async function filesOnDisk(directory: DataDirectory): Promise<string[]> {
  const folders = [directory.checkpoints, directory.jobs, directory.tokens, directory.blobs];
  const filesByFolder = await Promise.all(folders.map((folder) => filesBelow(directory, folder)));
  return filesByFolder.flat().filter((storedPath) => !storedPath.split("/").some(isTemporaryName));
}

/**
 * Lists the files below a directory, by paths relative to the data directory; empty if the directory does not exist.
 *
 * @param path - Absolute path of the directory.
 */
export async function filesBelow(directory: DataDirectory, path: string): Promise<string[]> {
  const entries = await readdir(path, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries
    .filter((entry) => !entry.isDirectory())
    .map((entry) => toStoredPath(relative(directory.root, join(entry.parentPath, entry.name))));
}
