/**
 * Backup of a data directory, also while a service runs on it.
 *
 * A file that the database references is first secured against deletion: linked into a staging directory, or fetched from an S3 storage. Once
 * all files of one snapshot of the database are secured, the linked files are copied. If a file is gone before it is secured, the database is
 * read again (a reading).
 */
import { copyFile, link, mkdir, readdir, stat } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { ConfigError, DataCorruptedError, DataError } from "../../base/errors.ts";
import { dataDirectoryAt, type DataDirectory } from "../disk/data-directory.ts";
import { remove, syncFile, writeDurably } from "../disk/files.ts";
import { INCOMPLETE } from "../hub/incomplete.ts";
import { forgetStorage } from "../store/storage-location.ts";
import type { Store } from "../store/tables.ts";
import type { Remote } from "../storage/remote.ts";
import { openRegularFile } from "../../base/util/regular-file.ts";
import { digestFile, toStoredPath, type FileDigest } from "../disk/digests.ts";
import { copyFileDurably, fillDirectory, type CopyResult } from "./copying.ts";
import { eachStoredFile, HUB, isInStorage, type StoredFile } from "./inventory.ts";
import { DATABASE, FORMAT, KEY_FILE, MANIFEST } from "./manifest.ts";
import { recordedRemote, type RemoteOptions } from "./open-storage.ts";
import { recordsOf, type RecordsOptions, type Records } from "./records.ts";
import { openStaging } from "./staging.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/** Max number of times a backup reads the database before it gives up. Each reading captures only the files that are not copied yet. */
const MAX_READINGS = 1000;
/**
 * Number of readings in which the database must reference a nonexistent file before the file counts as missing. One reading is not enough:
 * contents may be deleted, uploaded and deleted again meanwhile.
 */
const MAX_MISSES = 5;

/** Rows per query of the tables that reference files. */
const ROWS_PER_QUERY = 1000;

/** Digests collected so far. */
type CopiedDigests = Record<string, FileDigest>;

/**
 * Backs up a data directory, consistently even while a service runs on it: the copy has a snapshot of the database and every file that it
 * references, verified against its digest. Base models cached in the directory are copied, too. The copy has a SQLite database, also if the
 * records are in Postgres.
 *
 * The snapshot of the database is taken first. The service deletes a row before its files, so a file that is already gone means that the
 * database has changed and must be read again. Files are captured by hard links, which is fast, and copied from the links.
 *
 * The files of an S3 storage are fetched from it: the backup is complete without the storage.
 *
 * @param root - Data directory to back up.
 * @param target - Directory to create: empty or nonexistent, and outside the data directory.
 * @param options - `storage`: URL of the storage. @default the one that the database records. `database`: address of a Postgres database
 *   with the records. @default the SQLite database of the data directory
 * @returns the absolute path of the backup, and its number of files and bytes.
 * @throws ConfigError `E_CONFIG` for an unsuitable directory or database.
 * @throws UnavailableError `E_UNAVAILABLE` if the Postgres server cannot be reached.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` naming every missing or damaged file; nothing is left at `target`.
 */
