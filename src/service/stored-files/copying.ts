import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, open, readdir, rename } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { z } from "zod";
import { ConfigError } from "../../errors.ts";
import { messageOf } from "../error-text.ts";
import { remove, syncDirectory, temporaryName } from "../files.ts";
import { digestsSchema, type FileDigest } from "../digests.ts";

/** Name of the manifest, which lists the files of a backup. */
export const MANIFEST = "backup.json";
/** Version of the backup format. */
export const FORMAT = 1;

/** Contents of {@link MANIFEST}. */
export const manifestSchema = z.object({
  format: z.int(),
  created_at: z.string(),
  /** Digests by path, relative to the backup and with `/` as the separator. */
  files: digestsSchema,
});

/** Result of a backup or a restore. */
export interface CopyResult {
  /** Absolute path of the directory that was written. */
  readonly directory: string;
  readonly files: number;
  readonly bytes: number;
}

/** Copies a file durably, creating its directory. Returns the digest of the copied bytes. */
export async function copyFileDurably(from: string, to: string): Promise<FileDigest> {
  await mkdir(dirname(to), { recursive: true, mode: 0o700 });
  const hash = createHash("sha256");
  let size = 0;
  const hashing = new Transform({
    transform(piece: Buffer, _encoding, done) {
      hash.update(piece);
      size += piece.byteLength;
      done(null, piece);
    },
  });
  await pipeline(
    createReadStream(from, { highWaterMark: 1 << 20 }),
    hashing,
    createWriteStream(to, { flags: "wx", mode: 0o600, flush: true }),
  );
  return { sha256: hash.digest("hex"), size_bytes: size };
}

/** Files that identify a directory as a backup or a data directory. They get their final names last. */
const LAST = ["whetstone.db", MANIFEST];

/**
 * Fills a directory so that an interruption leaves neither a backup nor a data directory at `target`. Files get their final names once all
 * of them are on disk, the database and the manifest last.
 *
 * @throws ConfigError `E_CONFIG` if `target` exists and is not an empty directory.
 */
export async function fillDirectory<T>(target: string, param: string, fill: (temporary: string) => Promise<T>): Promise<T> {
  const path = resolve(target);
  await requireEmpty(path, param);
  // Created inside the target, which may be a separate file system.
  const temporary = temporaryName(join(path, "incomplete"));
  const created = await mkdir(temporary, { recursive: true, mode: 0o700 });
  try {
    const result = await fill(temporary);
    for (const entry of await readdir(temporary, { recursive: true, withFileTypes: true })) {
      if (entry.isDirectory()) await syncDirectory(join(entry.parentPath, entry.name));
    }
    const names = (await readdir(temporary)).filter((name) => !LAST.includes(name));
    for (const name of names) await rename(join(temporary, name), join(path, name));
    await syncDirectory(path);
    for (const name of LAST) await rename(join(temporary, name), join(path, name)).catch(unlessMissing);
    await remove(temporary);
    await syncDirectory(path);
    await syncDirectory(dirname(path));
    return result;
  } catch (error) {
    // Removes the outermost directory that was created.
    await remove(created ?? temporary);
    throw error;
  }
}

function unlessMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== "ENOENT") throw error;
}

async function requireEmpty(path: string, param: string): Promise<void> {
  let names: string[];
  try {
    names = await readdir(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") return;
    throw new ConfigError(`Expected '${path}' to be a directory: ${messageOf(cause)}`, { cause, param });
  }
  if (names.length === 0) return;
  throw new ConfigError(`Expected '${path}' to be empty or not to exist, found ${names.length} entries. Name another directory`, { param });
}

/** Flushes the contents of a file to disk. */
export async function syncFile(path: string): Promise<void> {
  const file = await open(path, "r+");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
