/** Restore of a data directory from a backup. */
import { join, resolve } from "node:path";
import { DataCorruptedError, DataError } from "../../base/errors.ts";
import { dataDirectoryAt } from "../disk/data-directory.ts";
import type { Digests } from "../disk/digests.ts";
import { remove, syncFile } from "../disk/files.ts";
import { storedJob, storedReport, storedState } from "../disk/stored-path.ts";
import type { Remote } from "../storage/remote.ts";
import { markSnapshot, openStoreReadOnly, openStore } from "../store/sqlite.ts";
import type { Store } from "../store/tables.ts";
import { copyFileDurably, fillDirectory, type CopyResult, type FillOptions } from "./copying.ts";
import { isInStorage, storedFiles } from "./inventory.ts";
import { DATABASE, MANIFEST, readManifest } from "./manifest.ts";
import { markStorage, openRemote, recordStorage, requireUnused } from "./open-storage.ts";

/** Options of {@link restore}. */
export interface RestoreOptions {
  /** URL of an unused S3 storage, which gets the files, too. @default none: the data directory is the storage */
  readonly storage?: string | undefined;
  /** Address of an empty Postgres database or schema, which gets the records; null = a SQLite file in the data directory. @default null */
  readonly database?: string | null | undefined;
}

/**
 * Restores a data directory from a backup, and optionally its records into Postgres. Every file is verified while it is copied, against the
 * manifest and against the database of the backup, which must not reference any other file. Nothing outside of the backup is read, also not
 * through links. The records are committed last: after an error or an interruption, the Postgres database is empty as before.
 *
 * @param backup - Directory written by {@link backUp}.
 * @param target - Data directory to create: empty or nonexistent.
 * @returns the absolute path of the data directory, and its number of files and bytes.
 * @throws ConfigError `E_CONFIG` if `backup` is not a backup, or has a newer format, or `target` is not empty, for a storage that cannot
 *   be used or belongs to a database, and for a Postgres database that cannot be used or has tables.
 * @throws UnavailableError `E_UNAVAILABLE` if the Postgres server cannot be reached.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` naming every missing or damaged file of the backup, and for a record that Postgres cannot
 *   store; nothing is left at `target`.
 */
export async function restore(backup: string, target: string, { storage, database = null }: RestoreOptions = {}): Promise<CopyResult> {
  const files = await readManifest(backup);
  // Checked before the remains of an earlier attempt are removed, which may have been committed.
  const postgres = database === null ? null : await openEmptyPostgres(database);
  if (storage === undefined) return restoreFolder({ backup, target, files }, postgres);
  const remote = await openRemote(storage);
  try {
    await requireUnused(remote);
    let storageId = "";
    const result = await restoreFolder({ backup, target, files }, postgres, async (root) => {
      storageId = await storeFiles(root, files, remote);
    });
    await markStorage(remote, storageId);
    return result;
  } finally {
    await remote.close();
  }
}

/** Postgres database that gets records. */
interface Destination {
  /** Name of the database and server, without a password. */
  readonly where: string;
  /** Copies the records of a SQLite database of this version, calls `beforeCommit`, and commits. */
  readonly fill: (path: string, beforeCommit: () => Promise<void>) => Promise<void>;
}

/** Checks that a Postgres database is empty. @throws ConfigError `E_CONFIG` otherwise. */
async function openEmptyPostgres(url: string): Promise<Destination> {
  // Loaded only for records in Postgres.
  const { copyToPostgres, requireEmptyPostgres } = await import("../store/copy/to-postgres.ts");
  const where = await requireEmptyPostgres(url);
  return { where, fill: (path, beforeCommit) => copyToPostgres(path, { url, beforeCommit }) };
}

/** Backup to restore. */
interface Restoration {
  readonly backup: string;
  readonly target: string;
  /** Digests of the manifest. */
  readonly files: Digests;
}

/**
 * Creates the data directory.
 *
 * @param postgres - Database that gets the records; null = a SQLite file in the directory.
 * @param beforePublished - Called with the complete directory before it gets its final name.
 */
async function restoreFolder(
  { backup, target, files }: Restoration,
  postgres: Destination | null,
  beforePublished: (root: string) => Promise<void> = () => Promise.resolve(),
): Promise<CopyResult> {
  return fillDirectory(target, fillOptions(postgres), async (temporary) => {
    const bytes = await copyFiles(backup, files, temporary);
    await beforePublished(temporary);
    const result = { directory: resolve(target), files: Object.keys(files).length, bytes };
    if (postgres === null) return result;
    // Brings the tables to this version.
    await (await openStore(join(temporary, DATABASE))).destroy();
    return { ...result, database: postgres.where };
  });
}

