import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { DataError } from "../../errors.ts";
import type { TrajectoryGroup } from "../../schema/index.ts";
import type { DataDirectory } from "../data-directory.ts";
import { remove, syncDirectory, writeDurably } from "../files.ts";

const PAYLOAD = "groups.json";

/** The directory of a job that is not over. */
export function jobDirectory(directory: DataDirectory, jobId: string): string {
  return join(directory.jobs, jobId);
}

/** Puts the groups of an RL job on disk: only then may the job be accepted. */
export async function writeGroups(directory: DataDirectory, jobId: string, groups: readonly TrajectoryGroup[]): Promise<void> {
  const path = jobDirectory(directory, jobId);
  try {
    await mkdir(path, { mode: 0o700 });
    await syncDirectory(directory.jobs);
    await writeDurably(join(path, PAYLOAD), JSON.stringify(groups));
  } catch (error) {
    await remove(path);
    throw error;
  }
}

/** The groups as they were validated when the job was accepted. */
export async function readGroups(directory: DataDirectory, jobId: string): Promise<TrajectoryGroup[]> {
  const path = join(jobDirectory(directory, jobId), PAYLOAD);
  try {
    return JSON.parse(await readFile(path, "utf8")) as TrajectoryGroup[];
  } catch (cause) {
    throw new DataError("The trajectory groups of this job cannot be read from the data directory. Send them again as a new job", {
      cause,
    });
  }
}

/** Removes payload and progress of a job that is over. */
export function removeJobFiles(directory: DataDirectory, jobId: string): Promise<void> {
  return remove(jobDirectory(directory, jobId));
}
