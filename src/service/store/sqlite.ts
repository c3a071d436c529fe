/**
 * SQLite file as the database of a service: opening for a service, opening to read, and snapshots for backups. `sqlite-dialect.ts` connects
 * Kysely, and `transactions.ts` runs the transactions.
 */
import { Kysely, Migrator, sql } from "kysely";
import { ConfigError, InternalError, NoSpaceError } from "../../base/errors.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { sizeOf } from "../disk/files.ts";
import { requireIntact, requireKnown } from "./checks.ts";
import { registerDatabase, type Database, type Execute } from "./database.ts";
import { openConnection, queryOnce, type SqliteConnection } from "./connection.ts";
import { ServiceSqliteDialect } from "./sqlite-dialect.ts";
import { Transactions } from "./transactions.ts";
import { HighWaterMark, requireMarked } from "./high-water-mark.ts";
import { MIGRATIONS } from "./migrations.ts";
import type { Store, Tables } from "./tables.ts";
import { createPrivateFile } from "../disk/private-files.ts";
import { first, messageOf } from "../../base/util/values.ts";

/** Milliseconds to wait for a database that another connection has locked. */
const BUSY_TIMEOUT_MS = 5000;
/** Value of SQLite's `user_version` that marks the database of a backup; 0 without the mark. */
const SNAPSHOT_VERSION = 1;

/** Connection settings: with WAL and full synchronization, a committed transaction is durable. */
const SETTINGS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON";
/** Setting that keeps the WAL index in memory instead of a file. */
const EXCLUSIVE_LOCKING = "PRAGMA locking_mode = EXCLUSIVE";
/** Statements that turn an exclusive connection into a shared one, which is only possible outside WAL mode. */
const RETURN_TO_SHARED = [
  "PRAGMA journal_mode = DELETE",
  "PRAGMA locking_mode = NORMAL",
  "PRAGMA journal_mode = WAL",
  "SELECT 1 FROM models",
];

/** Options of {@link openStore}. */
export interface OpenStoreOptions {
  /**
   * Error message for a missing or empty database, if a new database must not be created; null if it may.
   *
   * @default null: a database may be created
   */
  readonly whyNotNew?: string | null | undefined;
  /**
   * Whether to open without the files that SQLite keeps next to a database, for which a full disk has no room. Reads work, and writes work
   * once there is room. Other processes cannot open the database before {@link shareStore}.
   *
   * @default false
   */
  readonly isExclusive?: boolean | undefined;
}

/**
 * Opens the metadata database at `path`, creating and migrating it if necessary. All migrations run in one transaction. Committed
 * transactions are durable (WAL with full synchronization). Close the store with `destroy()`, which leaves all data in a single file.
 *
 * @throws ConfigError `E_CONFIG` for a database of a newer version, and for a missing one if `whyNotNew` is given.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a damaged file, a file that is not a database, and a database that lacks acknowledged
 *   transactions; see {@link requireMarked}.
 * @throws EngineMissingError `E_ENGINE_MISSING` if the SQLite binding cannot be loaded.
 * @throws NoSpaceError `E_NO_SPACE` if the disk has no room for a new database or a migration.
 */
export async function openStore(path: string, options: OpenStoreOptions = {}): Promise<Store> {
  const connection = await openChecked(path, options);
  const revision = { count: 0 };
  const mark = new HighWaterMark(connection, path);
  const transactions = new Transactions(connection, mark);
  const store = new Kysely<Tables>({ dialect: new ServiceSqliteDialect(connection, { revision, transactions }) });
  registerDatabase(store, createDatabase(store, { connection, transactions, revision }));
  const { error, results = [] } = await migratorOf(store).migrateToLatest();
  if (error !== undefined) {
    await store.destroy();
    const message = `The database '${path}' cannot be brought to this version's tables: ${messageOf(error)}`;
    if (isNoSpace(error)) throw new NoSpaceError(`${message}. Make room on its file system and start again`, { cause: error });
    throw new InternalError(message, { cause: error });
  }
  // Removes what a migration has overwritten, such as keys, from the database and its log.
  if (results.length > 0) await sql.raw("PRAGMA wal_checkpoint(TRUNCATE)").execute(store);
  // Only now does the table of the count exist.
  mark.start();
  return store;
}

/** Opens a connection to the database of a service, and checks the database before anything is written. See {@link openStore}. */
async function openChecked(path: string, { whyNotNew = null, isExclusive = false }: OpenStoreOptions): Promise<SqliteConnection> {
  /** Checks that a new database may be created. */
  const requireNewAllowed = (): void => {
    if (whyNotNew !== null) throw new ConfigError(whyNotNew, { param: "dataDir" });
  };
  // Opening would create the file, and would remove a write-ahead log without its database.
  if ((await sizeOf(path)) === 0) {
    requireNewAllowed();
    await requireMarked(path, null);
  }
  const connection = await openConnection(path, BUSY_TIMEOUT_MS);
  try {
    if (isExclusive) connection.exec(EXCLUSIVE_LOCKING);
    requireIntact(connection, path);
    await requireMarked(path, connection);
    connection.exec(SETTINGS);
    // Removes the mark of a backup. Only if necessary: on a full disk nothing can be written.
    if (!isExclusive && userVersionOf(connection) !== 0) connection.exec("PRAGMA user_version = 0");
    // A database without migrations has no tables: opening it creates a new one.
    if (requireKnown(connection, path) === 0) requireNewAllowed();
    return connection;
  } catch (error) {
    await closeUnchanged(connection, path);
    throw error;
  }
}

