import { isBuiltin } from "node:module";
import { Kysely, Migrator, SqliteDialect, type SqliteDatabase } from "kysely";
import { EngineMissingError, InternalError } from "../../errors.ts";
import { MIGRATIONS } from "./migrations.ts";
import type { Store, Tables } from "./tables.ts";
import { messageOf } from "../error-text.ts";

/** The part of `node:sqlite` that is used here; `@photostructure/sqlite` has the same one for Node 20. */
interface SqliteConnection {
  exec(sql: string): void;
  prepare(sql: string): {
    columns(): unknown[];
    all(...parameters: unknown[]): unknown[];
    run(...parameters: unknown[]): { changes: number | bigint; lastInsertRowid: number | bigint };
    iterate(...parameters: unknown[]): IterableIterator<unknown>;
  };
  close(): void;
}

interface SqliteModule {
  readonly DatabaseSync: new (path: string, options: { timeout: number }) => SqliteConnection;
}

async function loadSqlite(): Promise<SqliteModule> {
  // The name is computed so that a bundler or a compiler for Node 20 does not look for a module that is not there.
  const name = isBuiltin("node:sqlite") ? "node:sqlite" : "@photostructure/sqlite";
  try {
    return (await import(name)) as SqliteModule;
  } catch (cause) {
    throw new EngineMissingError(
      `The database binding '${name}' cannot be loaded. Repair it with: npm rebuild @photostructure/sqlite, or use Node 22.13 or newer`,
      { cause },
    );
  }
}

/** Opens a connection; a busy database is waited for at most `timeoutMs`. */
async function connect(path: string, timeoutMs: number): Promise<SqliteConnection> {
  const { DatabaseSync } = await loadSqlite();
  return new DatabaseSync(path, { timeout: timeoutMs });
}

/** Compiled statements that are kept: more than the service has. */
const MAX_STATEMENTS = 500;

/** How many statements that may change something a store has begun. */
const revisions = new WeakMap<Store, { count: number }>();

/** A number that is another one after every change: what was read while it is the same is still true. */
export function revisionOf(store: Store): number {
  return revisions.get(store)?.count ?? 0;
}

/** Lends a connection to Kysely, which asks of a statement whether it returns rows. Statements are compiled once. */
function forKysely(connection: SqliteConnection, revision: { count: number }): SqliteDatabase {
  const compiled = new Map<string, ReturnType<SqliteDatabase["prepare"]>>();
  const prepare = (sql: string): ReturnType<SqliteDatabase["prepare"]> => {
    const statement = connection.prepare(sql);
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
    close: () => connection.close(),
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

/**
 * The metadata database at `path`, created and migrated as needed. A transaction that returned is on disk: WAL with full
 * synchronisation. Close it with `destroy()`.
 *
 * @throws EngineMissingError `E_ENGINE_MISSING` when the SQLite binding cannot be loaded.
 */
export async function openStore(path: string): Promise<Store> {
  const connection = await connect(path, 5000);
  connection.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
  const revision = { count: 0 };
  const store = new Kysely<Tables>({ dialect: new SqliteDialect({ database: forKysely(connection, revision) }) });
  revisions.set(store, revision);
  const migrator = new Migrator({ db: store, provider: { getMigrations: () => Promise.resolve(MIGRATIONS) } });
  const { error } = await migrator.migrateToLatest();
  if (error !== undefined) {
    await store.destroy();
    throw new InternalError(`The database '${path}' cannot be brought to this version's tables: ${messageOf(error)}`, { cause: error });
  }
  return store;
}

/**
 * A lock on the file at `path` that ends with the process, however it ends: an exclusive SQLite transaction, which is an operating
 * system lock and so knows nothing of process ids.
 *
 * @returns the function that gives the lock back, or null while somebody else holds it.
 */
export async function lockFile(path: string): Promise<(() => void) | null> {
  const connection = await connect(path, 0);
  try {
    connection.exec("BEGIN EXCLUSIVE");
  } catch (error) {
    connection.close();
    if (error instanceof Error && /locked|busy/i.test(error.message)) return null;
    throw error;
  }
  return () => connection.close();
}
