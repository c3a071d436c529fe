import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { isBlobReferenced } from "../store/artifacts.ts";
import type { Store } from "../store/tables.ts";
import type { BlobStore } from "./blob-store.ts";

/** Parts of the service that the removal of a blob needs. */
export interface BlobContext {
  readonly store: Store;
  readonly blobs: BlobStore;
  readonly logger: ServiceLogger;
}

/** Removes a blob that no artifact file references. Logs a failure; the next start moves the blob to the quarantine. */
export async function removeBlob({ store, blobs, logger }: BlobContext, sha256: string): Promise<void> {
  await blobs
    .removeUnreferenced(sha256, () => isBlobReferenced(store, sha256))
    .catch(logFailure(logger, "The contents of an artifact file that is gone could not be removed"));
}
