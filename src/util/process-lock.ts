import { access, rename, rm, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { ConflictError } from "../errors.ts";
import { isProcessAlive, type LockOwner, readLockOwner } from "./lock-owner.ts";

/** Paths of the locks that this process holds. A lock file with this process id that is not in the set is from an earlier process. */
const held = new Set<string>();

/**
 * Locks a directory for this process with a lock file that names the process. The lock of a dead process is taken over.
 *
 * @param path - Path of the lock file.
 * @param subject - Noun for the directory in the error message, and the parameter that names the directory.
 * @returns Function that releases the lock.
 * @throws ConflictError `E_CONFLICT` while another live process, or another user of the directory in this process, holds the lock.
 */
export async function takeLock(path: string, subject: { readonly noun: string; readonly param: string }): Promise<() => Promise<void>> {
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
    await removeStale(path, subject);
  }
}

/**
 * Returns the process that holds a lock; null if the file does not exist or its process is dead. A process on another host counts as alive.
 *
 * @param path - Absolute path of the lock file.
 */
export async function lockOwner(path: string): Promise<LockOwner | null> {
  const owner = await readLockOwner(path);
  return owner !== null && (owner.host !== hostname() || isAlive(owner.pid, path)) ? owner : null;
}

async function removeStale(path: string, { noun, param }: { readonly noun: string; readonly param: string }): Promise<void> {
  const isThere = await access(path).then(
    () => true,
    () => false,
  );
  if (!isThere) return;
  const other = await lockOwner(path);
  if (other !== null) {
    throw new ConflictError(
      `The ${noun} is in use by process ${other.pid} on ${other.host}. Wait for it, stop it, or choose another \`${param}\`; if it is surely gone, delete ${path}`,
      { param },
    );
  }
  // Of several concurrent renames of the same file only one succeeds.
  await rename(path, `${path}.${process.pid}.stale`).catch(() => undefined);
  await rm(`${path}.${process.pid}.stale`, { force: true });
}

function isAlive(pid: number, path: string): boolean {
  return pid === process.pid ? held.has(path) : isProcessAlive(pid);
}
