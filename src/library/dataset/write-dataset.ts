/** Writing of a dataset to a directory: the data file, then the `metadata.json` that describes it. */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { DataError } from "../../base/errors.ts";
import type { Trajectory } from "../../base/trajectory/index.ts";
import { trajectoryOf, type ChatExample } from "./chat.ts";
import type { WriteOptions, WrittenFile } from "./jsonl.ts";
import { describeFile, METADATA_FILE, writeMetadata, type DatasetMetadata } from "./metadata.ts";
import { writeTrajectories } from "./trajectories.ts";

/** Items of a dataset: trajectories or plain conversations. */
export type Examples = Iterable<Trajectory | ChatExample> | AsyncIterable<Trajectory | ChatExample>;

/** Options of {@link writeDataset}. */
export interface WriteDatasetOptions extends WriteOptions {
  /** Whether to compress the data as `trajectories.jsonl.gz`. @default false */
  readonly gzip?: boolean | undefined;
  /** Additional entries for `metadata.json`. @default {} */
  readonly metadata?: Readonly<Record<string, string | number>> | undefined;
}

/** Result of {@link writeDataset}: the data file and its metadata. */
export interface WrittenDataset extends WrittenFile {
  /** Content of `metadata.json`. */
  readonly metadata: DatasetMetadata;
}

/**
 * Writes a dataset: a directory with `trajectories.jsonl` and `metadata.json` (counts, SHA-256, schema version).
 *
 * `readTrajectories` of the data file then checks schema version and count. The metadata is written last: a crash while replacing a dataset
 * may leave data without metadata, but never data with the metadata of another dataset.
 *
 * @param directory - Directory to write to; created if missing.
 * @param examples - Trajectories or conversations, in order.
 * @param options - Compression, additional metadata and a signal.
 * @returns Path, size, SHA-256 and metadata of the data file.
 * @throws DataError `E_DATA` without examples or for an invalid item; an existing dataset is then unchanged.
 * @throws the signal's reason.
 * @example
 * ```ts
 * import { readTrajectories } from "whetstone/dataset";
 *
 * const { train, validation } = readTrajectories("runs/*\/trajectories/train/*.jsonl").split({ validation: 0.05, seed: 7 });
 * await writeDataset("data/train", train, { gzip: true });
 * await writeDataset("data/validation", validation, { gzip: true });
 * ```
 */
export async function writeDataset(
  directory: string,
  examples: Examples,
  { gzip = false, metadata = {}, signal }: WriteDatasetOptions = {},
): Promise<WrittenDataset> {
  await mkdir(directory, { recursive: true });
  const metadataPath = join(directory, METADATA_FILE);
  const trajectories = async function* () {
    let count = 0;
    for await (const example of examples) {
      count++;
      yield trajectoryOf(example, count);
    }
    if (count === 0) throw new DataError(`Expected at least one trajectory to write to ${directory}, got none`);
    // All items are valid, and the next step replaces the old data file: remove its metadata first.
    await rm(metadataPath, { force: true });
  };
  const dataPath = join(directory, gzip ? "trajectories.jsonl.gz" : "trajectories.jsonl");
  const written = await writeTrajectories(dataPath, trajectories(), { signal });
  const described = describeFile(written, "num_trajectories", metadata);
  await writeMetadata(metadataPath, described);
  return { ...written, metadata: described };
}
