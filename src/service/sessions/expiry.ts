/** Deletion of expired sessions. */
import { repeatEvery } from "../common/repeat.ts";
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { deleteExpired } from "../store/sessions.ts";
import type { Store } from "../store/tables.ts";

/** Milliseconds between two cleanups. Requests do not find an expired session, whether or not it is deleted. */
const CLEANUP_MS = 60_000;

/**
 * Deletes expired sessions with their turns, now and every minute.
 *
 * @returns a function that stops the cleanups and waits for a running one.
 */
export function startSessionExpiry({ store, logger }: { readonly store: Store; readonly logger: ServiceLogger }): () => Promise<void> {
  const cleanUp = async (): Promise<void> => {
    const deleted = await deleteExpired(store);
    if (deleted > 0) logger.info("Expired sessions were deleted", { sessions: deleted });
  };
  return repeatEvery(() => cleanUp().catch(logFailure(logger, "Expired sessions could not be deleted")), CLEANUP_MS);
}
