/** Backup of a data directory. */
import { copyFile, link, mkdir, readdir, stat } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { ConfigError, DataCorruptedError, DataError } from "../../base/errors.ts";
import { dataDirectoryAt, type DataDirectory } from "../disk/data-directory.ts";
import { remove, syncFile, writeDurably } from "../disk/files.ts";
import { INCOMPLETE } from "../hub/incomplete.ts";
import { copyDatabase, openStoreReadOnly, requireDatabase } from "../store/sqlite.ts";
import { forgetStorage } from "../store/storage-location.ts";
import type { Store } from "../store/tables.ts";
import type { Remote } from "../storage/remote.ts";
import { openRegularFile } from "../../base/util/regular-file.ts";
import { digestFile, toStoredPath, type FileDigest } from "../disk/digests.ts";
import { copyFileDurably, fillDirectory, type CopyResult } from "./copying.ts";
import { HUB, isInStorage, storedFiles, type StoredFile } from "./inventory.ts";
import { DATABASE, FORMAT, KEY_FILE, MANIFEST } from "./manifest.ts";
import { recordedRemote, type RemoteOptions } from "./open-storage.ts";
import { openStaging } from "./staging.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/** Max number of times a backup reads the database before it gives up. Each reading captures only the files that are not copied yet. */
const MAX_READINGS = 1000;
/**
 * Number of readings in which the database must reference a nonexistent file before the file counts as missing. One reading is not enough:
 * contents may be deleted, uploaded and deleted again meanwhile.
 */
const MAX_MISSES = 5;

/** Digests collected so far. */
type CopiedDigests = Record<string, FileDigest>;

/**
 * Backs up a data directory, consistently even while a service runs on it: the copy has a snapshot of the database and every file that it
 * references, verified against its digest. Base models cached in the directory are copied, too.
 *
 * The database is copied first. The service deletes a row before its files, so a file that is already gone means that the database has
 * changed and must be read again. Files are captured by hard links, which is fast, and copied from the links.
 *
 * The files of an S3 storage are fetched from it: the backup is complete without the storage.
 *
 * @param root - Data directory to back up.
 * @param target - Directory to create: empty or nonexistent, and outside the data directory.
 * @param options - `storage`: URL of the storage. @default the one that the database records
 * @returns the absolute path of the backup, and its number of files and bytes.
 * @throws ConfigError `E_CONFIG` for an unsuitable directory.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` naming every missing or damaged file; nothing is left at `target`.
 */
export async function backUp(root: string, target: string, options: RemoteOptions = {}): Promise<CopyResult> {
  const directory = dataDirectoryAt(root);
  if (!relative(directory.root, resolve(target)).startsWith("..")) {
    throw new ConfigError(`Expected a directory outside of the data directory '${directory.root}', got '${target}'`, {
      param: "directory",
    });
  }
  await requireDatabase(directory.database);
  return fillDirectory(target, "directory", async (temporary) => {
    const files: CopiedDigests = await copyStored(directory, temporary, options);
    for (const storedPath of await hubFiles(directory)) {
      if (Object.hasOwn(files, storedPath)) continue;
      files[storedPath] = await copyFileDurably(directory.root, storedPath, temporary);
    }
    if (await isFile(directory.keyFile)) files[KEY_FILE] = await copyFileDurably(directory.root, KEY_FILE, temporary);
    const manifest = { format: FORMAT, created_at: new Date().toISOString(), files };
    await writeDurably(join(temporary, MANIFEST), `${JSON.stringify(manifest, null, 1)}\n`);
    const bytes = Object.values(files).reduce((sum, digest) => sum + digest.size_bytes, 0);
    return { directory: resolve(target), files: Object.keys(files).length, bytes };
  });
}

/** Copies the database and the files that it references. */
async function copyStored(directory: DataDirectory, target: string, { storage }: RemoteOptions): Promise<CopiedDigests> {
  const { path: staging, discard } = await openStaging(directory);
  const remote = await withDatabase(directory.database, (store) => recordedRemote(store, storage));
  const database = join(target, DATABASE);
  const copied: CopiedDigests = {};
  const misses = new Map<string, number>();
  try {
    for (let reading = 0; reading < MAX_READINGS; reading++) {
      await remove(database);
      await copyDatabase(directory.database, database);
      const files = await withDatabase(database, (store) => storedFiles(store, directory));
      const missing = () => [...files.values()].filter(({ path: storedPath }) => !Object.hasOwn(copied, storedPath));
      const fetched = remote === null ? [] : await fetchFiles(remote, missing().filter(isInStorage), { target, copied });
      const remaining = missing().filter((file) => remote === null || !isInStorage(file));
      const gone = [...fetched, ...(await capture(directory, staging, remaining))];
      for (const { path: storedPath } of gone) misses.set(storedPath, (misses.get(storedPath) ?? 0) + 1);
      const lost = gone.filter(({ path: storedPath }) => (misses.get(storedPath) ?? 0) >= MAX_MISSES);
      if (lost.length > 0) throw damagedError(lost, "missing");
      if (gone.length > 0 || !(await copyCaptured(staging, target, remaining, copied))) continue;
      const unneeded = Object.keys(copied).filter((storedPath) => !files.has(storedPath));
      for (const storedPath of unneeded) {
        await remove(join(target, storedPath));
        delete copied[storedPath];
      }
      // The files of the backup are in its directory.
      if (remote !== null) await forgetStorage(database);
      await syncFile(database);
      return { ...copied, [DATABASE]: await digestFile(database) };
    }
    throw new ConfigError("The data directory changed faster than it could be copied. Try again while less is deleted");
  } finally {
    await remote?.close();
    await discard();
  }
}

