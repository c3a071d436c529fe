/** Durable changes of files and directories: complete or absent, even after a power failure. */
import { randomUUID } from "node:crypto";
import { open, rename, rm, stat, type FileHandle } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isNoSpace } from "../../base/util/no-space.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/**
 * Returns a name for a file or directory that is not complete yet. The next start removes files that an interruption left under such a
 * name.
 */
export function temporaryName(path: string): string {
  return `${path}.tmp-${randomUUID()}`;
}

/** Whether {@link temporaryName} created the name. */
export function isTemporaryName(name: string): boolean {
  return /\.tmp-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/u.test(name);
}

/** Flushes the entries of a directory to disk. A rename is durable only after this call. */
export async function syncDirectory(path: string): Promise<void> {
  // Windows cannot open a directory; its file system journals renames.
  if (process.platform !== "win32") await closing(await open(path, "r"), (directory) => directory.sync());
}

/** Flushes the contents of a file to disk. */
export async function syncFile(path: string): Promise<void> {
  await closing(await open(path, "r+"), (file) => file.sync());
}

/** Calls `use` with an open file, closes the file in any case, and returns the result. */
export async function closing<T>(file: FileHandle, use: (file: FileHandle) => Promise<T>): Promise<T> {
  try {
    return await use(file);
  } finally {
    await file.close();
  }
}

/** Returns the size of a file in bytes; 0 for a missing or inaccessible file. */
export function sizeOf(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    () => 0,
  );
}

/**
 * Writes a file that is either complete or absent, even after a power failure. Replaces an existing file.
 *
 * @param contents - Text, bytes, or bytes in pieces, which are written one after the other.
 */
export async function writeDurably(
  path: string,
  contents: string | Uint8Array | Iterable<Uint8Array>,
  { mode = 0o600 }: { readonly mode?: number | undefined } = {},
): Promise<void> {
  const temporary = temporaryName(path);
  try {
    await closing(await open(temporary, "wx", mode), async (file) => {
      const pieces = typeof contents === "string" || contents instanceof Uint8Array ? [contents] : contents;
      for (const piece of pieces) await file.writeFile(piece);
      await file.sync();
    });
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}

/** Renames a written and synced directory durably to its final name. */
export async function renameDurably(from: string, to: string): Promise<void> {
  await syncDirectory(from);
  await rename(from, to);
  await syncDirectory(dirname(to));
}

/** Removes a file or a directory with its contents. A missing path is not an error. */
export async function remove(path: string): Promise<void> {
  // Retries if another process creates an entry in the directory meanwhile.
  await rm(path, { recursive: true, force: true, maxRetries: 3 });
}

/**
 * Removes a file or a directory that may be in use. First renames it as a whole, so that no reader finds a partial directory under its
 * path.
 *
 * @param temporary - Directory on the same file system to which `path` is renamed. The service empties it at start.
 * @returns false for a missing path.
 */
export async function removeWhole(path: string, temporary: string): Promise<boolean> {
  const movedPath = join(temporary, randomUUID());
  try {
    await rename(path, movedPath);
  } catch (error) {
    if (isMissingFile(error)) return false;
    if (!isNoSpace(error)) throw error;
    // A full disk may have no room for the new directory entry.
    await remove(path);
    return true;
  }
  await remove(movedPath);
  return true;
}
