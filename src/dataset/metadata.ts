import { readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { z } from "zod";
import { checkVersion, SCHEMA_VERSION } from "./records.ts";
import type { WrittenFile } from "./jsonl.ts";

/** Name of the file that describes the data file beside it. */
export const METADATA_FILE = "metadata.json";

/** What `metadata.json` says. Flat: it is also the metadata of an uploaded artifact. */
export interface DatasetMetadata {
  readonly format: "jsonl";
  readonly schema_version: number;
  /** The data file beside it. */
  readonly file: string;
  readonly num_trajectories: number;
  readonly size_bytes: number;
  /** Of the data file, lower-case hexadecimal. */
  readonly sha256: string;
  readonly [key: string]: string | number;
}

const known = z.looseObject({ schema_version: z.unknown(), file: z.string(), num_trajectories: z.int().min(0) });

/** Describes a written file. `more` are facts of the caller's own. */
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

/** Writes metadata as it is uploaded, too. */
export async function writeMetadata(path: string, metadata: DatasetMetadata): Promise<void> {
  await writeFile(path, metadataText(metadata), { flush: true });
}

/** The text of `metadata.json`. */
export function metadataText(metadata: DatasetMetadata): string {
  return `${JSON.stringify(metadata, null, 2)}\n`;
}

/**
 * Looks for a `metadata.json` that speaks of this file.
 *
 * @returns How many records it says there are; null when there is no such metadata.
 * @throws DataError `E_DATA` when it has a newer schema version.
 */
export async function checkBeside(path: string): Promise<number | null> {
  const metadataPath = join(dirname(path), METADATA_FILE);
  let value: unknown;
  try {
    value = JSON.parse(await readFile(metadataPath, "utf8"));
  } catch (error) {
    // Not there, not to be read, or somebody else's: it says nothing about the file.
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code !== undefined) return null;
    throw error;
  }
  const result = known.safeParse(value);
  if (!result.success || result.data.file !== basename(path)) return null;
  checkVersion(result.data.schema_version, metadataPath);
  return result.data.num_trajectories;
}
