/** Copying of files for backup and restore, and the directory that they fill: it becomes visible as a whole. */
import { mkdir, readdir, rename } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { Readable } from "node:stream";
import { ConfigError } from "../../base/errors.ts";
import { openRegularFile } from "../../base/util/regular-file.ts";
import { piecesOf, writeDigested, type FileDigest } from "../disk/digests.ts";
import { messageOf } from "../../base/util/values.ts";
import { closing, isTemporaryName, remove, syncDirectory, temporaryName } from "../disk/files.ts";
import { lockFile } from "../store/connection.ts";
import { UnknownOutcomeError } from "../store/database-errors.ts";
import { BACKUP_NAMES, DATABASE, MANIFEST } from "./manifest.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/** Result of a backup or a restore. */
export interface CopyResult {
  /** Absolute path of the directory that was written. */
  readonly directory: string;
  readonly files: number;
  readonly bytes: number;
  /** Postgres database that got the records: its name and server; absent if they are in the directory. */
  readonly database?: string;
}

/**
 * Copies a regular file durably, creating its directory. Returns the digest of the copied bytes.
 *
 * @param root - Directory that the file must lie in, also after following links.
 * @param storedPath - Path of the file, relative to `root`, and of the copy, relative to `target`.
 * @throws DataError `E_DATA` for a link that leads out of `root`, and for a directory, FIFO, socket or device.
 */
export async function copyFileDurably(root: string, storedPath: string, target: string): Promise<FileDigest> {
  const to = join(target, storedPath);
  return closing(await openRegularFile(join(root, storedPath), root), async (file) => {
    await mkdir(dirname(to), { recursive: true, mode: 0o700 });
    return writeDigested(Readable.from(piecesOf(file), { objectMode: false }), to, { flush: true });
  });
}

/** Files that identify a directory as a backup or a data directory. They get their final names last. */
const IDENTIFYING_FILES = [DATABASE, MANIFEST];
/** Base of the temporary name under which a directory is filled. */
const INCOMPLETE_NAME = "incomplete";
/** Lock file of the process that fills a directory. */
const LOCK_NAME = `${INCOMPLETE_NAME}.lock`;

/** Options of {@link fillDirectory}. */
export interface FillOptions {
  /** Parameter that names the directory, for errors. */
  readonly param: string;
  /**
   * Commits the data of the directory that are elsewhere, such as records in Postgres. Must call `publish`, which gives the files their
   * final names, before the commit: an interruption in between leaves a directory that the next attempt fills again.
   *
   * @default publishes
   */
  readonly commit?: ((temporary: string, publish: () => Promise<void>) => Promise<void>) | undefined;
  /** Whether only `commit` needs a file. Such files stay in the temporary directory, which is removed at the end. @default none */
  readonly isScratch?: ((name: string) => boolean) | undefined;
}

/**
 * Fills a directory so that an interruption leaves neither a backup nor a data directory at `target`. Removes the remains of an interrupted
 * attempt at `target`.
 *
 * Steps: `fill` writes the files to a temporary directory inside of `target`, all of them are synchronized with the disk, `publish` moves them
 * to `target`, the database and the manifest last, and the temporary directory is removed.
 *
 * @throws ConfigError `E_CONFIG` if `target` exists and is not an empty directory, or another process is filling it.
 */
