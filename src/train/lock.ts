import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { z } from "zod";
import { ConflictError } from "../errors.ts";

const owner = z.looseObject({ pid: z.int(), host: z.string() });

/** Locks this process holds: a file that names our own process id but is not among them is left over from a process that had it before. */
const held = new Set<string>();

/**
 * Takes a directory for this process by a lock file that names it. A lock whose process is gone is taken over.
 *
 * @returns Gives it back.
 * @throws ConflictError `E_CONFLICT` while another live process, or another run of this one, has it.
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
  // Renaming succeeds for one of several that come at once; the others find the file gone or a new one.
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
    // Somebody else's process answers EPERM, and lives.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
