import type { ServiceContext } from "../context.ts";
import { messageOf } from "../error-text.ts";
import { isBlobReferenced } from "../store/artifacts.ts";

/** Removes a blob that no artifact file references. Logs a failure; the next start moves the blob to the quarantine. */
export async function removeBlob(
  { store, blobs, logger }: Pick<ServiceContext, "store" | "blobs" | "logger">,
  sha256: string,
): Promise<void> {
  await blobs
    .removeUnreferenced(sha256, () => isBlobReferenced(store, sha256))
    .catch((error: unknown) =>
      logger.warn("The contents of an artifact file that is gone could not be removed", { error: messageOf(error) }),
    );
}
