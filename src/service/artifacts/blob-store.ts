/** Contents of artifact files on disk, by digest. `remove-blob.ts` decides when a blob may be removed. */
import { createHash, randomUUID } from "node:crypto";
import { mkdir, open, readdir, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import PQueue from "p-queue";
import { TooLargeError } from "../../base/errors.ts";
import { Holds } from "../../base/util/leases.ts";
import type { FileDigest } from "../disk/digests.ts";
import { closing, remove, syncDirectory } from "../disk/files.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { blobName, storedBlob } from "../disk/stored-path.ts";
import type { Storage } from "../storage/storage.ts";
import { pathExists } from "../../base/util/file-system-error.ts";

/** Stored blob with a hold: {@link BlobStore.removeUnreferenced} keeps the blob until it is released. */
export interface WrittenBlob {
  readonly sha256: string;
  readonly sizeBytes: number;
  /** Ends the hold. Call it once the row that references the blob is committed or abandoned. Further calls have no effect. */
  release(): void;
}

/** Entry below the directory of blobs, usually a blob whose name is its digest. */
export interface BlobEntry {
  readonly name: string;
  readonly path: string;
}

/** Blob at its final path, with a hold. */
interface PlacedBlob {
  readonly sha256: string;
  /** Whether no file was at the path before. */
  readonly isNew: boolean;
  /** Ends the hold. */
  readonly release: () => void;
}

/** Options of {@link BlobStore.write}. */
interface WriteOptions {
  readonly maxBytes: number;
  readonly signal?: AbortSignal | undefined;
}

/** Content-addressed blob store (SHA-256). Blobs are written once, never changed, and shared by all files with the same content. */
export class BlobStore {
  readonly #blobs: string;
  readonly #temporary: string;
  // Placing and holding a blob is one queued step, removing it another, so that a removal never deletes a blob that was just written.
  readonly #queue = new PQueue({ concurrency: 1 });
  readonly #holds = new Holds<string>();
  readonly #storage: Pick<Storage, "has" | "keep" | "remove">;

  /** Blobs are written to `blobs`, uploads in progress to `temporary`; both must be on the same file system. */
  constructor({ blobs, temporary }: Pick<DataDirectory, "blobs" | "temporary">, storage: Pick<Storage, "has" | "keep" | "remove">) {
    this.#blobs = blobs;
    this.#temporary = temporary;
    this.#storage = storage;
  }

  /** Returns the path of a blob. @throws DataCorruptedError `E_DATA_CORRUPTED` for anything but a SHA-256 digest. */
  path(sha256: string): string {
    return join(this.#blobs, blobName(sha256));
  }

  /**
   * Stores the bytes of `chunks`. After success the blob is permanent; after an error nothing is left.
   *
   * @throws TooLargeError `E_TOO_LARGE` for more than `maxBytes`.
   * @throws StorageError `E_UNAVAILABLE` if the storage does not accept the blob.
   */
  async write(chunks: AsyncIterable<Uint8Array>, { maxBytes, signal }: WriteOptions): Promise<WrittenBlob> {
    const upload = join(this.#temporary, randomUUID());
    let placed: PlacedBlob | undefined;
    try {
      const digest = await writeUpload(upload, chunks, { maxBytes, signal });
      const { sha256, size_bytes: sizeBytes } = digest;
      placed = await this.#queue.add(() => this.#place(upload, sha256));
      await syncDirectory(dirname(this.path(sha256)));
      await syncDirectory(this.#blobs);
      await this.#storage.keep({ [storedBlob(sha256)]: digest }, signal);
      return { sha256, sizeBytes, release: placed.release };
    } catch (error) {
      await remove(upload);
      if (placed !== undefined) await this.#discard(placed);
      throw error;
    }
  }

  /** Whether the storage has a blob. */
  has({ sha256, sizeBytes }: Pick<WrittenBlob, "sha256" | "sizeBytes">): Promise<boolean> {
    return this.#storage.has(storedBlob(sha256), { sha256, size_bytes: sizeBytes });
  }

  /**
   * Removes a blob unless an upload of the same content holds it.
   *
   * @param unlessReferenced - Calls `remove` if no row references the blob.
   */
  removeUnreferenced(sha256: string, unlessReferenced: (remove: () => Promise<void>) => Promise<void>): Promise<void> {
    return this.#queue.add(async () => {
      if (!this.#holds.isHeld(sha256)) await unlessReferenced(async () => void (await this.#storage.remove(storedBlob(sha256))));
    });
  }

  /** Yields all entries below the blob directory, including entries not named by a digest. Blobs lie in folders of their digest's start. */
  async *list(): AsyncGenerator<BlobEntry, void> {
    for (const entry of await readdir(this.#blobs, { withFileTypes: true })) {
      const path = join(this.#blobs, entry.name);
      if (!entry.isDirectory()) yield { name: entry.name, path };
      else for (const name of await readdir(path)) yield { name, path: join(path, name) };
    }
  }

  /** Moves a complete upload to the path of its digest. Replaces a blob there, which has the same bytes. Runs in the queue. */
  async #place(upload: string, sha256: string): Promise<PlacedBlob> {
    const path = this.path(sha256);
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const isNew = !(await pathExists(path));
    await rename(upload, path);
    return { sha256, isNew, release: this.#holds.hold(sha256) };
  }

  /** Removes a blob that could not be made permanent, unless it was there before. */
  async #discard({ sha256, isNew, release }: PlacedBlob): Promise<void> {
    release();
    if (isNew) await this.#queue.add(() => (this.#holds.isHeld(sha256) ? Promise.resolve() : remove(this.path(sha256))));
  }
}

/** Writes and syncs the file of an upload, and returns its digest. @throws TooLargeError `E_TOO_LARGE` for more than `maxBytes` */
async function writeUpload(path: string, chunks: AsyncIterable<Uint8Array>, { maxBytes, signal }: WriteOptions): Promise<FileDigest> {
  const hash = createHash("sha256");
  let sizeBytes = 0;
  await closing(await open(path, "wx", 0o600), async (file) => {
    for await (const chunk of chunks) {
      signal?.throwIfAborted();
      sizeBytes += chunk.byteLength;
      if (sizeBytes > maxBytes)
        throw new TooLargeError(`Expected a file of at most ${maxBytes} bytes. Split it, or raise the service's limit`);
      hash.update(chunk);
      await file.writeFile(chunk);
    }
    await file.sync();
  });
  return { sha256: hash.digest("hex"), size_bytes: sizeBytes };
}
