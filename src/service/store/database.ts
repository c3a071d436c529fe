import { Kysely, Migrator, sql, SqliteAdapter, SqliteDialect, type SqliteDatabase } from "kysely";
import { ConfigError, InternalError, NoSpaceError } from "../../errors.ts";
import { isNoSpace } from "../../util/no-space.ts";
import { requireIntact, requireKnown, sizeOf } from "./checks.ts";
import { connect, type SqliteConnection } from "./connection.ts";
import { MIGRATIONS } from "./migrations.ts";
import type { Store, Tables } from "./tables.ts";
import { messageOf } from "../error-text.ts";

/** Time to wait for a database that another connection has locked. */
const BUSY_TIMEOUT_MS = 5000;
/** Compiled statements that are kept: more than the service has. */
const MAX_STATEMENTS = 500;

/** How many statements that may change something a store has begun. */
const revisions = new WeakMap<Store, { count: number }>();

/** A number that is another one after every change: what was read while it is the same is still true. */
export function revisionOf(store: Store): number {
  return revisions.get(store)?.count ?? 0;
}

/**
 * A `rollback` that does nothing where SQLite has already rolled back, as it does when the disk is full. Kysely would report the failed
 * rollback in place of the error that caused it.
 */
function rollbackOf(connection: SqliteConnection): ReturnType<SqliteConnection["prepare"]> {
  const statement = connection.prepare("rollback");
  return {
    columns: () => [],
    all: () => [],
    iterate: () => [].values(),
    run() {
      try {
        return statement.run();
      } catch (error) {
        if (error instanceof Error && error.message.includes("no transaction is active")) return { changes: 0, lastInsertRowid: 0 };
        throw error;
      }
    },
  };
}

/** Lends a connection to Kysely, which asks of a statement whether it returns rows. Statements are compiled once. */
function forKysely(connection: SqliteConnection, revision: { count: number }, isReadOnly = false): SqliteDatabase {
  const compiled = new Map<string, ReturnType<SqliteDatabase["prepare"]>>();
  const prepare = (sql: string): ReturnType<SqliteDatabase["prepare"]> => {
    const statement = sql === "rollback" ? rollbackOf(connection) : connection.prepare(sql);
    // A change may return rows too.
    const change = /^\s*select\b/i.test(sql) ? 0 : 1;
    return {
      reader: statement.columns().length > 0,
      all(parameters) {
        revision.count += change;
        return statement.all(...parameters);
      },
      run(parameters) {
        revision.count += change;
        return statement.run(...parameters);
      },
      // An iteration that is under way must not be disturbed by the next use: it gets a statement of its own.
      iterate: (parameters) => connection.prepare(sql).iterate(...parameters),
    };
  };
  return {
    close() {
      // A binding may keep the connection open for its statements. Without this, all data would then stay in the write-ahead log.
      try {
        if (!isReadOnly) connection.exec("PRAGMA wal_checkpoint(TRUNCATE)");
      } finally {
        connection.close();
      }
    },
    prepare(sql) {
      let statement = compiled.get(sql);
      if (!statement) {
        statement = prepare(sql);
        if (compiled.size < MAX_STATEMENTS) compiled.set(sql, statement);
      }
      return statement;
    },
  };
}

/** SQLite whose migrations run in one transaction: SQLite supports that for DDL, and Kysely assumes that it does not. */
class TransactionalDialect extends SqliteDialect {
  override createAdapter(): SqliteAdapter {
    return new TransactionalAdapter();
  }
}

class TransactionalAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

/** A transaction that returned is on disk. */
const SETTINGS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON";
/** Keeps the index of the WAL in memory and not in a file. */
const WITHOUT_FILES = "PRAGMA locking_mode = EXCLUSIVE";
/** An exclusive connection becomes an ordinary one only outside of WAL mode. */
const SHARED_AGAIN = ["PRAGMA journal_mode = DELETE", "PRAGMA locking_mode = NORMAL", "PRAGMA journal_mode = WAL", "SELECT 1 FROM models"];

