import { createHash, randomUUID } from "node:crypto";
import { mkdir, open, readdir, rename } from "node:fs/promises";
import { join } from "node:path";
import PQueue from "p-queue";
import { TooLargeError } from "../../errors.ts";
import { remove, syncDirectory } from "../files.ts";

/** Stored blob with a hold: {@link BlobStore.removeUnreferenced} keeps the blob until it is released. */
export interface WrittenBlob {
  readonly sha256: string;
  readonly sizeBytes: number;
  /** Ends the hold. Call it once the row that references the blob is committed or abandoned. Further calls have no effect. */
  release(): void;
}

/** Content-addressed blob store (SHA-256). Blobs are written once, never changed, and shared by all files with the same content. */
export interface BlobStore {
  /**
   * Stores the bytes of `chunks`. After success the blob is durable; after an error nothing is left.
   *
   * @throws TooLargeError `E_TOO_LARGE` for more than `maxBytes`.
   */
  write(
    chunks: AsyncIterable<Uint8Array>,
    options: { readonly maxBytes: number; readonly signal?: AbortSignal | undefined },
  ): Promise<WrittenBlob>;
  /** Returns the path of a blob. */
  readonly path: (sha256: string) => string;
  /** Removes a blob unless a row references it (`isReferenced`) or an upload of the same content holds it. */
  removeUnreferenced(sha256: string, isReferenced: () => Promise<boolean>): Promise<void>;
  /** Lists all entries below the blob directory, including entries not named by a digest. */
  list(): Promise<{ readonly name: string; readonly path: string }[]>;
}

/** Creates a blob store. Blobs are stored in `blobs`, uploads in progress in `temporary`; both must be on the same file system. */
export function createBlobStore({ blobs, temporary }: { readonly blobs: string; readonly temporary: string }): BlobStore {
  const path = (sha256: string) => join(blobs, sha256.slice(0, 2), sha256);
  // Placing and holding a blob is one queued step, removing it another, so that a removal never deletes a blob that was just written.
  const turns = new PQueue({ concurrency: 1 });
  const holds = new Map<string, number>();

  async function place(upload: string, sha256: string): Promise<() => void> {
    const parent = join(blobs, sha256.slice(0, 2));
    await mkdir(parent, { recursive: true, mode: 0o700 });
    await rename(upload, path(sha256));
    holds.set(sha256, (holds.get(sha256) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const others = (holds.get(sha256) ?? 1) - 1;
      if (others === 0) holds.delete(sha256);
      else holds.set(sha256, others);
    };
  }

  return {
    path,
    async write(chunks, { maxBytes, signal }) {
      const upload = join(temporary, randomUUID());
      let release: (() => void) | undefined;
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
        release = await turns.add(() => place(upload, sha256));
        await syncDirectory(join(blobs, sha256.slice(0, 2)));
        await syncDirectory(blobs);
        return { sha256, sizeBytes, release };
      } catch (error) {
        release?.();
        await remove(upload);
        throw error;
      }
    },
    removeUnreferenced: (sha256, isReferenced) =>
      turns.add(async () => {
        if (holds.has(sha256) || (await isReferenced())) return;
        await remove(path(sha256));
      }),
    async list() {
      const found: { name: string; path: string }[] = [];
      for (const prefix of await readdir(blobs, { withFileTypes: true })) {
        const parent = join(blobs, prefix.name);
        if (prefix.isDirectory()) for (const name of await readdir(parent)) found.push({ name, path: join(parent, name) });
        else found.push({ name: prefix.name, path: parent });
      }
      return found;
    },
  };
}
