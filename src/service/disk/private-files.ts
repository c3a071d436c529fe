/** Permissions of the data directory: only its owner can read, write or list anything in it. */
import { chmod, lstat, open, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { ConfigError } from "../../base/errors.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { messageOf } from "../../base/util/values.ts";

/** Bits of a mode that give permissions to the group and to others. */
const GROUP_AND_OTHERS = 0o077;

/** Removes the permissions of the group and of others from a file, or from a directory with everything in it. Links are not followed. */
export async function makePrivate(path: string): Promise<void> {
  // Windows has no permission bits.
  if (process.platform === "win32") return;
  const stats = await lstat(path).catch(() => null);
  if (stats === null || stats.isSymbolicLink()) return;
  if ((stats.mode & GROUP_AND_OTHERS) !== 0) await chmod(path, stats.mode & 0o700);
  if (stats.isDirectory()) for (const name of await readdir(path)) await makePrivate(join(path, name));
}

/**
 * Creates an empty file that only its owner can read, unless the file exists. SQLite would create it with the permissions of the process.
 *
 * @throws ConfigError `E_CONFIG` if the path is a directory, FIFO, socket or device, or cannot be written.
 */
export async function createPrivateFile(path: string): Promise<void> {
  try {
    const stats = await stat(path).catch(() => null);
    if (stats !== null && !stats.isFile()) throw new Error("it is a directory, FIFO, socket or device");
    await (await open(path, "a", 0o600)).close();
  } catch (cause) {
    if (isNoSpace(cause)) throw cause;
    throw new ConfigError(
      `Expected '${path}' to be a regular file that this process can write: ${messageOf(cause)}. Move away what has its place, or make the file system and the directory writable`,
      { cause, param: "dataDir" },
    );
  }
}

/**
 * Removes the permissions of the group and of others from a data directory and from the files that an earlier version wrote with them.
 *
 * @param root - Data directory.
 * @param names - Files and directories in it that belong to the service.
 * @throws ConfigError `E_CONFIG` if the directory grants permissions to others and this process may not change them.
 */
export async function tightenDataDirectory(root: string, names: readonly string[]): Promise<void> {
  if (process.platform === "win32") return;
  const { mode } = await stat(root);
  const isAccessibleToOthers = (mode & GROUP_AND_OTHERS) !== 0;
  const database = await stat(join(root, "whetstone.db")).catch(() => null);
  // Earlier versions created the database with the permissions of the process.
  if (!isAccessibleToOthers && (database === null || (database.mode & GROUP_AND_OTHERS) === 0)) return;
  try {
    if (isAccessibleToOthers) await chmod(root, mode & 0o700);
    for (const name of names) await makePrivate(join(root, name));
  } catch (cause) {
    throw new ConfigError(
      `Expected the data directory '${root}' to be accessible to its owner only (mode 0700), got mode ${(mode & 0o777).toString(8).padStart(4, "0")}, which this process may not change. Run the service as the owner of the directory, or choose a directory of its own inside of it`,
      { cause, param: "dataDir" },
    );
  }
}
