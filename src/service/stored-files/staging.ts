/**
 * Directories of running backups below `tmp/` of a data directory. They hold links to files, so that deletions do not affect the backup.
 */
import { randomUUID } from "node:crypto";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import type { DataDirectory } from "../disk/data-directory.ts";
import { remove } from "../disk/files.ts";
import { lockFile } from "../store/connection.ts";

/** Names of the directory and of the lock file of a backup; `name` is the name of the directory. */
const STAGING_NAME = /^(?<name>backup-[0-9a-f-]{36})(?:\.lock)?$/u;

/** Directory of a running backup. */
export interface Staging {
  readonly path: string;
  /** Removes the directory. */
  readonly discard: () => Promise<void>;
}

/**
 * Reserves the directory of a backup, which the caller creates: its lock is held until {@link Staging.discard}, or the end of the process.
 * Removes the directories of killed backups.
 */
export async function openStaging({ temporary }: Pick<DataDirectory, "temporary">): Promise<Staging> {
  await mkdir(temporary, { recursive: true, mode: 0o700 });
  await removeDeadStaging({ temporary });
  for (;;) {
    const path = join(temporary, `backup-${randomUUID()}`);
    const unlock = await lockFile(lockPath(path));
    // Another process holds the lock for a moment, to check whether this backup is alive.
    if (unlock === null) continue;
    return {
      path,
      discard: async () => {
        await remove(path);
        unlock();
        await remove(lockPath(path));
      },
    };
  }
}

/** Removes the directories of backups by ended processes. @returns the names in `tmp/` that running backups use. */
export async function removeDeadStaging({ temporary }: Pick<DataDirectory, "temporary">): Promise<ReadonlySet<string>> {
  const entries = await readdir(temporary).catch(() => []);
  const names = entries.map((entry) => STAGING_NAME.exec(entry)?.groups?.["name"]).filter((name) => name !== undefined);
  const inUse = new Set<string>();
  for (const name of new Set(names)) {
    const path = join(temporary, name);
    const unlock = await lockFile(lockPath(path));
    if (unlock === null) {
      inUse.add(name).add(`${name}.lock`);
      continue;
    }
    await remove(path);
    unlock();
    await remove(lockPath(path));
  }
  return inUse;
}

/** Returns the path of the lock file of a backup's directory. */
function lockPath(path: string): string {
  return `${path}.lock`;
}