/** Calls `use` with a database that is opened read-only. */
async function withDatabase<T>(database: string, use: (store: Store) => Promise<T>): Promise<T> {
  const store = await openStoreReadOnly(database);
  try {
    return await use(store);
  } finally {
    await store.destroy();
  }
}

/** Fetches files of a storage into `target`, and adds them to `copied`. Returns the files that do not exist. */
async function fetchFiles(
  remote: Remote,
  files: readonly StoredFile[],
  { target, copied }: { readonly target: string; readonly copied: CopiedDigests },
): Promise<StoredFile[]> {
  const gone: StoredFile[] = [];
  for (const file of files) {
    // A file without a digest cannot be in a storage.
    if (file.digest === null) throw damagedError([file], "missing");
    const to = join(target, file.path);
    await mkdir(dirname(to), { recursive: true, mode: 0o700 });
    const isThere = await remote.get(file.path, file.digest, to).catch((error: unknown) => {
      throw error instanceof DataCorruptedError ? damagedError([file], "damaged") : error;
    });
    if (isThere) {
      await syncFile(to);
      copied[file.path] = file.digest;
    } else gone.push(file);
  }
  return gone;
}

/** Links files into `staging`, so that deletions do not affect the backup. Returns the files that do not exist. */
async function capture(directory: DataDirectory, staging: string, files: readonly StoredFile[]): Promise<StoredFile[]> {
  const gone: StoredFile[] = [];
  for (const file of files) {
    const [from, to] = [join(directory.root, file.path), join(staging, file.path)];
    await mkdir(dirname(to), { recursive: true, mode: 0o700 });
    try {
      // A link would lead out of the data directory.
      await (await openRegularFile(from, directory.root)).close();
      await link(from, to).catch((error: NodeJS.ErrnoException) => {
        if (error.code === "EEXIST") return;
        if (error.code === "ENOENT") throw error;
        // The file system has no hard links.
        return copyFile(from, to);
      });
    } catch (error) {
      if (error instanceof DataError) throw damagedError([file], "damaged");
      if (!isMissingFile(error)) throw error;
      gone.push(file);
    }
  }
  return gone;
}

/**
 * Copies captured files and adds them to `copied`.
 *
 * @returns false if a captured file is gone.
 */
async function copyCaptured(staging: string, target: string, files: readonly StoredFile[], copied: CopiedDigests): Promise<boolean> {
  const different: StoredFile[] = [];
  for (const file of files) {
    const { path: storedPath, digest } = file;
    try {
      const found = await copyFileDurably(staging, storedPath, target);
      copied[storedPath] = found;
      if (digest !== null && (found.sha256 !== digest.sha256 || found.size_bytes !== digest.size_bytes)) different.push(file);
    } catch (error) {
      if (!isMissingFile(error)) throw error;
      await remove(join(target, storedPath));
      return false;
    }
  }
  if (different.length > 0) throw damagedError(different, "damaged");
  return true;
}

/** Returns the error for files that are missing or damaged. */
function damagedError(files: readonly StoredFile[], state: string): DataCorruptedError {
  const list = files.map(({ path: storedPath, subject }) => `${storedPath} (${subject})`).join(", ");
  return new DataCorruptedError(
    `The data directory cannot be backed up, because files are ${state}: ${list}. Delete the objects that need them, or restore the files`,
  );
}

/** Lists the files of the cached base models. Revisions come first, so that the files they name are complete when a revision is copied. */
async function hubFiles(directory: DataDirectory): Promise<string[]> {
  const path = join(directory.root, HUB);
  const names = await readdir(path, { recursive: true }).catch(() => []);
  const places: string[] = [];
  for (const name of names) if (!INCOMPLETE.test(name) && (await isFile(join(path, name)))) places.push(`${HUB}/${toStoredPath(name)}`);
  const isRevision = (storedPath: string) => storedPath.split("/")[2] === "refs";
  return [...places.filter(isRevision), ...places.filter((storedPath) => !isRevision(storedPath))];
}

function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (stats) => stats.isFile(),
    () => false,
  );
}
