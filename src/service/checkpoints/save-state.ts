/** Saving of a model's weights and optimizer state to a directory of the data directory. */
import { lstat, mkdir } from "node:fs/promises";
import { relative } from "node:path";
import type { Engine, ModelHandle } from "../../engine/port.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { digestDirectory, toStoredPath, type Digests } from "../disk/digests.ts";
import { remove, renameDurably, temporaryName } from "../disk/files.ts";
import { makePrivate } from "../disk/private-files.ts";
import type { ServiceLogger } from "../common/logger.ts";
import type { Storage } from "../storage/storage.ts";
import { Quarantine } from "../disk/quarantine.ts";

/** Parts of the service needed to save a state. */
export interface SaveContext {
  readonly engine: Engine;
  readonly directory: DataDirectory;
  readonly storage: Pick<Storage, "keep" | "remove">;
  readonly logger: ServiceLogger;
}

/**
 * Saves a model so that `path` is either complete and permanent, or absent. An existing directory at `path` belongs to no row and is moved
 * to the quarantine.
 *
 * @returns the digests of the saved files.
 */
export async function saveDurably(
  { engine, directory, storage, logger }: SaveContext,
  handle: ModelHandle,
  path: string,
  signal?: AbortSignal,
): Promise<Digests> {
  const temporary = temporaryName(path);
  const storedPath = toStoredPath(relative(directory.root, path));
  await mkdir(temporary, { recursive: true, mode: 0o700 });
  try {
    await engine.saveState(handle, temporary, { signal });
    await makePrivate(temporary);
    const digests = await digestDirectory(temporary, storedPath);
    // An earlier attempt may have been interrupted between the rename and the commit of its row.
    const quarantine = new Quarantine(directory, logger);
    await quarantine.add(path);
    quarantine.report();
    await renameDurably(temporary, path);
    await storage.keep(digests, signal);
    return digests;
  } catch (error) {
    // Before the rename, a directory at `path` is one that no row mentions and that could not be moved to the quarantine.
    const isRenamed = (await lstat(temporary).catch(() => null)) === null;
    await remove(temporary);
    if (isRenamed) await storage.remove(storedPath);
    throw error;
  }
}
