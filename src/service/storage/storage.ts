/** Interface of the storage of a service's files; `folder.ts` and `cached.ts` implement it. */
import type { Digests, FileDigest } from "../disk/digests.ts";
import type { Verifier } from "../disk/verifier.ts";
import type { Remote } from "./remote.ts";

/**
 * Permanent place of a service's files. Files have a path relative to the data directory, with `/` as the separator, at which they are
 * written and read: the data directory is the storage, or holds copies of its files.
 *
 * A file is written to the data directory, kept, and then recorded in the database with its digest. Before it is read, it is provided. It
 * is removed once no row mentions it.
 */
export interface Storage {
  /** Storage outside of the data directory; null if the data directory is the storage. */
  readonly remote: Remote | null;
  /** Verifier of the files in the data directory. */
  readonly verifier: Verifier;
  /** Prepares the files that an earlier process left in the data directory. Call it once, after the recovery. */
  open(): Promise<void>;
  /**
   * Makes files of the data directory permanent: afterwards the rows that record their digests may be committed.
   *
   * @throws StorageError `E_UNAVAILABLE` if the storage does not accept a file.
   */
  keep(files: Digests, signal?: AbortSignal): Promise<void>;
  /** Whether the storage has a file. */
  has(path: string, digest: FileDigest): Promise<boolean>;
  /**
   * Makes sure that files are in the data directory and match their digests, until the returned function is called.
   *
   * @param subjectOf - Returns the name of a file for error messages.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that is missing or differs.
   * @throws StorageError `E_UNAVAILABLE` if the storage does not answer.
   */
  provide(files: Digests, subjectOf: (path: string) => string): Promise<() => void>;
  /**
   * Removes a file, or a directory as a whole: readers never find a part of it. A missing path is not an error.
   *
   * @returns whether there was something to remove.
   */
  remove(path: string): Promise<boolean>;
  close(): Promise<void>;
}
