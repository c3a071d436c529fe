/** Files of an unfinished RL job: its trajectory groups, written before the job is accepted and read when it runs. */
import { createHash } from "node:crypto";
import { mkdir, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { DataCorruptedError } from "../../base/errors.ts";
import type { TrajectoryGroup } from "../../base/schema/index.ts";
import { openRegularFile } from "../../base/util/regular-file.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { closing, remove, sizeOf, syncDirectory, writeDurably } from "../disk/files.ts";
import { PIECE_BYTES, type Digests, type FileDigest } from "../disk/digests.ts";
import { jobDirectory, storedGroups, storedJob } from "../disk/stored-path.ts";
import type { Storage } from "../storage/storage.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { JobRow } from "../store/tables.ts";

/** File with the trajectory groups of an RL job, one group per line. */
const GROUPS_FILE = "groups.jsonl";

const LINE_FEED = 0x0a;

/** Writes the groups of an RL job to disk, before the job is accepted, and returns their digest. */
export async function writeGroups(directory: DataDirectory, jobId: string, groups: readonly TrajectoryGroup[]): Promise<Digests> {
  const path = jobDirectory(directory, jobId);
  try {
    await mkdir(path, { mode: 0o700 });
    await syncDirectory(directory.jobs);
    const lines = new GroupLines(groups);
    await writeDurably(join(path, GROUPS_FILE), lines);
    return { [storedGroups(jobId)]: lines.digest() };
  } catch (error) {
    await remove(path);
    throw error;
  }
}

/** Returns the size of a job's groups on disk in bytes; 0 if the file is missing. */
export function groupsBytes(directory: DataDirectory, jobId: string): Promise<number> {
  return sizeOf(join(jobDirectory(directory, jobId), GROUPS_FILE));
}

/** Returns the name of the file for errors. */
function subjectOf(jobId: string): string {
  return `File '${GROUPS_FILE}' of training job '${jobId}'`;
}

/** Calls `use` while the groups are on disk, verified. @throws DataCorruptedError `E_DATA_CORRUPTED` if the file is missing or damaged. */
export function useGroups<T>(files: Pick<StoredFiles, "useJobFile">, job: JobRow, use: () => Promise<T>): Promise<T> {
  return files.useJobFile(job, storedGroups(job.id), subjectOf(job.id), use);
}

/**
 * Reads the groups, which were validated when the job was accepted.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` if the file is missing or damaged.
 */
export async function readJobGroups(directory: DataDirectory, jobId: string): Promise<TrajectoryGroup[]> {
  try {
    const groups: TrajectoryGroup[] = [];
    await closing(await openRegularFile(join(jobDirectory(directory, jobId), GROUPS_FILE)), async (file) => {
      for await (const line of linesOf(file)) groups.push(JSON.parse(line) as TrajectoryGroup);
    });
    return groups;
  } catch (cause) {
    throw new DataCorruptedError(`${subjectOf(jobId)} cannot be read. Send them again as a new job`, { cause });
  }
}

/** Removes the groups and the progress of a finished job. */
export async function removeJobFiles(storage: Pick<Storage, "remove">, jobId: string): Promise<void> {
  await storage.remove(storedJob(jobId));
}

/**
 * Groups as lines of JSON, serialized one after the other while they are written, because all of them may exceed the length of a string.
 */
class GroupLines implements Iterable<Uint8Array> {
  readonly #groups: readonly TrajectoryGroup[];
  readonly #hash = createHash("sha256");
  #sizeBytes = 0;

  constructor(groups: readonly TrajectoryGroup[]) {
    this.#groups = groups;
  }

  *[Symbol.iterator](): Generator<Uint8Array, void> {
    for (const group of this.#groups) {
      const bytes = Buffer.from(`${JSON.stringify(group)}\n`);
      this.#hash.update(bytes);
      this.#sizeBytes += bytes.byteLength;
      yield bytes;
    }
  }

  /** Returns the digest of all lines, once they were iterated. */
  digest(): FileDigest {
    return { sha256: this.#hash.digest("hex"), size_bytes: this.#sizeBytes };
  }
}

/** Yields the lines of a file. The event loop runs between two pieces of the file. */
async function* linesOf(file: FileHandle): AsyncGenerator<string, void> {
  /** Pieces of the current line. */
  let parts: Buffer[] = [];
  for await (const piece of file.createReadStream({ autoClose: false, highWaterMark: PIECE_BYTES }) as AsyncIterable<Buffer>) {
    let lineStart = 0;
    for (let lineEnd = piece.indexOf(LINE_FEED); lineEnd !== -1; lineEnd = piece.indexOf(LINE_FEED, lineStart)) {
      yield Buffer.concat([...parts, piece.subarray(lineStart, lineEnd)]).toString("utf8");
      parts = [];
      lineStart = lineEnd + 1;
    }
    if (lineStart < piece.length) parts.push(piece.subarray(lineStart));
  }
  if (parts.length > 0) yield Buffer.concat(parts).toString("utf8");
}
