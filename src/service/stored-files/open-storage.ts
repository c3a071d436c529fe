/**
 * Opening of the storage that a database uses. Database and S3 storage identify each other: the database records URL and id of the storage,
 * and the storage holds an object with the same id, its mark.
 */
import { randomUUID } from "node:crypto";
import { z } from "zod";
import { ConfigError } from "../../base/errors.ts";
import { parseJson } from "../../base/util/values.ts";
import type { ServiceLogger } from "../common/logger.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { Verifier } from "../disk/verifier.ts";
import { CachedStorage } from "../storage/cached.ts";
import { StorageError } from "../storage/errors.ts";
import { FolderStorage } from "../storage/folder.ts";
import type { Remote } from "../storage/remote.ts";
import type { Storage } from "../storage/storage.ts";
import { referencesFiles, setStorage, storageRow } from "../store/storage-location.ts";
import type { StorageRow, Store } from "../store/tables.ts";

/** Contents of the mark of a storage. */
const markSchema = z.object({ id: z.string() });

/** Parts of the service that {@link openStorage} needs. */
export interface StorageOptions {
  readonly store: Store;
  readonly directory: DataDirectory;
  /** URL of the storage; undefined = the one that the database records, or the data directory. */
  readonly url: string | undefined;
  /** Limit of the local copies; undefined = not given. */
  readonly maxCacheBytes: number | undefined;
  readonly defaultCacheBytes: number;
  readonly logger: ServiceLogger;
}

/** Options of the functions that read a data directory without a service. */
export interface RemoteOptions {
  /** URL of the S3 storage. @default the one that the database records */
  readonly storage?: string | undefined;
}

/** Returns the URL of the storage: the option, or `WHETSTONE_STORAGE`; undefined without both. */
export function storageUrl(option: string | undefined): string | undefined {
  const url = option ?? process.env["WHETSTONE_STORAGE"];
  return url === "" ? undefined : url;
}

/**
 * Opens the storage of a database, and records its URL. A storage belongs to one database: it holds the same identity.
 *
 * @throws ConfigError `E_CONFIG` for a storage that cannot be written to, that belongs to another database, or that does not have the files
 *   of the database; and for a limit of copies without a storage.
 * @throws StorageError `E_UNAVAILABLE` if the storage does not answer.
 */
export async function openStorage(options: StorageOptions): Promise<Storage> {
  const { store, directory, maxCacheBytes, defaultCacheBytes, logger } = options;
  const verifier = new Verifier(logger);
  const row = await storageRow(store);
  const url = options.url ?? row?.url;
  if (url === undefined) {
    if (maxCacheBytes === undefined) return new FolderStorage(directory, verifier);
    throw new ConfigError(
      "Expected no limit of the cache, because the files of this service are in its data directory: set `storage`, too",
      {
        param: "maxCacheBytes",
      },
    );
  }
  const remote = await openRemote(url);
  try {
    await requireAccess(remote);
    await claim(store, remote);
  } catch (error) {
    await remote.close();
    throw error;
  }
  return new CachedStorage({ remote, directory, verifier, maxBytes: maxCacheBytes ?? defaultCacheBytes, logger });
}

/**
 * Opens the storage of a URL. Sends no request. The client is loaded here, because most services need none.
 *
 * @throws ConfigError `E_CONFIG` for an invalid URL, and without credentials.
 */
export async function openRemote(url: string): Promise<Remote> {
  const { openBucket } = await import("../storage/s3/bucket.ts");
  return openBucket(url);
}

/**
 * Opens the storage that a database records, to read it; null if the data directory is the storage.
 *
 * @param urlOption - URL to use instead of the recorded one.
 * @throws ConfigError `E_CONFIG` for a URL of another storage than the one of the database, and if it cannot be read.
 */
export async function recordedRemote(store: Store, urlOption: string | undefined): Promise<Remote | null> {
  const row = await storageRow(store);
  if (row === undefined) {
    if (urlOption === undefined) return null;
    throw new ConfigError(`Expected no storage, because the files of this database are in its data directory, got '${urlOption}'`, {
      param: "storage",
    });
  }
  const remote = await openRemote(urlOption ?? row.url);
  try {
    if ((await readMark(remote)) === row.id) return remote;
    throw missingError(remote);
  } catch (error) {
    await remote.close();
    throw accessError(remote, error);
  }
}

