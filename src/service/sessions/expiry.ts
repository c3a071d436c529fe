/** Deletion of expired sessions. */
import { messageOf } from "../../base/util/values.ts";
import type { ServiceLogger } from "../common/logger.ts";
import { deleteExpired } from "../store/sessions.ts";
import type { Store } from "../store/tables.ts";

/** Milliseconds between two cleanups. Expired sessions are invisible at once. */
const LOOK_MS = 60_000;

/**
 * Deletes expired sessions with their turns, now and every minute.
 *
 * @returns a function that stops the cleanups and waits for a running one.
 */
export function keepSessions({ store, logger }: { readonly store: Store; readonly logger: ServiceLogger }): () => Promise<void> {
  const look = async (): Promise<void> => {
    try {
      const deleted = await deleteExpired(store);
      if (deleted > 0) logger.info("Expired sessions were deleted", { sessions: deleted });
    } catch (error) {
      logger.warn("Expired sessions could not be deleted", { error: messageOf(error) });
    }
  };
  let looking = look();
  const timer = setInterval(() => {
    looking = looking.then(look);
  }, LOOK_MS).unref();
  return async () => {
    clearInterval(timer);
    await looking;
  };
}
