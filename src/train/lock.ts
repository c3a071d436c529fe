import { rename, rm, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { ConflictError } from "../errors.ts";
import { isProcessAlive, readLockOwner } from "../util/lock-owner.ts";

/** Paths of the locks that this process holds. A lock file with this process id that is not in the set is from an earlier process. */
const held = new Set<string>();

/**
 * Locks a run directory for this process with a lock file that names the process. The lock of a dead process is taken over.
 *
 * @param path - Path of the lock file.
 * @returns Function that releases the lock.
 * @throws ConflictError `E_CONFLICT` while another live process, or another run of this process, holds the lock.
 */
export async function takeLock(path: string): Promise<() => Promise<void>> {
  const text = JSON.stringify({ pid: process.pid, host: hostname() });
  for (;;) {
    try {
      await writeFile(path, text, { flag: "wx" });
      held.add(path);
      return async () => {
        held.delete(path);
        await rm(path, { force: true });
      };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
    await removeStale(path);
  }
}

async function removeStale(path: string): Promise<void> {
  const other = await readLockOwner(path);
  if (other !== null && (other.host !== hostname() || isAlive(other.pid, path))) {
    throw new ConflictError(
      `The run directory is in use by process ${other.pid} on ${other.host}. Wait for it, stop it, or choose another \`runDir\`; if it is surely gone, delete ${path}`,
      { param: "runDir" },
    );
  }
  // Of several concurrent renames of the same file only one succeeds.
  await rename(path, `${path}.${process.pid}.stale`).catch(() => undefined);
  await rm(`${path}.${process.pid}.stale`, { force: true });
}

function isAlive(pid: number, path: string): boolean {
  return pid === process.pid ? held.has(path) : isProcessAlive(pid);
}