/** Options of {@link openStore}. */
export interface OpenStoreOptions {
  /**
   * Whether a database may be created. Where it may not, a missing or empty one is an error with the message of the returned text.
   *
   * @default a database may be created
   */
  readonly whyNotNew?: string | null | undefined;
  /**
   * Opens without the files that SQLite keeps beside a database, for which a full disk has no room: reading works, and writing once there
   * is room. No other process can open the database before {@link shareStore}. @default false
   */
  readonly isExclusive?: boolean | undefined;
}

/**
 * Opens the metadata database at `path`, creating and migrating it as needed. All migrations run in one transaction. A transaction that
 * returned is on disk: WAL with full synchronization. Close it with `destroy()`, which leaves all data in the one file.
 *
 * @throws ConfigError `E_CONFIG` for a database of a newer version, and for a missing one if `whyNotNew` is given.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that is not a database or a damaged one.
 * @throws EngineMissingError `E_ENGINE_MISSING` when the SQLite binding cannot be loaded.
 * @throws NoSpaceError `E_NO_SPACE` when the disk has no room for a new database or a migration.
 */
export async function openStore(path: string, { whyNotNew = null, isExclusive = false }: OpenStoreOptions = {}): Promise<Store> {
  const missing = () => new ConfigError(whyNotNew as string, { param: "dataDir" });
  // Opening would create the file, and remove a write-ahead log without its database.
  if (whyNotNew !== null && (await sizeOf(path)) === 0) throw missing();
  const connection = await connect(path, BUSY_TIMEOUT_MS);
  try {
    if (isExclusive) connection.exec(WITHOUT_FILES);
    requireIntact(connection, path);
    connection.exec(SETTINGS);
    if (requireKnown(connection, path) === 0 && whyNotNew !== null) throw missing();
  } catch (error) {
    connection.close();
    throw error;
  }
  const revision = { count: 0 };
  const store = new Kysely<Tables>({ dialect: new TransactionalDialect({ database: forKysely(connection, revision) }) });
  revisions.set(store, revision);
  const migrator = new Migrator({ db: store, provider: { getMigrations: () => Promise.resolve(MIGRATIONS) } });
  const { error } = await migrator.migrateToLatest();
  if (error !== undefined) {
    await store.destroy();
    const message = `The database '${path}' cannot be brought to this version's tables: ${messageOf(error)}`;
    if (isNoSpace(error)) throw new NoSpaceError(`${message}. Make room on its file system and start again`, { cause: error });
    throw new InternalError(message, { cause: error });
  }
  return store;
}

/**
 * Opens a database to read it, whatever its version up to the present one; columns that later migrations added are missing in the rows of
 * an older one. Another process may write to it at the same time.
 *
 * @throws ConfigError `E_CONFIG` if there is no database, or one of a newer version.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that is not a database or a damaged one.
 * @throws EngineMissingError `E_ENGINE_MISSING` when the SQLite binding cannot be loaded.
 */
export async function openStoreReadOnly(path: string): Promise<Store> {
  if ((await sizeOf(path)) === 0) throw noDatabase(path);
  const connection = await connect(path, BUSY_TIMEOUT_MS, { isReadOnly: true });
  try {
    requireIntact(connection, path);
    if (requireKnown(connection, path) === 0) throw noDatabase(path);
  } catch (error) {
    connection.close();
    throw error;
  }
  return new Kysely<Tables>({ dialect: new SqliteDialect({ database: forKysely(connection, { count: 0 }, true) }) });
}

/**
 * Copies a database as it is at one moment into a new file at `target`, also while another process writes to it.
 *
 * @throws ConfigError `E_CONFIG` if there is no database.
 */
export async function copyDatabase(path: string, target: string): Promise<void> {
  if ((await sizeOf(path)) === 0) throw noDatabase(path);
  const connection = await connect(path, BUSY_TIMEOUT_MS, { isReadOnly: true });
  try {
    connection.prepare("VACUUM INTO ?").run(target);
  } finally {
    connection.close();
  }
}

function noDatabase(path: string): ConfigError {
  return new ConfigError(`Expected a data directory with a database, found none at '${path}'`, { param: "dataDir" });
}

/** Lets other processes open a database that was opened on a full disk. @throws when there is no room for that yet. */
export async function shareStore(store: Store): Promise<void> {
  await store.connection().execute(async (connection) => {
    for (const statement of SHARED_AGAIN) await sql.raw(statement).execute(connection);
  });
}
