import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readdir } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { z } from "zod";

/** Bytes hashed per chunk. The event loop runs between two chunks. */
const PIECE_BYTES = 1 << 20;

/** Identity of a file's contents. */
export interface FileDigest {
  /** SHA-256, 64 hexadecimal digits. */
  readonly sha256: string;
  readonly size_bytes: number;
}

/** Digests of files by path, relative to the data directory unless stated otherwise, with `/` as the separator. */
export type Digests = Readonly<Record<string, FileDigest>>;

/** Schema of {@link Digests}. */
export const digestsSchema = z.record(z.string(), z.object({ sha256: z.string(), size_bytes: z.number() }));

/** Parses a `digests` column. Returns null if digests were never recorded, or an older database lacks the column. */
export function parseDigests(column: string | null | undefined): Digests | null {
  return (column ?? null) === null ? null : digestsSchema.parse(JSON.parse(column as string));
}

/** Returns the digest of bytes in memory. */
export function digestBytes(bytes: Uint8Array): FileDigest {
  return { sha256: createHash("sha256").update(bytes).digest("hex"), size_bytes: bytes.byteLength };
}

/** Reads a file and returns its digest. */
export async function digestFile(path: string): Promise<FileDigest> {
  const hash = createHash("sha256");
  let size = 0;
  for await (const piece of createReadStream(path, { highWaterMark: PIECE_BYTES }) as AsyncIterable<Buffer>) {
    hash.update(piece);
    size += piece.byteLength;
  }
  return { sha256: hash.digest("hex"), size_bytes: size };
}

/**
 * Returns the digests of all files below `path`, keyed by their current or future path below `place`, which is relative to the data
 * directory.
 */
export async function digestDirectory(path: string, storedPath: string): Promise<Digests> {
  const digests: Record<string, FileDigest> = {};
  for (const entry of await readdir(path, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = join(entry.parentPath, entry.name);
    digests[`${toStoredPath(storedPath)}/${toStoredPath(relative(path, file))}`] = await digestFile(file);
  }
  return digests;
}

/** Converts a relative path to the form stored in the database, with `/` as the separator. */
export function toStoredPath(path: string): string {
  return path.split(sep).join("/");
}
