/** Downloads from the hub, stored under a temporary name until they are complete. */
import { randomUUID } from "node:crypto";
import { readdir, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import { DataError } from "../../base/errors.ts";
import { remove, syncDirectory, syncFile } from "../disk/files.ts";
import { writeDigested, type FileDigest } from "../disk/digests.ts";

/** Names of files that are being fetched. */
export const INCOMPLETE = /\.incomplete-[0-9a-f-]{36}$/u;
/** Milliseconds since the last write after which an incomplete download counts as abandoned. */
const ABANDONED_AFTER_MS = 3_600_000;

/**
 * Writes a download to `target`. The file is either complete, with the size and digest listed by the hub, or absent.
 *
 * @returns the digest of the file.
 * @throws DataError `E_DATA` if size or digest differ from `expected`.
 */
export async function storeDownload(
  blob: Blob,
  target: string,
  expected: { readonly size: number; readonly sha256: string | null },
): Promise<FileDigest> {
  const temporary = `${target}.incomplete-${randomUUID()}`;
  try {
    const digest = await writeDigested(Readable.fromWeb(blob.stream() as ReadableStream), temporary, { flush: false });
    const { sha256, size_bytes: size } = digest;
    if (size !== expected.size || (expected.sha256 !== null && sha256 !== expected.sha256)) {
      throw new DataError(
        `A file came with other bytes than the hub says: ${target} has ${size} of ${expected.size} bytes${expected.sha256 === null ? "" : `, SHA-256 ${sha256} instead of ${expected.sha256}`}. Ask again`,
        { param: "base_model" },
      );
    }
    await syncFile(temporary);
    await rename(temporary, target);
    await syncDirectory(join(target, ".."));
    return digest;
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
    const stats = await stat(path).catch(() => null);
    if (stats !== null && Date.now() - stats.mtimeMs > ABANDONED_AFTER_MS) await remove(path);
  }
}
