/** Disk use of the runs that the dashboard shows. */
import { statfs } from "node:fs/promises";
import { directorySize } from "../../base/util/directory-size.ts";
import type { DiskUse } from "./api.ts";
import type { RunReader } from "./run-reader.ts";

/** Measures the run directories and the file system of the data directory. */
export async function diskUse(readers: readonly RunReader[], dataDir: string): Promise<DiskUse> {
  const runs = await Promise.all(readers.map(async ({ run: { id, path } }) => ({ id, sizeBytes: await directorySize(path) })));
  const { bsize, bavail, blocks } = await statfs(dataDir);
  return { runs: runs.sort((a, b) => b.sizeBytes - a.sizeBytes), freeBytes: bavail * bsize, totalBytes: blocks * bsize };
}
