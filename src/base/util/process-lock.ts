/** Lock file that gives a directory to one process at a time. */

import { realpath, rename, rm, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { basename, dirname, join } from "node:path";
import { ConflictError } from "../errors.ts";
import { isProcessAlive, type LockOwner, readLockOwner } from "./lock-owner.ts";
import { pathExists } from "./file-system-error.ts";

/**
 * Real paths of the locks that this process holds. Any other lock file with this process id is left from an earlier process with the same
 * id.
 */
const heldLocks = new Set<string>();

/**
 * Locks a directory for this process with a lock file that names the process. The lock of a dead process is taken over.
 *
 * @param path - Path of the lock file.
 * @param subject - Noun for the directory in the error message, and the parameter that names the directory.
 * @returns Function that releases the lock.
 * @throws ConflictError `E_CONFLICT` while another live process, or another user of the directory in this process, holds the lock.
 */
export async function takeLock(path: string, subject: { readonly noun: string; readonly param: string }): Promise<() => Promise<void>> {
  const real = await realPath(path);
  const text = JSON.stringify({ pid: process.pid, host: hostname() });
  for (;;) {
    try {
      await writeFile(path, text, { flag: "wx" });
      heldLocks.add(real);
      return async () => {
        heldLocks.delete(real);
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
 * @param path - Path of the lock file, also by a symbolic link.
 */
export async function lockOwner(path: string): Promise<LockOwner | null> {
  const owner = await readLockOwner(path);
  return owner !== null && (owner.host !== hostname() || (await isAlive(owner.pid, path))) ? owner : null;
}

/** Removes a lock file whose process is dead. @throws ConflictError `E_CONFLICT` if the process is alive. */
async function removeStale(path: string, { noun, param }: { readonly noun: string; readonly param: string }): Promise<void> {
  if (!(await pathExists(path))) return;
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

async function isAlive(pid: number, path: string): Promise<boolean> {
  return pid === process.pid ? heldLocks.has(await realPath(path)) : isProcessAlive(pid);
}

/** Returns the path with the symbolic links of its directory resolved; the file need not exist. */
async function realPath(path: string): Promise<string> {
  return join(await realpath(dirname(path)), basename(path));
}
