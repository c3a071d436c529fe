/**
 * Directories of running backups below `tmp/` of a data directory. They hold links to files, so that deletions do not affect the backup.
 */
import { randomUUID } from "node:crypto";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import type { DataDirectory } from "../disk/data-directory.ts";
import { remove } from "../disk/files.ts";
import { lockFile } from "../store/connection.ts";

/** Names of the directory and of the lock file of a backup. */
const STAGING = /^(?<name>backup-[0-9a-f-]{36})(?:\.lock)?$/u;

/** Directory of a running backup. */
export interface Staging {
  readonly path: string;
  /** Removes the directory. */
  readonly discard: () => Promise<void>;
}

/** Creates the name of a backup's directory, locked as long as this process runs. Removes what killed backups left. */
export async function openStaging({ temporary }: Pick<DataDirectory, "temporary">): Promise<Staging> {
  await mkdir(temporary, { recursive: true, mode: 0o700 });
  await removeDeadStaging({ temporary });
  for (;;) {
    const path = join(temporary, `backup-${randomUUID()}`);
    const unlock = await lockFile(lockOf(path));
    // Another process is checking whether this backup is alive.
    if (unlock === null) continue;
    return {
      path,
      discard: async () => {
        await remove(path);
        unlock();
        await remove(lockOf(path));
      },
    };
  }
}

/** Removes the directories of backups by ended processes. @returns the names in `tmp/` that running backups use. */
export async function removeDeadStaging({ temporary }: Pick<DataDirectory, "temporary">): Promise<ReadonlySet<string>> {
  const found = (await readdir(temporary).catch(() => [])).map((name) => STAGING.exec(name)?.groups?.["name"]);
  const inUse = new Set<string>();
  for (const name of new Set(found.filter((each) => each !== undefined))) {
    const path = join(temporary, name);
    const unlock = await lockFile(lockOf(path));
    if (unlock === null) {
      inUse.add(name).add(`${name}.lock`);
      continue;
    }
    await remove(path);
    unlock();
    await remove(lockOf(path));
  }
  return inUse;
}

function lockOf(path: string): string {
  return `${path}.lock`;
}