export async function backUp(root: string, target: string, { storage, database = null }: RecordsOptions = {}): Promise<CopyResult> {
  const directory = dataDirectoryAt(root);
  if (!relative(directory.root, resolve(target)).startsWith("..")) {
    throw new ConfigError(`Expected a directory outside of the data directory '${directory.root}', got '${target}'`, {
      param: "directory",
    });
  }
  const records = await recordsOf(directory, database);
  return fillDirectory(target, { param: "directory" }, async (temporary) => {
    const files: CopiedDigests = await copyStored(records, { directory, target: temporary, storage });
    for (const storedPath of await hubFiles(directory)) {
      // Files of base models with recorded digests are among the stored files.
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

/** Running copy of stored files. */
interface Copy {
  readonly directory: DataDirectory;
  /** Storage of the files; null = the data directory. */
  readonly remote: Remote | null;
  /** Directory of the links to captured files. */
  readonly staging: string;
  /** Directory of the backup. */
  readonly target: string;
  /** Paths of the files in `staging`. */
  readonly captured: Set<string>;
  /** Digests of the files in `target`. */
  readonly copied: CopiedDigests;
  /** Number of readings in which a referenced file did not exist, by path. */
  readonly misses: Map<string, number>;
}

/** Options of {@link copyStored}. */
interface CopyOptions extends RemoteOptions {
  readonly directory: DataDirectory;
  readonly target: string;
}

/** Copies the database and the files that it references. @returns the digests of all copies. */
async function copyStored(records: Records, { directory, target, storage }: CopyOptions): Promise<CopiedDigests> {
  const { path: staging, discard } = await openStaging(directory);
  const database = join(target, DATABASE);
  let remote: Remote | null = null;
  try {
    remote = await records.withStore((store) => recordedRemote(store, storage));
    const copy: Copy = { directory, remote, staging, target, captured: new Set(), copied: {}, misses: new Map() };
    // Secures most files without a snapshot, so that the first snapshot lasts only a short time.
    await records.withStore((store) => secureFiles(copy, store));
    for (let reading = 0; reading < MAX_READINGS; reading++) {
      const files = await copySnapshot(copy, records, database);
      if (files === null) continue;
      await removeUnneeded(copy, files);
      // In the backup, the files of a storage are in the directory.
      if (remote !== null) await forgetStorage(database);
      await syncFile(database);
      return { ...copy.copied, [DATABASE]: await digestFile(database) };
    }
    throw new ConfigError("The data directory changed faster than it could be copied. Try again while less is deleted");
  } finally {
    await remote?.close();
    await discard();
  }
}

/**
 * Writes a snapshot of the database to `database`, and copies all files that the snapshot references.
 *
 * @returns the files by path; null if one was deleted meanwhile, so that another snapshot is needed.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that did not exist in {@link MAX_MISSES} readings.
 */
async function copySnapshot(copy: Copy, records: Records, database: string): Promise<ReadonlyMap<string, StoredFile> | null> {
  const { misses } = copy;
  // Written by the reading before.
  await remove(database);
  const { files, gone } = await records.withSnapshot(database, async ({ store, write }) => {
    const secured = await secureFiles(copy, store);
    // Files are secured before the rows are written, which may take long.
    if (secured.gone.length === 0) await write();
    return secured;
  });
  for (const { path: storedPath } of gone) misses.set(storedPath, (misses.get(storedPath) ?? 0) + 1);
  const lost = gone.filter(({ path: storedPath }) => (misses.get(storedPath) ?? 0) >= MAX_MISSES);
  if (lost.length > 0) throw damagedError(lost, "missing");
  if (gone.length > 0) return null;
  return (await copyCaptured(copy, files)) ? files : null;
}

/** Removes copies that an earlier reading needed, and that are not among `files`. */
async function removeUnneeded({ target, copied }: Copy, files: ReadonlyMap<string, StoredFile>): Promise<void> {
  const unneeded = Object.keys(copied).filter((storedPath) => !files.has(storedPath));
  for (const storedPath of unneeded) {
    await remove(join(target, storedPath));
    delete copied[storedPath];
  }
}

/** Secures every file that the database references. Returns all of these files by path, and those among them that do not exist. */
async function secureFiles(
  copy: Copy,
  store: Store,
): Promise<{ readonly files: ReadonlyMap<string, StoredFile>; readonly gone: readonly StoredFile[] }> {
  const files = new Map<string, StoredFile>();
  const gone: StoredFile[] = [];
  for await (const file of eachStoredFile(store, copy.directory, { pageRows: ROWS_PER_QUERY })) {
    if (files.has(file.path)) continue;
    files.set(file.path, file);
    const isSecured = copy.captured.has(file.path) || Object.hasOwn(copy.copied, file.path);
    if (!isSecured && !(await secure(copy, file))) gone.push(file);
  }
  return { files, gone };
}

/** Fetches or links a file, so that its deletion does not affect the backup. @returns false if it does not exist. */
function secure(copy: Copy, file: StoredFile): Promise<boolean> {
  return copy.remote !== null && isInStorage(file) ? fetchFile(copy, copy.remote, file) : capture(copy, file);
}

/** Fetches a file of a storage. @returns false if it does not exist. */
async function fetchFile({ target, copied }: Copy, remote: Remote, file: StoredFile): Promise<boolean> {
  // A file without a digest cannot be in a storage.
  if (file.digest === null) throw damagedError([file], "missing");
  const to = join(target, file.path);
  await mkdir(dirname(to), { recursive: true, mode: 0o700 });
  const isThere = await remote.get(file.path, file.digest, to).catch((error: unknown) => {
    throw error instanceof DataCorruptedError ? damagedError([file], "damaged") : error;
  });
  if (!isThere) return false;
  await syncFile(to);
  copied[file.path] = file.digest;
  return true;
}

/** Links a file of the data directory. @returns false if it does not exist. */
async function capture({ directory, staging, captured }: Copy, file: StoredFile): Promise<boolean> {
  const from = join(directory.root, file.path);
  const to = join(staging, file.path);
  await mkdir(dirname(to), { recursive: true, mode: 0o700 });
  try {
    // Checks the file: a symbolic link could lead out of the data directory.
    await (await openRegularFile(from, directory.root)).close();
    await link(from, to).catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") throw error;
      // The file system has no hard links.
      return copyFile(from, to);
    });
  } catch (error) {
    if (error instanceof DataError) throw damagedError([file], "damaged");
    if (!isMissingFile(error)) throw error;
    return false;
  }
  captured.add(file.path);
  return true;
}

/**
 * Copies the captured files among `files` to the backup, and adds them to `copied`.
 *
 * @returns false if a captured file is gone.
 */
async function copyCaptured({ staging, target, captured, copied }: Copy, files: ReadonlyMap<string, StoredFile>): Promise<boolean> {
  const different: StoredFile[] = [];
  for (const file of files.values()) {
    const { path: storedPath, digest } = file;
    if (Object.hasOwn(copied, storedPath)) continue;
    try {
      const copiedDigest = await copyFileDurably(staging, storedPath, target);
      copied[storedPath] = copiedDigest;
      if (digest !== null && (copiedDigest.sha256 !== digest.sha256 || copiedDigest.size_bytes !== digest.size_bytes)) different.push(file);
    } catch (error) {
      if (!isMissingFile(error)) throw error;
      await remove(join(target, storedPath));
      captured.delete(storedPath);
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

/**
 * Lists the files of the cached base models. The files of revisions (`refs/`) come first and are copied first: the files of the commit that
 * a copied revision names are complete then.
 */
async function hubFiles(directory: DataDirectory): Promise<string[]> {
  const path = join(directory.root, HUB);
  const names = await readdir(path, { recursive: true }).catch(() => []);
  const storedPaths: string[] = [];
  for (const name of names) {
    if (!INCOMPLETE.test(name) && (await isFile(join(path, name)))) storedPaths.push(`${HUB}/${toStoredPath(name)}`);
  }
  const isRevision = (storedPath: string) => storedPath.split("/")[2] === "refs";
  return [...storedPaths.filter(isRevision), ...storedPaths.filter((storedPath) => !isRevision(storedPath))];
}

/** Whether a path is a file; also follows links. */
function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (stats) => stats.isFile(),
    () => false,
  );
}
