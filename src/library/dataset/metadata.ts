/** `metadata.json`, the description of a data file: written by dataset writers and uploads, and compared with the file by dataset readers. */
import { readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { z } from "zod";
import { checkVersion, SCHEMA_VERSION } from "./records.ts";
import type { WrittenFile } from "./jsonl.ts";

/** Name of the file that describes the data file in the same directory. */
export const METADATA_FILE = "metadata.json";

/** Description of a data file. Its values are flat: an upload also sends it as the metadata of the artifact, which has no nested values. */
export interface FileMetadata {
  /** Format of the data file: JSON Lines. */
  readonly format: "jsonl";
  /** Version of the record format. */
  readonly schema_version: number;
  /** Name of the data file, in the same directory. */
  readonly file: string;
  /** Size of the data file on disk in bytes. */
  readonly size_bytes: number;
  /** SHA-256 of the data file, in lowercase hexadecimal. */
  readonly sha256: string;
  readonly [key: string]: string | number;
}

/** Content of `metadata.json` of a dataset of trajectories. */
export interface DatasetMetadata extends FileMetadata {
  /** Number of trajectories in the data file, one per line. */
  readonly num_trajectories: number;
}

/** Schema of the properties that a reader needs; the version is checked separately, with an error that names it. */
const readerProperties = z.looseObject({ schema_version: z.unknown(), file: z.string(), num_trajectories: z.int().min(0) });

/**
 * Returns the metadata of a written file.
 *
 * @param countKey - Key of the number of lines.
 * @param extra - Additional entries. An entry with the name of another property has no effect.
 */
export function describeFile<K extends "num_trajectories" | "num_pairs">(
  { path, count, sizeBytes, sha256 }: WrittenFile,
  countKey: K,
  extra: Readonly<Record<string, string | number>> = {},
): FileMetadata & Readonly<Record<K, number>> {
  const countMember = { [countKey]: count } as Readonly<Record<K, number>>;
  return {
    ...extra,
    format: "jsonl",
    schema_version: SCHEMA_VERSION,
    file: basename(path),
    ...countMember,
    size_bytes: sizeBytes,
    sha256,
  };
}

/** Writes {@link metadataText} to `metadataPath` and waits until the data has reached the disk. */
export async function writeMetadata(metadataPath: string, metadata: FileMetadata): Promise<void> {
  await writeFile(metadataPath, metadataText(metadata), { flush: true });
}

/** Returns the text of `metadata.json`, the same on disk and in an upload. */
export function metadataText(metadata: FileMetadata): string {
  return `${JSON.stringify(metadata, null, 2)}\n`;
}

/**
 * Returns the number of trajectories that `metadata.json` states for a data file; null if it is missing, cannot be read or parsed, or
 * describes another file, because data files without metadata are valid.
 *
 * @param path - Path of the data file.
 * @throws DataError `E_DATA` for a newer schema version.
 */
export async function statedCount(path: string): Promise<number | null> {
  const metadataPath = join(dirname(path), METADATA_FILE);
  let value: unknown;
  try {
    value = JSON.parse(await readFile(metadataPath, "utf8"));
  } catch (error) {
    // Errors of the file system have a code.
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code !== undefined) return null;
    throw error;
  }
  const result = readerProperties.safeParse(value);
  if (!result.success || result.data.file !== basename(path)) return null;
  checkVersion(result.data.schema_version, metadataPath);
  return result.data.num_trajectories;
}
