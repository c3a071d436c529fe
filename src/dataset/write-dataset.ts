import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { DataError } from "../errors.ts";
import type { Trajectory } from "../trajectory/index.ts";
import { trajectoryOf, type ChatExample } from "./chat.ts";
import type { WriteOptions, WrittenFile } from "./jsonl.ts";
import { describeFile, METADATA_FILE, writeMetadata, type DatasetMetadata } from "./metadata.ts";
import { writeTrajectories } from "./trajectories.ts";

/** What datasets are made of: trajectories, or plain conversations. */
export type Examples = Iterable<Trajectory | ChatExample> | AsyncIterable<Trajectory | ChatExample>;

/** Options of {@link writeDataset}. */
export interface WriteDatasetOptions extends WriteOptions {
  /** Pack the data as `trajectories.jsonl.gz`. @default false */
  readonly gzip?: boolean | undefined;
  /** Facts of your own for `metadata.json`. @default {} */
  readonly metadata?: Readonly<Record<string, string | number>> | undefined;
}

/** A dataset on disk. */
export interface WrittenDataset extends WrittenFile {
  readonly metadata: DatasetMetadata;
}

/**
 * Writes a dataset: a directory with `trajectories.jsonl` and `metadata.json` (counts, SHA-256, schema version).
 *
 * `readTrajectories` of the data file then checks schema version and count. The metadata is written last; where a dataset stood before,
 * a crash leaves data without metadata, never with that of other data.
 *
 * @throws DataError `E_DATA` when there is nothing to write or an item does not fit; then the directory's dataset is as it was.
 * @example
 * ```ts
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
    let index = 0;
    for await (const example of examples) yield trajectoryOf(example, ++index);
    if (index === 0) throw new DataError(`Expected at least one trajectory to write to ${directory}, got none`);
    // The next thing to happen is that the new file takes the place of the old one.
    await rm(metadataPath, { force: true });
  };
  const written = await writeTrajectories(join(directory, gzip ? "trajectories.jsonl.gz" : "trajectories.jsonl"), trajectories(), {
    signal,
  });
  const described = describeFile(written, metadata);
  await writeMetadata(metadataPath, described);
  return { ...written, metadata: described };
}
