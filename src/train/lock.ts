import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { z } from "zod";
import { ConflictError } from "../errors.ts";

const owner = z.looseObject({ pid: z.int(), host: z.string() });

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
  const text = await readFile(path, "utf8").catch(() => null);
  if (text === null) return;
  const other = readOwner(text);
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

function readOwner(text: string): z.infer<typeof owner> | null {
  try {
    return owner.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

function isAlive(pid: number, path: string): boolean {
  if (pid === process.pid) return held.has(path);
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: the process is alive and belongs to another user.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