/** Returns how the data directory is committed: together with the records in Postgres, or alone. */
function fillOptions(postgres: Destination | null): FillOptions {
  const param = "dataDir";
  if (postgres === null) return { param };
  return {
    param,
    commit: (temporary, publish) => postgres.fill(join(temporary, DATABASE), publish),
    // The database and the files that SQLite keeps next to it.
    isScratch: (name) => name.startsWith(DATABASE),
  };
}

/**
 * Copies the files of a manifest from a backup and verifies them.
 *
 * @returns their number of bytes.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` naming every missing or damaged file.
 */
async function copyFiles(backup: string, files: Digests, root: string): Promise<number> {
  const findings: string[] = [];
  let bytes = 0;
  for (const [storedPath, expected] of Object.entries(files)) {
    const copied = await copyFileDurably(backup, storedPath, root).catch(describeCopyError);
    if (typeof copied === "string") findings.push(`${storedPath} ${copied}`);
    else if (copied.sha256 !== expected.sha256) findings.push(`${storedPath} differs from its digest`);
    else bytes += copied.size_bytes;
  }
  // The database can be read only after all files are known to be complete.
  if (findings.length === 0) findings.push(...(await findUnlisted(root, files)));
  if (findings.length === 0) return bytes;
  throw new DataCorruptedError(
    `The backup '${resolve(backup)}' is damaged: ${findings.join(", ")}. Nothing was restored. Use another backup`,
  );
}

/** Stores the files of a restored data directory, and records the storage in its database. @returns the identity of the storage. */
async function storeFiles(root: string, files: Digests, remote: Remote): Promise<string> {
  const database = join(root, DATABASE);
  const store = await openStore(database);
  try {
    await recordDigests(store, files);
    for (const file of (await storedFiles(store, dataDirectoryAt(root))).values()) {
      if (file.digest !== null && isInStorage(file)) await remote.put(file.path, file.digest, join(root, file.path));
    }
    return await recordStorage(store, remote);
  } finally {
    await store.destroy();
    await syncFile(database);
  }
}

/** Records the digests of the files of rows from before digests were recorded: only files with a digest can be in a storage. */
async function recordDigests(store: Store, files: Digests): Promise<void> {
  const digestsBelow = (...paths: readonly string[]) => {
    const entries = Object.entries(files).filter(([path]) => paths.some((start) => path.startsWith(start)));
    return JSON.stringify(Object.fromEntries(entries));
  };
  const checkpoints = await store
    .selectFrom("checkpoints")
    .selectAll()
    .where("digests", "is", null)
    .where("state_dir", "is not", null)
    .execute();
  for (const row of checkpoints)
    await store
      .updateTable("checkpoints")
      .set({ digests: digestsBelow(`${storedState(row)}/`) })
      .where("id", "=", row.id)
      .execute();
  for (const { id } of await store.selectFrom("jobs").select("id").where("digests", "is", null).execute()) {
    const digests = digestsBelow(`${storedJob(id)}/`, storedReport(id));
    if (digests !== "{}") await store.updateTable("jobs").set({ digests }).where("id", "=", id).execute();
  }
}

/** Codes of system errors that a file or a directory in place of another causes. */
const MISPLACED_CODES = ["ENOTDIR", "EISDIR", "EEXIST", "ELOOP", "ENAMETOOLONG"];

/** Returns the finding about a file that cannot be copied, to follow its path. @throws any error that is not caused by the backup. */
function describeCopyError(error: unknown): string {
  const { code = "" } = error as NodeJS.ErrnoException;
  if (code === "ENOENT") return "is missing";
  if (error instanceof DataError || MISPLACED_CODES.includes(code)) return "is not a regular file of the backup";
  throw error;
}

/**
 * Finds files that the restored database references and that the manifest lacks, or lists with another digest. Without findings, marks the
 * database as one in use instead of one in a backup.
 */
async function findUnlisted(root: string, files: Digests): Promise<string[]> {
  const database = join(root, DATABASE);
  const store = await openStoreReadOnly(database);
  const findings: string[] = [];
  try {
    for (const { path, subject, digest } of (await storedFiles(store, dataDirectoryAt(root))).values()) {
      const listed = Object.hasOwn(files, path) ? files[path] : undefined;
      if (listed === undefined) findings.push(`${MANIFEST} does not list ${path} (${subject})`);
      else if (digest !== null && digest.sha256 !== listed.sha256) findings.push(`${path} differs from its digest (${subject})`);
    }
  } finally {
    await store.destroy();
    // Opening a database that was in WAL mode creates these files.
    for (const suffix of ["-wal", "-shm", "-journal"]) await remove(database + suffix);
  }
  if (findings.length === 0) {
    await markSnapshot(database, false);
    await syncFile(database);
  }
  return findings;
}
