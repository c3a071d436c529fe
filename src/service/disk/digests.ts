/** SHA-256 digests of stored files: their form in the database, and their computation. */
import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import { readdir, type FileHandle } from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import { Transform, type Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { z } from "zod";
import { DataCorruptedError } from "../../base/errors.ts";
import { closing } from "./files.ts";
import { isInnerPath } from "../../base/util/inner-path.ts";
import { parseJson } from "../../base/util/values.ts";
import { openRegularFile } from "../../base/util/regular-file.ts";

/** Bytes per piece of a file that is read. The event loop runs between two pieces. */
export const PIECE_BYTES = 1 << 20;

/** Identity of a file's contents. */
export interface FileDigest {
  /** SHA-256, 64 hexadecimal digits. */
  readonly sha256: string;
  readonly size_bytes: number;
}

/** Digests of files by path, relative to the data directory unless stated otherwise, with `/` as the separator. */
export type Digests = Readonly<Record<string, FileDigest>>;

/** Schema of {@link Digests}. No path leads out of the directory that it is relative to. */
export const digestsSchema = z.record(z.string().refine(isInnerPath), z.object({ sha256: z.string(), size_bytes: z.number() }));

/**
 * Parses a `digests` column. Returns null if digests were never recorded, or an older database lacks the column.
 *
 * @param options - `subject`: name of the object for the error message; `places`: folders, ending with `/`, and files that the object owns.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for any other value, and for a file outside of `places`.
 */
export function parseDigests(
  column: string | null | undefined,
  { subject, places }: { readonly subject: string; readonly places: readonly string[] },
): Digests | null {
  if (column === null || column === undefined) return null;
  const digests = parseDigestsText(column);
  const isIn = (place: string, path: string) => (place.endsWith("/") ? path.startsWith(place) : path === place);
  const isOwned = (path: string) => places.some((place) => isIn(place, path));
  if (digests !== null && Object.keys(digests).every(isOwned)) return digests;
  throw new DataCorruptedError(
    `The database is damaged: expected digests of files in ${places.join(" or ")} for ${subject}, found ${String(column).slice(0, 200)}. Restore the data directory from a backup, or delete the object`,
  );
}

/** Parses the JSON text of {@link Digests}. Returns null for any other text. */
export function parseDigestsText(text: string): Digests | null {
  return digestsSchema.safeParse(parseJson(text)).data ?? null;
}

/** Returns the digest of bytes in memory. */
export function digestBytes(bytes: Uint8Array): FileDigest {
  return { sha256: createHash("sha256").update(bytes).digest("hex"), size_bytes: bytes.byteLength };
}

/**
 * Reads a regular file and returns its digest.
 *
 * @param root - Directory that the file must lie in, also after following links. @default the file's directory
 * @throws DataError `E_DATA` for a directory, FIFO, socket or device, and for a link that leads out of `root`.
 */
export async function digestFile(path: string, root: string = dirname(path)): Promise<FileDigest> {
  return closing(await openRegularFile(path, root), digestOpenFile);
}

/** Reads an open file from its start and returns its digest. The file stays open. */
export async function digestOpenFile(file: FileHandle): Promise<FileDigest> {
  const hash = createHash("sha256");
  let size = 0;
  for await (const piece of piecesOf(file)) {
    hash.update(piece);
    size += piece.byteLength;
  }
  return { sha256: hash.digest("hex"), size_bytes: size };
}

/**
 * Writes bytes to a new file, and returns their digest.
 *
 * @param options - `flush`: whether the bytes are flushed to disk before the function returns.
 */
export async function writeDigested(source: Readable, path: string, { flush }: { readonly flush: boolean }): Promise<FileDigest> {
  const hash = createHash("sha256");
  let size = 0;
  const hashing = new Transform({
    transform(piece: Buffer, _encoding, callback) {
      hash.update(piece);
      size += piece.byteLength;
      callback(null, piece);
    },
  });
  await pipeline(source, hashing, createWriteStream(path, { flags: "wx", mode: 0o600, flush }));
  return { sha256: hash.digest("hex"), size_bytes: size };
}

/** Reads an open file from its start in pieces. The file stays open. */
export function piecesOf(file: FileHandle): AsyncIterable<Buffer> {
  return file.createReadStream({ autoClose: false, start: 0, highWaterMark: PIECE_BYTES }) as AsyncIterable<Buffer>;
}

/**
 * Returns the digests of all files below a directory, by their paths relative to the data directory.
 *
 * @param path - The directory, which may still have a temporary name.
 * @param storedPath - Final path of the directory, relative to the data directory.
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
