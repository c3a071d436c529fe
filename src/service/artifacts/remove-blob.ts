/**
 * Rows and removals of blobs. Several processes of a Postgres database may store and remove equal contents at the same time: a transaction
 * that inserts a row for a blob and a removal lock the digest, so that no committed row lacks its blob.
 */
import { UnavailableError } from "../../base/errors.ts";
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { isBlobReferenced } from "../store/artifacts.ts";
import { isShared, lockName, transactLocking } from "../store/database.ts";
import type { Store } from "../store/tables.ts";
import type { BlobStore, WrittenBlob } from "./blob-store.ts";

/** Parts of the service that the removal of a blob needs. */
export interface BlobContext {
  readonly store: Store;
  readonly blobs: BlobStore;
  readonly logger: ServiceLogger;
}

/** Error of {@link requireBlob}. Always retryable. */
export class BlobRemovedError extends UnavailableError {
  constructor() {
    super("Equal contents were deleted at the same time through another process of the service. Send the request again");
  }
}

const lockOf = (sha256: string) => `blob ${sha256}`;

/**
 * Checks that no other process has removed a blob since it was written. None removes it before the end of the transaction, which inserts a
 * row that references the blob.
 *
 * @throws BlobRemovedError `E_UNAVAILABLE` if it was removed.
 */
export async function requireBlob(
  transaction: Store,
  blobs: Pick<BlobStore, "has">,
  blob: Pick<WrittenBlob, "sha256" | "sizeBytes">,
): Promise<void> {
  if (!isShared(transaction)) return;
  await lockName(transaction, lockOf(blob.sha256), { isShared: true });
  if (!(await blobs.has(blob))) throw new BlobRemovedError();
}

/** Calls `remove` if no row references a blob, and no other process is about to commit such a row. */
export async function unlessReferenced(store: Store, sha256: string, remove: () => Promise<void>): Promise<void> {
  if (await isBlobReferenced(store, sha256)) return;
  if (!isShared(store)) return remove();
  await transactLocking(store, async (transaction) => {
    await lockName(transaction, lockOf(sha256), { isShared: false });
    if (!(await isBlobReferenced(transaction, sha256))) await remove();
  });
}

/** Removes a blob that no artifact file references. Logs a failure; the next start moves the blob to the quarantine. */
export async function removeBlob({ store, blobs, logger }: BlobContext, sha256: string): Promise<void> {
  await blobs
    .removeUnreferenced(sha256, (remove) => unlessReferenced(store, sha256, remove))
    .catch(logFailure(logger, "The contents of an artifact file that is gone could not be removed"));
}
