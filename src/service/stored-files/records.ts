/** Records of a service as `backup` and `verify` read them: the SQLite file of the data directory, or a Postgres database. */
import { stat } from "node:fs/promises";
import { ConfigError } from "../../base/errors.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { requireNoDatabase } from "../store/open-database.ts";
import { copyDatabase, openStoreReadOnly, requireDatabase } from "../store/sqlite.ts";
import type { Store } from "../store/tables.ts";
import type { RemoteOptions } from "./open-storage.ts";

/** Options of the functions that read the records and files of a service. */
export interface RecordsOptions extends RemoteOptions {
  /** Address of the Postgres database with the records; null = the SQLite file of the data directory. @default null */
  readonly database?: string | null | undefined;
}

/** Snapshot of the records. */
export interface Snapshot {
  readonly store: Store;
  /** Writes the snapshot to the path of {@link Records.withSnapshot}, as a SQLite file marked as part of a backup. */
  readonly write: () => Promise<void>;
}

/** Records of a service, opened for reading. */
export interface Records {
  /** Calls `use` with a store that reads the current rows. */
  readonly withStore: <T>(use: (store: Store) => Promise<T>) => Promise<T>;
  /** Calls `use` with a consistent snapshot. `path` must not exist. */
  readonly withSnapshot: <T>(path: string, use: (snapshot: Snapshot) => Promise<T>) => Promise<T>;
}

/**
 * Returns the records of a service. A database of an earlier version is not migrated.
 *
 * @param database - Address of a Postgres database; null = the SQLite file of the data directory.
 * @throws ConfigError `E_CONFIG` without the database or the data directory, and for a Postgres database on a data directory with a SQLite
 *   database.
 */
export async function recordsOf(directory: DataDirectory, database: string | null): Promise<Records> {
  if (database !== null) return postgresRecords(directory, database);
  await requireDatabase(directory.database);
  return {
    withStore: (use) => withSqlite(directory.database, use),
    async withSnapshot(path, use) {
      await copyDatabase(directory.database, path);
      return withSqlite(path, (store) => use({ store, write: () => Promise.resolve() }));
    },
  };
}

/** Calls `use` with a SQLite database that is opened read-only. */
async function withSqlite<T>(path: string, use: (store: Store) => Promise<T>): Promise<T> {
  const store = await openStoreReadOnly(path);
  try {
    return await use(store);
  } finally {
    await store.destroy();
  }
}

/** Returns the records in a Postgres database; see {@link recordsOf}. */
async function postgresRecords(directory: DataDirectory, database: string): Promise<Records> {
  await requireNoDatabase(directory);
  if ((await stat(directory.root).catch(() => null))?.isDirectory() !== true) {
    throw new ConfigError(
      `Expected the data directory of the service on the Postgres database, found none at '${directory.root}'. Name it with \`--data-dir\`. If the files are in an S3 storage, it may be an empty directory`,
      { param: "dataDir" },
    );
  }
  // Loaded only for records in Postgres.
  const { lastMigration, withPatientStore } = await import("../store/postgres-migrations.ts");
  const { readSnapshot } = await import("../store/postgres-transactions.ts");
  const { copyFromPostgres } = await import("../store/copy/from-postgres.ts");
  return {
    withStore: (use) =>
      withPatientStore(database, async (patient) => {
        await lastMigration(patient);
        return use(patient.db);
      }),
    withSnapshot: (path, use) =>
      withPatientStore(database, (patient) =>
        readSnapshot(patient.db, async (store) => {
          const migration = await lastMigration({ ...patient, db: store });
          return use({ store, write: () => copyFromPostgres(store, { path, migration }) });
        }),
      ),
  };
}