export async function fillDirectory<T>(
  target: string,
  { param, commit = (_, publish) => publish(), isScratch = () => false }: FillOptions,
  fill: (temporary: string) => Promise<T>,
): Promise<T> {
  const path = resolve(target);
  await requireDirectory(path, param);
  const createdRoot = await mkdir(path, { recursive: true, mode: 0o700 });
  // Checked before the lock file is created, and again once no other process fills the directory.
  await requireFree(path, param);
  const lock = join(path, LOCK_NAME);
  const unlock = await lockFile(lock);
  if (unlock === null) {
    throw new ConfigError(`Another backup or restore is writing to '${path}'. Wait for its end, or name another directory`, { param });
  }
  // Created inside the target, which may be a separate file system.
  const temporary = temporaryName(join(path, INCOMPLETE_NAME));
  const progress = { isPublished: false, isCommitted: false };
  const publish = async () => {
    progress.isPublished = true;
    const names = (await readdir(temporary)).filter((name) => !isScratch(name));
    await moveFiles(names, { from: temporary, to: path });
  };
  try {
    await requireFree(path, param);
    await removeInterrupted(path);
    await mkdir(temporary, { mode: 0o700 });
    const result = await fill(temporary);
    await syncFolders(temporary);
    await commit(temporary, publish);
    progress.isCommitted = true;
    await remove(temporary);
    unlock();
    await remove(lock);
    return result;
  } catch (error) {
    // A directory that may be committed stays: both a service and the next attempt accept it as it is.
    const mayBeCommitted = progress.isCommitted || error instanceof UnknownOutcomeError;
    if (!mayBeCommitted) {
      if (progress.isPublished) for (const name of BACKUP_NAMES) await remove(join(path, name));
      await remove(temporary);
    }
    unlock();
    await remove(lock);
    // `mkdir` has returned the outermost directory that it created.
    if (createdRoot !== undefined && !mayBeCommitted) await remove(createdRoot);
    throw error;
  }
}

/** Flushes the entries of all directories below a directory to disk. */
async function syncFolders(path: string): Promise<void> {
  for (const entry of await readdir(path, { recursive: true, withFileTypes: true })) {
    if (entry.isDirectory()) await syncDirectory(join(entry.parentPath, entry.name));
  }
}

/** Moves files and directories durably to another directory of the same file system, {@link IDENTIFYING_FILES} last. */
async function moveFiles(names: readonly string[], { from, to }: { readonly from: string; readonly to: string }): Promise<void> {
  const isIdentifying = (name: string) => IDENTIFYING_FILES.includes(name);
  for (const name of names.filter((each) => !isIdentifying(each))) await rename(join(from, name), join(to, name));
  await syncDirectory(to);
  for (const name of IDENTIFYING_FILES.filter((each) => names.includes(each))) await rename(join(from, name), join(to, name));
  await syncDirectory(to);
  await syncDirectory(dirname(to));
}

/** Checks that a path is a directory or does not exist. @throws ConfigError `E_CONFIG` otherwise. */
async function requireDirectory(path: string, param: string): Promise<void> {
  try {
    await readdir(path);
  } catch (cause) {
    if (isMissingFile(cause)) return;
    throw new ConfigError(`Expected '${path}' to be a directory: ${messageOf(cause)}`, { cause, param });
  }
}

/** Whether a name is the temporary name of a directory that is being filled. */
function isIncomplete(name: string): boolean {
  return name.startsWith(`${INCOMPLETE_NAME}.`) && isTemporaryName(name);
}

/** Checks that a directory has no entries except remains of an interrupted {@link fillDirectory}. */
async function requireFree(path: string, param: string): Promise<void> {
  const names = (await readdir(path)).filter((name) => name !== LOCK_NAME);
  const otherNames = names.filter((name) => !isIncomplete(name));
  if (otherNames.length === 0) return;
  const unpublished = await Promise.all(names.filter(isIncomplete).map((name) => readdir(join(path, name))));
  // An interruption while files get their final names leaves files with final and with temporary names. Without a file with a temporary
  // name, the directory is complete.
  if (unpublished.flat().length > 0 && otherNames.every((name) => BACKUP_NAMES.includes(name))) return;
  throw new ConfigError(`Expected '${path}' to be empty or not to exist, found ${names.length} entries. Name another directory`, { param });
}

/** Removes the remains of an interrupted {@link fillDirectory} from its directory. */
async function removeInterrupted(path: string): Promise<void> {
  for (const name of await readdir(path)) if (isIncomplete(name) || BACKUP_NAMES.includes(name)) await remove(join(path, name));
}