/** Closes a connection that has changed nothing, and leaves the write-ahead log as it is. */
async function closeUnchanged(connection: SqliteConnection, path: string): Promise<void> {
  // The last connection to close copies the log into the database and removes it, unless the connection is read-only.
  const lastConnection = await openConnection(path, 0, { isReadOnly: true });
  try {
    lastConnection.exec("SELECT 1 FROM sqlite_master");
  } catch {
    // A database that cannot be read is not changed either.
  }
  connection.close();
  lastConnection.close();
}

/** Creates the port of an open database. */
function createDatabase(
  store: Store,
  writer: { readonly connection: SqliteConnection; readonly transactions: Transactions; readonly revision: { readonly count: number } },
): Database {
  const { connection, transactions, revision } = writer;
  const execute: Execute = (statement, parameters) => Promise.resolve(transactions.prepareOnce(statement).all(...parameters));
  return {
    isShared: false,
    revision: () => revision.count,
    currentMs: () => Promise.resolve(Date.now()),
    // SQLite has one writer: its transactions run one after the other.
    transact: (visible, body) => visible.transaction().execute(body),
    transactLocking: (visible, body) => visible.transaction().execute(body),
    lockName: () => Promise.resolve(),
    // Kysely lends its only connection to one caller at a time.
    unsynchronized: (body) =>
      store.connection().execute(async () => {
        connection.exec("PRAGMA synchronous = NORMAL");
        try {
          return await transactions.runUncounted(() => body(execute));
        } finally {
          connection.exec("PRAGMA synchronous = FULL");
        }
      }),
    jsonNumber: (column, key) => sql<number>`json_extract(${sql.ref(column)}, ${`$.${key}`})`,
    // Copies the write-ahead log into the database.
    async synchronize() {
      await sql.raw("PRAGMA wal_checkpoint(PASSIVE)").execute(store);
    },
  };
}

/**
 * Opens a database of this or any earlier version read-only, without migrating it; rows of an older database lack the columns added by
 * later migrations. Another process may write to the database at the same time.
 *
 * @throws ConfigError `E_CONFIG` for a missing database, or one of a newer version.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a damaged file or a file that is not a database.
 * @throws EngineMissingError `E_ENGINE_MISSING` if the SQLite binding cannot be loaded.
 */
export async function openStoreReadOnly(path: string): Promise<Store> {
  await requireDatabase(path);
  const connection = await openConnection(path, BUSY_TIMEOUT_MS, { isReadOnly: true });
  try {
    requireIntact(connection, path);
    if (requireKnown(connection, path) === 0) throw noDatabaseError(path);
  } catch (error) {
    connection.close();
    throw error;
  }
  return new Kysely<Tables>({ dialect: new ServiceSqliteDialect(connection) });
}

/**
 * Creates a database file with the tables that a migration and all earlier ones make. The tables have the rows that migrations insert.
 *
 * @param migration - Name of the last migration.
 */
export async function createTables(path: string, migration: string): Promise<void> {
  const connection = await openConnection(path, BUSY_TIMEOUT_MS);
  const store = new Kysely<Tables>({ dialect: new ServiceSqliteDialect(connection) });
  try {
    const { error } = await migratorOf(store).migrateTo(migration);
    if (error !== undefined) throw error;
  } finally {
    await store.destroy();
  }
}

function migratorOf(db: Store): Migrator {
  return new Migrator({ db, provider: { getMigrations: () => Promise.resolve(MIGRATIONS) } });
}

/**
 * Copies a consistent snapshot of a database into a new file at `target`, also while another process writes to the database.
 *
 * @throws ConfigError `E_CONFIG` for a missing database.
 */
export async function copyDatabase(path: string, target: string): Promise<void> {
  await requireDatabase(path);
  const connection = await openConnection(path, BUSY_TIMEOUT_MS, { isReadOnly: true });
  try {
    await createPrivateFile(target);
    connection.prepare("VACUUM INTO ?").run(target);
  } finally {
    connection.close();
  }
  await markSnapshot(target, true);
}

function userVersionOf(connection: SqliteConnection): number {
  return Number(first(first(queryOnce(connection, "user_version", "pragma_user_version"))));
}

/** Marks a database as part of a backup, or removes the mark. A service that opens the database removes the mark, too. */
export async function markSnapshot(path: string, isSnapshot: boolean): Promise<void> {
  const connection = await openConnection(path, BUSY_TIMEOUT_MS);
  try {
    connection.exec(`PRAGMA user_version = ${isSnapshot ? SNAPSHOT_VERSION : 0}`);
  } finally {
    connection.close();
  }
}

/** Whether the database is part of a backup on which no service has run. */
export async function isSnapshot(store: Store): Promise<boolean> {
  const { rows } = await sql<{ user_version: number }>`PRAGMA user_version`.execute(store);
  return rows[0]?.user_version === SNAPSHOT_VERSION;
}

/** Checks that a database exists. @throws ConfigError `E_CONFIG` if it does not. */
export async function requireDatabase(path: string): Promise<void> {
  if ((await sizeOf(path)) === 0) throw noDatabaseError(path);
}

function noDatabaseError(path: string): ConfigError {
  const message = `Expected a data directory with a SQLite database, found none at '${path}'. Name another data directory, or, if its records are in Postgres, the database: \`--database postgres://…\` or WHETSTONE_DATABASE`;
  return new ConfigError(message, { param: "dataDir" });
}

/** Makes a database opened with `isExclusive` available to other processes. @throws if the disk still has no room. */
export async function shareStore(store: Store): Promise<void> {
  await store.connection().execute(async (connection) => {
    for (const statement of RETURN_TO_SHARED) await sql.raw(statement).execute(connection);
  });
}
