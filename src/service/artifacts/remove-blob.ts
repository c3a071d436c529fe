/** Removal of blobs without a row, and the check of a blob before the commit of its row; see `store/blob-locks.ts`. */
import { UnavailableError } from "../../base/errors.ts";
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { keepBlob, unlessReferenced } from "../store/blob-locks.ts";
import { isShared } from "../store/database.ts";
import type { Store } from "../store/tables.ts";
import type { BlobStore, WrittenBlob } from "./blob-store.ts";

/** Parts of the service that the removal of a blob needs. */
export interface BlobContext {
  readonly store: Store;
  readonly blobs: BlobStore;
  readonly logger: ServiceLogger;
}

/** Error of {@link requireBlob}. Retryable, like every `UnavailableError`: the client sends the contents again. */
export class BlobRemovedError extends UnavailableError {
  constructor() {
    super("Equal contents were deleted at the same time through another process of the service. Send the request again");
  }
}

/**
 * Checks that no other process has removed a blob since it was written, and keeps other processes from removing it before the end of the
 * transaction, which must insert a row that references the blob. Within this process, the hold of the written blob does the same.
 *
 * @throws BlobRemovedError `E_UNAVAILABLE` if the blob was removed.
 */
export async function requireBlob(
  transaction: Store,
  blobs: Pick<BlobStore, "has">,
  blob: Pick<WrittenBlob, "sha256" | "sizeBytes">,
): Promise<void> {
  if (!isShared(transaction)) return;
  await keepBlob(transaction, blob.sha256);
  if (!(await blobs.has(blob))) throw new BlobRemovedError();
}

/** Removes a blob unless a row references it. Logs a failure; the next start moves the blob to the quarantine. */
export async function removeBlob({ store, blobs, logger }: BlobContext, sha256: string): Promise<void> {
  await blobs
    .removeUnreferenced(sha256, (remove) => unlessReferenced(store, sha256, remove))
    .catch(logFailure(logger, "The contents of an artifact file that is gone could not be removed"));
}
