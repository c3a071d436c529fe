/** Daily comparison of an S3 storage with the database: missing files are logged, and what interruptions left is removed. */
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import type { ServiceLimits } from "../common/limits.ts";
import { repeatEvery } from "../common/repeat.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { storedBlob } from "../disk/stored-path.ts";
import { CachedStorage, storedFileKey } from "../storage/cached.ts";
import type { RemoteFile } from "../storage/remote.ts";
import type { Storage } from "../storage/storage.ts";
import { unlessReferenced } from "../store/blob-locks.ts";
import type { Store } from "../store/tables.ts";
import { eachStoredFile, isInStorage, stillReferenced, type StoredFile } from "./inventory.ts";

/** Milliseconds between two rounds. */
const ROUND_MS = 24 * 60 * 60_000;
/** Min age of a file that is removed because no row mentions it: the row of a file that was just stored may not be committed yet. */
const MIN_AGE_MS = 24 * 60 * 60_000;

/** Parts of the service that {@link keepSweeping} needs. */
export interface SweepContext<S = Storage> {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly storage: S;
  readonly limits: Pick<ServiceLimits, "maxQuarantineAgeMs">;
  readonly logger: ServiceLogger;
}

/**
 * Compares an S3 storage with the database, now and every day; see {@link sweepStorage}.
 *
 * @returns a function that stops the comparisons and waits for a running one.
 */
export function keepSweeping(context: SweepContext): () => Promise<void> {
  const { storage, logger } = context;
  if (!(storage instanceof CachedStorage)) return () => Promise.resolve();
  const stopController = new AbortController();
  const round = () =>
    sweepStorage({ ...context, storage }, { signal: stopController.signal }).then(
      () => undefined,
      (error: unknown) => {
        if (!stopController.signal.aborted) logFailure(logger, "The storage could not be compared with the database")(error);
      },
    );
  const stop = repeatEvery(round, ROUND_MS);
  return () => {
    stopController.abort();
    return stop();
  };
}

/** Result of {@link sweepStorage}. */
export interface StorageSweepResult {
  /** Files that the database references and the storage lacks, or has with another size. */
  readonly missing: readonly StoredFile[];
  /** Files that were removed, because no row mentioned them. */
  readonly removed: readonly RemoteFile[];
}

/**
 * Compares the list of an S3 storage with the database. Logs each file that is missing. Removes files that no row mentions, and parts of
 * incomplete uploads, once they are as old as files in the quarantine may become, but at least a day old: they are leftovers of an
 * interruption, but with an older database they may be the only copy.
 *
 * @param options - `nowMs`: time from which ages are counted.
 */
export async function sweepStorage(
  context: SweepContext<CachedStorage>,
  { nowMs = Date.now(), signal }: { readonly nowMs?: number; readonly signal?: AbortSignal } = {},
): Promise<StorageSweepResult> {
  const { storage, limits, logger } = context;
  const { remote } = storage;
  storage.watch();
  const { suspects, unmatched, areRowsComplete } = await compareWithRows(context, signal);
  const missing = await confirmMissing(context, suspects);
  for (const { path, digest, subject } of missing)
    logger.error("A stored file is missing", { path, subject, expected: digest, storage: remote.url });
  const { maxQuarantineAgeMs } = limits;
  // A damaged row may have referenced any file.
  if (!areRowsComplete || maxQuarantineAgeMs === null) return { missing, removed: [] };
  const beforeMs = nowMs - Math.max(MIN_AGE_MS, maxQuarantineAgeMs);
  const old = unmatched.filter(({ modifiedMs }) => modifiedMs < beforeMs);
  const removed = await removeLeftovers(context, old, signal);
  const abandonedUploads = await remote.abandonUploads(beforeMs);
  if (removed.length + abandonedUploads > 0)
    logger.info("Files that the database does not mention were removed from the storage", {
      files: removed.length,
      uploads: abandonedUploads,
    });
  return { missing, removed };
}

/** Result of {@link compareWithRows}. */
interface Comparison {
  /** Files of rows that the list of the storage lacks, or has with another size. */
  readonly suspects: readonly StoredFile[];
  /** Files in the storage without a row. */
  readonly unmatched: readonly RemoteFile[];
  /** Whether all rows could be read. */
  readonly areRowsComplete: boolean;
}

/** Compares the list of the storage with the rows that reference files in it. */
async function compareWithRows(
  { store, directory, storage, logger }: SweepContext<CachedStorage>,
  signal: AbortSignal | undefined,
): Promise<Comparison> {
  const listed = new Map<string, RemoteFile>();
  for await (const file of storage.remote.list("", signal)) listed.set(storedFileKey(file), file);
  const unmatched = new Map(listed);
  const suspects: StoredFile[] = [];
  let areRowsComplete = true;
  const onDamagedRow = (error: Error) => {
    areRowsComplete = false;
    logger.error("Stored files cannot be verified", { error: error.message });
  };
  for await (const file of eachStoredFile(store, directory, { onDamagedRow })) {
    signal?.throwIfAborted();
    if (!isInStorage(file) || file.digest === null) continue;
    const key = storedFileKey({ path: file.path, digest: file.digest });
    if (listed.get(key)?.digest.size_bytes !== file.digest.size_bytes) suspects.push(file);
    unmatched.delete(key);
  }
  return { suspects, unmatched: [...unmatched.values()], areRowsComplete };
}

/** Removes files without a row, unless they were stored again meanwhile. Returns the removed ones. */
async function removeLeftovers(
  { store, storage }: SweepContext<CachedStorage>,
  files: readonly RemoteFile[],
  signal: AbortSignal | undefined,
): Promise<RemoteFile[]> {
  const removed: RemoteFile[] = [];
  for (const file of files) {
    signal?.throwIfAborted();
    const remove = async () => {
      if (await storage.removeLeftover(file)) removed.push(file);
    };
    const isBlob = file.path === storedBlob(file.digest.sha256);
    // An upload of equal contents may be about to commit a row for the blob.
    if (isBlob) await unlessReferenced(store, file.digest.sha256, remove);
    else await remove();
  }
  return removed;
}

/** Returns the suspects that are missing: a suspect may have been stored or deleted since the storage was listed. */
async function confirmMissing(
  { store, directory, storage }: SweepContext<CachedStorage>,
  suspects: readonly StoredFile[],
): Promise<StoredFile[]> {
  const missing: StoredFile[] = [];
  for (const file of suspects) if (file.digest !== null && !(await storage.has(file.path, file.digest))) missing.push(file);
  return stillReferenced(store, directory, missing);
}
