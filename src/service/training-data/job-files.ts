/** Files of an unfinished RL job: its trajectory groups, which are its payload. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { DataCorruptedError } from "../../base/errors.ts";
import type { TrajectoryGroup } from "../../base/schema/index.ts";
import { readRegularFile } from "../../base/util/regular-file.ts";
import { runStepsInSlices, type Steps } from "../../base/util/steps.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { remove, sizeOf, syncDirectory, writeDurably } from "../disk/files.ts";
import { digestBytes, type Digests } from "../disk/digests.ts";
import { jobDirectory, storedGroups } from "../disk/stored-path.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { JobRow } from "../store/tables.ts";

/** File with the trajectory groups of an RL job, one group per line. */
const PAYLOAD = "groups.jsonl";

/** Writes the groups of an RL job to disk, before the job is accepted, and returns their digest. */
export async function writeGroups(directory: DataDirectory, jobId: string, groups: readonly TrajectoryGroup[]): Promise<Digests> {
  const path = jobDirectory(directory, jobId);
  try {
    await mkdir(path, { mode: 0o700 });
    await syncDirectory(directory.jobs);
    const bytes = Buffer.from(await runStepsInSlices(toLines(groups)));
    await writeDurably(join(path, PAYLOAD), bytes);
    return { [storedGroups(jobId)]: digestBytes(bytes) };
  } catch (error) {
    await remove(path);
    throw error;
  }
}

/** Returns the size of a job's groups on disk in bytes; 0 if the file is missing. */
export function groupsBytes(directory: DataDirectory, jobId: string): Promise<number> {
  return sizeOf(join(jobDirectory(directory, jobId), PAYLOAD));
}

function subjectOf(jobId: string): string {
  return `File '${PAYLOAD}' of training job '${jobId}'`;
}

/** Compares the groups on disk with their digest. @throws DataCorruptedError `E_DATA_CORRUPTED` if the file is missing or damaged. */
export function verifyGroups(files: StoredFiles, job: JobRow): Promise<void> {
  return files.verifyJobFile(job, storedGroups(job.id), subjectOf(job.id));
}

/**
 * Reads the groups, which were validated when the job was accepted.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` if the file is missing or damaged.
 */
export async function readJobGroups(directory: DataDirectory, jobId: string): Promise<TrajectoryGroup[]> {
  try {
    return await runStepsInSlices(fromLines(await readRegularFile(join(jobDirectory(directory, jobId), PAYLOAD), { maxBytes: Infinity })));
  } catch (cause) {
    throw new DataCorruptedError(`${subjectOf(jobId)} cannot be read. Send them again as a new job`, { cause });
  }
}

/** Serializes groups as lines of JSON, one group per step. */
function* toLines(groups: readonly TrajectoryGroup[]): Steps<string> {
  let text = "";
  for (const group of groups) {
    text += `${JSON.stringify(group)}\n`;
    yield;
  }
  return text;
}

/** Parses lines of JSON, one group per step. */
function* fromLines(text: string): Steps<TrajectoryGroup[]> {
  const groups: TrajectoryGroup[] = [];
  for (const line of text.trimEnd().split("\n")) {
    groups.push(JSON.parse(line) as TrajectoryGroup);
    yield;
  }
  return groups;
}

/** Removes the payload and the progress of a finished job. */
export function removeJobFiles(directory: DataDirectory, jobId: string): Promise<void> {
  return remove(jobDirectory(directory, jobId));
}
