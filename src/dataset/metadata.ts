import { readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { z } from "zod";
import { checkVersion, SCHEMA_VERSION } from "./records.ts";
import type { WrittenFile } from "./jsonl.ts";

/** Name of the file that describes the data file in the same directory. */
export const METADATA_FILE = "metadata.json";

/** Content of `metadata.json`. Flat, because it is also the metadata of an uploaded artifact. */
export interface DatasetMetadata {
  readonly format: "jsonl";
  readonly schema_version: number;
  /** Name of the data file, in the same directory. */
  readonly file: string;
  readonly num_trajectories: number;
  readonly size_bytes: number;
  /** SHA-256 of the data file, in lowercase hexadecimal. */
  readonly sha256: string;
  readonly [key: string]: string | number;
}

const known = z.looseObject({ schema_version: z.unknown(), file: z.string(), num_trajectories: z.int().min(0) });

/** Returns the metadata of a written file. `more` contains additional entries from the caller. */
export function describeFile(
  { path, count, sizeBytes, sha256 }: WrittenFile,
  more: Readonly<Record<string, string | number>> = {},
): DatasetMetadata {
  return {
    ...more,
    format: "jsonl",
    schema_version: SCHEMA_VERSION,
    file: basename(path),
    num_trajectories: count,
    size_bytes: sizeBytes,
    sha256,
  };
}

/** Writes metadata as the same text that an upload sends. */
export async function writeMetadata(path: string, metadata: DatasetMetadata): Promise<void> {
  await writeFile(path, metadataText(metadata), { flush: true });
}

/** Returns the text of `metadata.json`. */
export function metadataText(metadata: DatasetMetadata): string {
  return `${JSON.stringify(metadata, null, 2)}\n`;
}

/**
 * Reads the `metadata.json` that describes a data file.
 *
 * @returns Number of records according to the metadata; null if no metadata describes this file.
 * @throws DataError `E_DATA` for a newer schema version.
 */
export async function checkBeside(path: string): Promise<number | null> {
  const metadataPath = join(dirname(path), METADATA_FILE);
  let value: unknown;
  try {
    value = JSON.parse(await readFile(metadataPath, "utf8"));
  } catch (error) {
    // A missing, unreadable or invalid file does not describe the data file.
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code !== undefined) return null;
    throw error;
  }
  const result = known.safeParse(value);
  if (!result.success || result.data.file !== basename(path)) return null;
  checkVersion(result.data.schema_version, metadataPath);
  return result.data.num_trajectories;
}
