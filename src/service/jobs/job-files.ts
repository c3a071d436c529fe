import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { DataError } from "../../errors.ts";
import type { TrajectoryGroup } from "../../schema/index.ts";
import { runStepsInSlices, type Steps } from "../../util/steps.ts";
import type { DataDirectory } from "../data-directory.ts";
import { remove, syncDirectory, writeDurably } from "../files.ts";

/** One group per line. */
const PAYLOAD = "groups.jsonl";

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
    await writeDurably(join(path, PAYLOAD), await runStepsInSlices(toLines(groups)));
  } catch (error) {
    await remove(path);
    throw error;
  }
}

/** The groups as they were validated when the job was accepted. */
export async function readGroups(directory: DataDirectory, jobId: string): Promise<TrajectoryGroup[]> {
  const path = join(jobDirectory(directory, jobId), PAYLOAD);
  try {
    return await runStepsInSlices(fromLines(await readFile(path, "utf8")));
  } catch (cause) {
    throw new DataError("The trajectory groups of this job cannot be read from the data directory. Send them again as a new job", {
      cause,
    });
  }
}

function* toLines(groups: readonly TrajectoryGroup[]): Steps<string> {
  let text = "";
  for (const group of groups) {
    text += `${JSON.stringify(group)}\n`;
    yield;
  }
  return text;
}

function* fromLines(text: string): Steps<TrajectoryGroup[]> {
  const groups: TrajectoryGroup[] = [];
  for (const line of text.trimEnd().split("\n")) {
    groups.push(JSON.parse(line) as TrajectoryGroup);
    yield;
  }
  return groups;
}

/** Removes payload and progress of a job that is over. */
export function removeJobFiles(directory: DataDirectory, jobId: string): Promise<void> {
  return remove(jobDirectory(directory, jobId));
}
