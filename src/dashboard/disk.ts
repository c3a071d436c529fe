import { readdir, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import type { DiskUse } from "./api.ts";
import type { RunReader } from "./run-reader.ts";

/** Measures the run directories and the file system of the data directory. */
export async function diskUse(readers: readonly RunReader[], dataDir: string): Promise<DiskUse> {
  const runs = await Promise.all(readers.map(async ({ run: { id, path } }) => ({ id, sizeBytes: await sizeOf(path) })));
  const { bsize, bavail, blocks } = await statfs(dataDir);
  return { runs: runs.sort((a, b) => b.sizeBytes - a.sizeBytes), freeBytes: bavail * bsize, totalBytes: blocks * bsize };
}

/** Returns the total size of the files below a directory; a file that is removed meanwhile counts as empty. */
async function sizeOf(directory: string): Promise<number> {
  const entries = await readdir(directory, { withFileTypes: true, recursive: true }).catch(() => []);
  const sizes = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) =>
      stat(join(parentPath, name)).then(
        ({ size }) => size,
        () => 0,
      ),
    );
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}
