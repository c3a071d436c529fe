/** Steps of a start that a full disk must not prevent: the service then serves what it has and refuses what it would have to keep. */
import { isNoSpace } from "../../util/no-space.ts";
import { messageOf } from "../error-text.ts";
import type { ServiceLogger } from "../logger.ts";
import { openStore, shareStore, type OpenStoreOptions } from "../store/database.ts";
import type { Store } from "../store/tables.ts";
import type { DiskSpace } from "./space.ts";

/** Returns a function that runs a step and logs, instead of throwing, that there was no room for what it would have written. */
export function onFullDisk(logger: ServiceLogger): (what: string, step: () => Promise<unknown>) => Promise<void> {
  return async (what, step) => {
    try {
      await step();
    } catch (error) {
      if (!isNoSpace(error)) throw error;
      logger.warn(`The disk is full: ${what} could not be put in order at this start`, { error: messageOf(error) });
    }
  };
}

/** What a wait for disk space needs. */
interface Waiting {
  readonly space: DiskSpace;
  readonly logger: ServiceLogger;
  /** Aborted when the service ends. */
  readonly signal: AbortSignal;
}

/**
 * Opens the database, on a full disk at the price of the reserve, and without that in a way that needs no room.
 *
 * @throws NoSpaceError `E_NO_SPACE` when there is no database yet, or an older one that must be migrated.
 */
export async function openStoreAnyway(
  path: string,
  { whyNotNew, ...waiting }: Waiting & Pick<OpenStoreOptions, "whyNotNew">,
): Promise<Store> {
  const { space, logger } = waiting;
  try {
    return await space.freeing(() => openStore(path, { whyNotNew }));
  } catch (error) {
    if (!isNoSpace(error)) throw error;
    logger.warn("The disk is full: the database is opened for this process alone, and can be read but not changed", {
      error: messageOf(error),
    });
    const store = await openStore(path, { whyNotNew, isExclusive: true });
    void shareOnceThereIsRoom(store, waiting);
    return store;
  }
}

async function shareOnceThereIsRoom(store: Store, { space, logger, signal }: Waiting): Promise<void> {
  for (let failures = 0; ; failures++) {
    await space.untilRoom({ failures, signal });
    if (signal.aborted) return;
    try {
      return await shareStore(store);
    } catch (error) {
      logger.warn("The database could not be opened for other processes yet", { error: messageOf(error) });
    }
  }
}
