/** Storage outside of the data directory, with the data directory as its cache. */
import { randomUUID } from "node:crypto";
import { mkdir, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import PQueue from "p-queue";
import { DataCorruptedError } from "../../base/errors.ts";
import type { ServiceLogger } from "../common/logger.ts";
import { messageOf } from "../../base/util/values.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import type { Digests, FileDigest } from "../disk/digests.ts";
import { removeWhole } from "../disk/files.ts";
import type { Verifier } from "../disk/verifier.ts";
import { LocalCopies } from "./local-copies.ts";
import type { Remote, RemoteFile } from "./remote.ts";
import type { Storage } from "./storage.ts";

/** Max files that are stored or fetched at one time. */
const MAX_TRANSFERS = 8;
/** Max milliseconds of a removal. `sweepStorage` removes the remaining files later. */
const MAX_REMOVAL_MS = 15_000;

/** Options of {@link CachedStorage}. */
export interface CachedStorageOptions {
  readonly remote: Remote;
  readonly directory: DataDirectory;
  readonly verifier: Verifier;
  /** Max bytes of copies in the data directory. */
  readonly maxBytes: number;
  readonly logger: ServiceLogger;
}

/** Storage of files in a {@link Remote}. The data directory holds copies of the files that were used last. */
export class CachedStorage implements Storage {
  readonly remote: Remote;
  readonly verifier: Verifier;
  readonly #directory: DataDirectory;
  readonly #logger: ServiceLogger;
  readonly #copies: LocalCopies;
  readonly #transfers = new PQueue({ concurrency: MAX_TRANSFERS });
  /** Downloads in progress by {@link storedFileKey}, shared by all readers. */
  readonly #downloads = new Map<string, Promise<void>>();
  /** Keys of files that were stored since the last {@link CachedStorage.watch}; see {@link storedFileKey}. */
  readonly #storedKeys = new Set<string>();
  /** Removals of leftovers in progress, by {@link storedFileKey}. They never reject. */
  readonly #removals = new Map<string, Promise<void>>();

  constructor({ remote, directory, verifier, maxBytes, logger }: CachedStorageOptions) {
    this.remote = remote;
    this.verifier = verifier;
    this.#directory = directory;
    this.#logger = logger;
    this.#copies = new LocalCopies(directory, maxBytes);
  }

  /** Bytes of copies in the data directory. */
  get cachedBytes(): number {
    return this.#copies.bytes;
  }

  open(): Promise<void> {
    return this.#copies.scan();
  }

  async keep(files: Digests, signal?: AbortSignal): Promise<void> {
    const { root } = this.#directory;
    const put = async ([path, digest]: [string, FileDigest]) => {
      signal?.throwIfAborted();
      const key = storedFileKey({ path, digest });
      this.#storedKeys.add(key);
      await this.#removals.get(key);
      await this.remote.put(path, digest, join(root, path), signal);
      await this.#copies.add(path, digest.size_bytes);
    };
    await waitForAll(Object.entries(files).map((entry) => this.#transfers.add(() => put(entry))));
  }

  async has(path: string, { sha256, size_bytes: bytes }: FileDigest): Promise<boolean> {
    for await (const { digest } of this.remote.list(path)) if (digest.sha256 === sha256 && digest.size_bytes === bytes) return true;
    return false;
  }

  async provide(files: Digests, subjectOf: (path: string) => string): Promise<() => void> {
    // Held before the first look at a copy, so that the copy is not removed in between.
    const releases = Object.keys(files).map((path) => this.#copies.hold(path));
    const release = () => {
      // The list becomes empty, so that a second call has no effect.
      for (const releaseCopy of releases.splice(0)) releaseCopy();
    };
    try {
      await waitForAll(Object.entries(files).map(([path, digest]) => this.#provide(path, digest, subjectOf(path))));
      return release;
    } catch (error) {
      release();
      throw error;
    }
  }

  async remove(path: string): Promise<boolean> {
    this.#copies.forget(path);
    let hasRemoved = await removeWhole(join(this.#directory.root, path), this.#directory.temporary);
    try {
      const signal = AbortSignal.timeout(MAX_REMOVAL_MS);
      for await (const file of this.remote.list(path, signal)) {
        hasRemoved = true;
        await this.remote.remove(file.path, file.digest, signal);
      }
    } catch (error) {
      this.#logger.warn("A deleted file could not be removed from the storage; the daily verification removes it later", {
        path,
        error: messageOf(error),
      });
    }
    return hasRemoved;
  }

  /** Protects files that are stored from now on against {@link removeLeftover}. Call it before the storage is listed. */
  watch(): void {
    this.#storedKeys.clear();
  }

  /**
   * Removes a file that no row mentions, unless this process has stored it again since {@link watch}.
   *
   * @returns whether it was removed.
   */
  async removeLeftover(file: RemoteFile): Promise<boolean> {
    const key = storedFileKey(file);
    if (this.#storedKeys.has(key)) return false;
    const removal = this.remote.remove(file.path, file.digest).finally(() => this.#removals.delete(key));
    // A failure concerns only the caller, and not `keep`, which waits for the removal.
    this.#removals.set(
      key,
      removal.catch(() => undefined),
    );
    await removal;
    return true;
  }

  async close(): Promise<void> {
    await this.remote.close();
  }

  /** Makes sure that an intact copy of a file is in the data directory. */
  async #provide(path: string, digest: FileDigest, subject: string): Promise<void> {
    const place = { root: this.#directory.root, storedPath: path };
    if (this.#copies.use(path)) {
      if (await this.verifier.isIntact(place, digest)) return;
      this.#logger.warn("A copy of a stored file is damaged or missing; it is fetched again", { path });
    }
    const key = storedFileKey({ path, digest });
    let download = this.#downloads.get(key);
    if (download === undefined) {
      download = this.#transfers.add(() => this.#download(path, digest, subject)).finally(() => this.#downloads.delete(key));
      this.#downloads.set(key, download);
    }
    await download;
  }

  /** Fetches and verifies a file. @throws DataCorruptedError `E_DATA_CORRUPTED` if the storage has no such file. */
  async #download(path: string, digest: FileDigest, subject: string): Promise<void> {
    const { root, temporary } = this.#directory;
    const target = join(temporary, randomUUID());
    if (!(await this.remote.get(path, digest, target))) {
      this.#logger.error("A stored file is missing", { path, storage: this.remote.url, expected: digest });
      throw new DataCorruptedError(
        `${subject} is damaged: the storage has no such file. Restore it from a backup, or delete what needs it`,
      );
    }
    await mkdir(dirname(join(root, path)), { recursive: true, mode: 0o700 });
    await rename(target, join(root, path));
    await this.verifier.record({ root, storedPath: path }, digest);
    await this.#copies.add(path, digest.size_bytes);
  }
}

/** Returns the key of a file among all stored files. */
export function storedFileKey({ path, digest }: Pick<RemoteFile, "path" | "digest">): string {
  return `${path}/${digest.sha256}`;
}

/** Waits for all promises, also after a failure. @throws the first error. */
async function waitForAll(promises: readonly Promise<void>[]): Promise<void> {
  const failed = (await Promise.allSettled(promises)).find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}
