/** Downloads from the hub, stored under a temporary name until they are complete. */
import { createHash, randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { open, readdir, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";
import { DataError } from "../../base/errors.ts";
import { remove, syncDirectory } from "../disk/files.ts";
import type { FileDigest } from "../disk/digests.ts";

/** Name of a file that is being fetched. */
export const INCOMPLETE = /\.incomplete-[0-9a-f-]{36}$/u;
/** Milliseconds since the last write after which an incomplete download counts as abandoned. */
const ABANDONED_AFTER_MS = 3_600_000;

/**
 * Writes a download to `target`. The file is either complete, with the size and digest listed by the hub, or absent.
 *
 * @returns the digest of the file.
 * @throws DataError `E_DATA` if size or digest differ from `expected`.
 */
export async function keep(
  blob: Blob,
  target: string,
  expected: { readonly size: number; readonly sha256: string | null },
): Promise<FileDigest> {
  const temporary = `${target}.incomplete-${randomUUID()}`;
  const hash = createHash("sha256");
  try {
    const counted = new Transform({
      transform(chunk: Uint8Array, _encoding, done) {
        hash.update(chunk);
        done(null, chunk);
      },
    });
    await pipeline(Readable.fromWeb(blob.stream() as ReadableStream), counted, createWriteStream(temporary, { flags: "wx", mode: 0o600 }));
    const { size } = await stat(temporary);
    const digest = hash.digest("hex");
    if (size !== expected.size || (expected.sha256 !== null && digest !== expected.sha256)) {
      throw new DataError(
        `A file came with other bytes than the hub says: ${target} has ${size} of ${expected.size} bytes${expected.sha256 === null ? "" : `, SHA-256 ${digest} instead of ${expected.sha256}`}. Ask again`,
        { param: "base_model" },
      );
    }
    const file = await open(temporary, "r+");
    try {
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, target);
    await syncDirectory(join(target, ".."));
    return { sha256: digest, size_bytes: size };
  } catch (error) {
    await remove(temporary);
    throw error;
  }
}

/** Removes incomplete downloads that a terminated process left below a directory. */
export async function removeAbandoned(directory: string): Promise<void> {
  const names = await readdir(directory, { recursive: true });
  for (const name of names) {
    if (!INCOMPLETE.test(name)) continue;
    const path = join(directory, name);
    // Another service with the same cache may have completed or removed the file.
    const found = await stat(path).catch(() => null);
    if (found !== null && Date.now() - found.mtimeMs > ABANDONED_AFTER_MS) await remove(path);
  }
}