/** Records a storage in a database that it does not belong to yet. @returns the identity, for {@link markStorage}. */
export async function recordStorage(store: Store, remote: Remote): Promise<string> {
  const id = randomUUID();
  await setStorage(store, { id, url: remote.url });
  return id;
}

/** Assigns an unused storage to the database that records this identity. */
export function markStorage(remote: Remote, id: string): Promise<void> {
  return remote.writeMark(`${JSON.stringify({ id })}\n`);
}

/** Checks that a storage can be written to and belongs to no database. @throws ConfigError `E_CONFIG` otherwise. */
export async function requireUnused(remote: Remote): Promise<void> {
  await requireAccess(remote);
  if ((await readMark(remote)) !== null) throw foreignError(remote);
}

/** Writes, reads and deletes an object. @throws ConfigError `E_CONFIG` if the storage rejects it. */
async function requireAccess(remote: Remote): Promise<void> {
  try {
    await remote.probe();
  } catch (error) {
    throw accessError(remote, error);
  }
}

/** Converts the error of a request that the storage rejected to an error about the settings. Returns other errors unchanged. */
function accessError(remote: Remote, error: unknown): unknown {
  if (!(error instanceof StorageError) || error.status === null || error.status >= 500) return error;
  return new ConfigError(
    `Expected a storage that can be read and written, got '${remote.url}': ${error.message}. Check bucket, region, endpoint and credentials, and that they permit to list, read, write and delete objects`,
    { cause: error, param: "storage" },
  );
}

/**
 * Checks that a storage belongs to the database. Assigns an unused storage to a database without files.
 *
 * @throws ConfigError `E_CONFIG` otherwise.
 */
async function claim(store: Store, remote: Remote): Promise<void> {
  const row = await storageRow(store);
  const mark = await readMark(remote);
  if (row === undefined) await claimFirst(store, remote, mark);
  else await claimRecorded(store, remote, { row, mark });
}

/** Assigns a storage to a database that records none. `mark` is the identity that the storage holds. */
async function claimFirst(store: Store, remote: Remote, mark: string | null): Promise<void> {
  if (mark !== null) throw foreignError(remote);
  if (await referencesFiles(store))
    throw new ConfigError(
      `Expected a new data directory for the storage '${remote.url}': the files of this one are in it. To move them, run \`whetstone backup\`, then \`whetstone restore --storage\``,
      { param: "storage" },
    );
  await markStorage(remote, await recordStorage(store, remote));
}

/** Checks that a storage is the one that the database records in `row`. `mark` is the identity that the storage holds. */
async function claimRecorded(
  store: Store,
  remote: Remote,
  { row, mark }: { readonly row: StorageRow; readonly mark: string | null },
): Promise<void> {
  if (mark === null) {
    if (await referencesFiles(store)) throw missingError(remote);
    // The start that recorded the storage was interrupted before it wrote the mark.
    await markStorage(remote, row.id);
  } else if (mark !== row.id) throw foreignError(remote);
  // The same storage has another address now, for example another endpoint.
  if (row.url !== remote.url) await setStorage(store, { ...row, url: remote.url });
}

/** Returns the identity that a storage holds; null without one. */
async function readMark(remote: Remote): Promise<string | null> {
  const text = await remote.readMark();
  if (text === null) return null;
  // The empty identity of a damaged mark belongs to no database.
  return markSchema.safeParse(parseJson(text)).data?.id ?? "";
}

/** Returns the error of a storage that belongs to another database. */
function foreignError({ url }: Remote): ConfigError {
  return new ConfigError(
    `Expected an unused storage, or the one of this database, got '${url}', which belongs to another database. Use another prefix, or start with the database that belongs to it`,
    { param: "storage" },
  );
}

/** Returns the error of a storage without the files of the database. */
function missingError({ url }: Remote): ConfigError {
  return new ConfigError(
    `Expected the storage with the files of this database, got '${url}', which is empty. Use its bucket and prefix, or restore a backup`,
    { param: "storage" },
  );
}
