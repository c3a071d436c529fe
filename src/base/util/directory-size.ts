/** Size of a directory on disk. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";

/** Returns the sum of the sizes of all files in a directory and below, in bytes. Files that disappear meanwhile are not counted. */
export async function directorySize(path: string): Promise<number> {
  const entries = await readdir(path, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  const sizes = await Promise.all(
    files.map(({ parentPath, name }) =>
      stat(join(parentPath, name))
        .then(({ size }) => size)
        .catch(() => 0),
    ),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}
