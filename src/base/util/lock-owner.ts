import { readFile } from "node:fs/promises";
import { z } from "zod";

const owner = z.looseObject({ pid: z.int(), host: z.string() });

/** Process that holds a lock file. */
export type LockOwner = z.infer<typeof owner>;

/** Returns the process that a lock file names; null if the file does not exist or names no process. */
export async function readLockOwner(path: string): Promise<LockOwner | null> {
  try {
    return owner.safeParse(JSON.parse(await readFile(path, "utf8"))).data ?? null;
  } catch {
    return null;
  }
}

/** Whether a process of this machine is alive. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: the process is alive and belongs to another user.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
