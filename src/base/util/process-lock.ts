/** Lock file that gives a directory to one process at a time. */
import { createHash, randomUUID } from "node:crypto";
import { link, readFile, rename, rm, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { z } from "zod";
import { ConflictError } from "../errors.ts";
import { isMissingFile } from "./file-system-error.ts";

/** Schema of the content of a lock file. */
const ownerSchema = z.object({ pid: z.int(), host: z.string(), id: z.string().optional() });

/** Process that holds a lock file. `id` names the lock; locks of earlier versions have none. */
export type LockOwner = z.infer<typeof ownerSchema>;

/** Ids of the locks that this process holds. Any other lock with this process id is left from an earlier process with the same id. */
const heldIds = new Set<string>();

/** Noun for the locked directory in error messages, and the parameter that names the directory. */
interface LockSubject {
  readonly noun: string;
  readonly param: string;
}

/**
 * Locks a directory for this process with a lock file that names the process. The lock of a dead process is taken over.
 *
 * @param path - Path of the lock file.
 * @returns Function that releases the lock.
 * @throws ConflictError `E_CONFLICT` while another live process, or another user of the directory in this process, holds the lock.
 */
export async function takeLock(path: string, subject: LockSubject): Promise<() => Promise<void>> {
  const id = randomUUID();
  // Written in full under a name of its own, then moved to the name of the lock.
  const candidate = `${path}.${id}`;
  heldIds.add(id);
  try {
    await writeFile(candidate, JSON.stringify({ pid: process.pid, host: hostname(), id }), { flag: "wx" });
    let isTaken = await moveToFree(candidate, path);
    while (!isTaken) isTaken = (await takeOver(candidate, path, subject)) || (await moveToFree(candidate, path));
  } catch (error) {
    heldIds.delete(id);
    throw error;
  } finally {
    await rm(candidate, { force: true });
  }
  return async () => {
    heldIds.delete(id);
    await rm(path, { force: true });
  };
}

/**
 * Returns the process that holds a lock; null if the file does not exist or its process is dead. A process on another host counts as alive.
 *
 * @param path - Path of the lock file, also by a symbolic link.
 */
export async function lockOwner(path: string): Promise<LockOwner | null> {
  const text = await readLock(path).catch(() => null);
  return text === null ? null : aliveOwner(text);
}

/** Gives a complete lock file its final name. Returns false if a file of this name exists. */
async function moveToFree(candidate: string, path: string): Promise<boolean> {
  try {
    // Unlike a file that is created and then written, a link is never seen incomplete by another process.
    await link(candidate, path);
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    if (isMissingFile(error)) throw error;
  }
  // Some file systems have no hard links.
  try {
    await writeFile(path, await readFile(candidate), { flag: "wx" });
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw error;
  }
}

/**
 * Replaces the lock of a dead process. Returns false if the lock has changed meanwhile.
 *
 * Several processes may find the same dead lock. The one that holds the lock for taking over exactly this content replaces it, if the content
 * is still there; a process that is late finds the lock of the first one and leaves it alone.
 *
 * @throws ConflictError `E_CONFLICT` if the process is alive, or another one is taking over.
 */
async function takeOver(candidate: string, path: string, subject: LockSubject): Promise<boolean> {
  const text = await readLock(path);
  if (text === null) return false;
  const currentOwner = aliveOwner(text);
  if (currentOwner !== null) {
    const { noun, param } = subject;
    throw new ConflictError(
      `The ${noun} is in use by process ${currentOwner.pid} on ${currentOwner.host}. Wait for it, stop it, or choose another \`${param}\`; if it is surely gone, delete ${path}`,
      { param },
    );
  }
  const release = await takeLock(`${path}.${createHash("sha256").update(text).digest("hex").slice(0, 16)}`, subject);
  try {
    if ((await readLock(path)) !== text) return false;
    await rename(candidate, path);
    return true;
  } finally {
    await release();
  }
}

/** Returns the text of a lock file; null if the file does not exist. */
function readLock(path: string): Promise<string | null> {
  return readFile(path, "utf8").catch((error: unknown) => {
    if (isMissingFile(error)) return null;
    throw error;
  });
}

/** Returns the process that the text of a lock file names; null if it names no process. */
function parseLockOwner(text: string): LockOwner | null {
  try {
    return ownerSchema.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

/** Whether a process of this machine is alive. */
function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: the process is alive and belongs to another user.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** Returns the process that the text of a lock file names; null if it names no process, or one that is dead. */
function aliveOwner(text: string): LockOwner | null {
  const owner = parseLockOwner(text);
  if (owner === null || owner.host !== hostname()) return owner;
  const isAlive = owner.pid === process.pid ? owner.id !== undefined && heldIds.has(owner.id) : isProcessAlive(owner.pid);
  return isAlive ? owner : null;
}

/** Returns the code of a system error, such as `ENOENT`. */
function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}
