/** Start of the service on a full disk. The service then serves existing data and rejects requests that would have to store data. */
import { isNoSpace } from "../../base/util/no-space.ts";
import { messageOf } from "../../base/util/values.ts";
import type { ServiceLogger } from "../common/logger.ts";
import { openStore, shareStore, type OpenStoreOptions } from "./sqlite.ts";
import type { Store } from "./tables.ts";
import type { DiskSpace } from "../disk/space.ts";

/** Creates a function that runs a step of the start and logs, instead of throws, an error caused by a full disk. The log names the `subject`. */
export function onFullDisk(logger: ServiceLogger): (subject: string, step: () => Promise<unknown>) => Promise<void> {
  return async (subject, step) => {
    try {
      await step();
    } catch (error) {
      if (!isNoSpace(error)) throw error;
      logger.warn(`The disk is full: ${subject} could not be put in order at this start`, { error: messageOf(error) });
    }
  };
}

/** Parts of the service that the wait for disk space needs. */
export interface SpaceWait {
  readonly space: DiskSpace;
  readonly logger: ServiceLogger;
  /** Signal that aborts on shutdown. */
  readonly signal: AbortSignal;
}

/**
 * Opens the database. On a full disk, releases the reserve, and if that is not enough, opens the database in a mode that needs no disk
 * space.
 *
 * @throws NoSpaceError `E_NO_SPACE` on a full disk if the database does not exist yet, or must be migrated.
 */
export async function openStoreAnyway(
  path: string,
  { whyNotNew, ...wait }: SpaceWait & Pick<OpenStoreOptions, "whyNotNew">,
): Promise<Store> {
  const { space, logger } = wait;
  try {
    return await space.freeing(() => openStore(path, { whyNotNew }));
  } catch (error) {
    if (!isNoSpace(error)) throw error;
    logger.warn("The disk is full: the database is opened for this process alone, and can be read but not changed", {
      error: messageOf(error),
    });
    const store = await openStore(path, { whyNotNew, isExclusive: true });
    void shareStoreWhenSpaceAllows(store, wait);
    return store;
  }
}

/** Opens the database for other processes once there is disk space. Never rejects. */
async function shareStoreWhenSpaceAllows(store: Store, { space, logger, signal }: SpaceWait): Promise<void> {
  for (let failures = 0; ; failures++) {
    await space.waitForSpace({ failures, signal });
    if (signal.aborted) return;
    try {
      return await shareStore(store);
    } catch (error) {
      logger.warn("The database could not be opened for other processes yet", { error: messageOf(error) });
    }
  }
}
