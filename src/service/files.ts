import { randomUUID } from "node:crypto";
import { open, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isNoSpace } from "../util/no-space.ts";

/** Returns a name for a file or directory that is not complete yet. A start removes files that an interruption left under such a name. */
export function temporaryName(path: string): string {
  return `${path}.tmp-${randomUUID()}`;
}

/** Whether {@link temporaryName} made the name. */
export function isTemporaryName(name: string): boolean {
  return /\.tmp-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/u.test(name);
}

/** Makes the entries of a directory durable: a rename is on disk only after this. */
export async function syncDirectory(path: string): Promise<void> {
  // Windows cannot open a directory; its file system journals the rename itself.
  if (process.platform === "win32") return;
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/** Writes a file that is either complete or absent, also after a power cut. Replaces what was there. */
export async function writeDurably(
  path: string,
  contents: string | Uint8Array,
  { mode = 0o600 }: { readonly mode?: number | undefined } = {},
): Promise<void> {
  const temporary = temporaryName(path);
  try {
    const file = await open(temporary, "wx", mode);
    try {
      await file.writeFile(contents);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}

/** Gives a written and synced directory its final name, durably. */
export async function renameDurably(from: string, to: string): Promise<void> {
  await syncDirectory(from);
  await rename(from, to);
  await syncDirectory(dirname(to));
}

/** Removes a file or a whole directory; what is not there is fine. */
export async function remove(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true });
}

/**
 * Removes a directory that others may be reading. It leaves its place whole, so that nobody finds a part of it there.
 *
 * @param temporary - Where it is taken apart: a directory on the same file system that is emptied at start.
 */
export async function removeWhole(path: string, temporary: string): Promise<void> {
  const aside = join(temporary, randomUUID());
  try {
    await rename(path, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
    if (!isNoSpace(error)) throw error;
    // On a full disk there may be no room for the new name.
    return remove(path);
  }
  await remove(aside);
}
