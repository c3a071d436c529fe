/** Interface of storages outside of the data directory; `s3/bucket.ts` implements it. */
import type { FileDigest } from "../disk/digests.ts";

/** File in a storage outside of the data directory. */
export interface RemoteFile {
  /** Path relative to the data directory, with `/` as the separator. */
  readonly path: string;
  readonly digest: FileDigest;
  /** Time at which the file was stored, in milliseconds since 1970. */
  readonly modifiedMs: number;
}

/**
 * Storage outside of the data directory. It holds files by path and digest: two files with the same path and other bytes exist next to each
 * other.
 *
 * Every method throws StorageError `E_UNAVAILABLE` if the storage does not answer or rejects the request.
 */
export interface Remote {
  /** URL without credentials. */
  readonly url: string;
  /** Secrets that must not be logged. */
  readonly secrets: readonly (string | undefined)[];
  /** Stores the bytes of the file `source`. After success they are durable. Has no effect if they are stored already. */
  put(path: string, digest: FileDigest, source: string, signal?: AbortSignal): Promise<void>;
  /**
   * Writes a stored file to the new file `target`, and verifies it.
   *
   * @returns false if there is no such file.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` for other bytes than were stored.
   */
  get(path: string, digest: FileDigest, target: string, signal?: AbortSignal): Promise<boolean>;
  /** Yields the stored files at or below a path. @param path - Path of a file or a directory. @default all files */
  list(path?: string, signal?: AbortSignal): AsyncIterable<RemoteFile>;
  /** Removes a stored file, if it exists. */
  remove(path: string, digest: FileDigest, signal?: AbortSignal): Promise<void>;
  /** Removes the parts of incomplete uploads that began before a time, in milliseconds since 1970. @returns the number of uploads. */
  abandonUploads(beforeMs: number): Promise<number>;
  /** Checks the access by writing, reading and deleting an object. */
  probe(): Promise<void>;
  /** Returns the text of {@link writeMark}; null without one. */
  readMark(): Promise<string | null>;
  /** Stores a text that identifies the storage; see `open-storage.ts`. */
  writeMark(text: string): Promise<void>;
  /** Closes the connections. Requests in progress fail. */
  close(): Promise<void>;
}
