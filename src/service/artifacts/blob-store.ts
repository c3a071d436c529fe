import { createHash, randomUUID } from "node:crypto";
import { createReadStream, type ReadStream } from "node:fs";
import { mkdir, open, readdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { TooLargeError } from "../../errors.ts";
import { remove, syncDirectory } from "../files.ts";

/** Contents addressed by their SHA-256: written once, never changed, shared by all that have them. */
export interface BlobStore {
  /**
   * Stores what `chunks` yields. When it returns, the contents are on disk; when it throws, nothing is left.
   *
   * @throws TooLargeError `E_TOO_LARGE` past `maxBytes`.
   */
  write(
    chunks: AsyncIterable<Uint8Array>,
    options: { readonly maxBytes: number; readonly signal?: AbortSignal | undefined },
  ): Promise<{ readonly sha256: string; readonly sizeBytes: number }>;
  /** The file of a blob. */
  readonly path: (sha256: string) => string;
  read(sha256: string): ReadStream;
  /** Removes every blob that `isReferenced` denies: uploads that were never recorded. */
  sweep(isReferenced: (sha256: string) => boolean): Promise<number>;
}

/** Blobs below `blobs`, uploads under way below `temporary`; both on one file system. */
export function createBlobStore({ blobs, temporary }: { readonly blobs: string; readonly temporary: string }): BlobStore {
  const path = (sha256: string) => join(blobs, sha256.slice(0, 2), sha256);
  return {
    path,
    read: (sha256) => createReadStream(path(sha256)),
    async write(chunks, { maxBytes, signal }) {
      const upload = join(temporary, randomUUID());
      try {
        const hash = createHash("sha256");
        let sizeBytes = 0;
        const file = await open(upload, "wx", 0o600);
        try {
          for await (const chunk of chunks) {
            signal?.throwIfAborted();
            sizeBytes += chunk.byteLength;
            if (sizeBytes > maxBytes)
              throw new TooLargeError(`Expected a file of at most ${maxBytes} bytes. Split it, or raise the service's limit`);
            hash.update(chunk);
            await file.writeFile(chunk);
          }
          await file.sync();
        } finally {
          await file.close();
        }
        const sha256 = hash.digest("hex");
        const parent = join(blobs, sha256.slice(0, 2));
        await mkdir(parent, { recursive: true, mode: 0o700 });
        await rename(upload, path(sha256));
        await syncDirectory(parent);
        await syncDirectory(blobs);
        return { sha256, sizeBytes };
      } catch (error) {
        await remove(upload);
        throw error;
      }
    },
    async sweep(isReferenced) {
      let removed = 0;
      for (const prefix of await readdir(blobs)) {
        for (const sha256 of await readdir(join(blobs, prefix))) {
          if (isReferenced(sha256)) continue;
          await remove(join(blobs, prefix, sha256));
          removed++;
        }
      }
      return removed;
    },
  };
}
