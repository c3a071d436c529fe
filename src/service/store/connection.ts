/** Connections to SQLite, and locks that are SQLite transactions. */
import { isBuiltin } from "node:module";
import { ConfigError, EngineMissingError } from "../../base/errors.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { getOrInsert, messageOf } from "../../base/util/values.ts";
import { createPrivateFile } from "../disk/private-files.ts";

/** Prepared statement of a {@link SqliteConnection}. */
export interface SqliteStatement {
  columns(): unknown[];
  all(...parameters: unknown[]): unknown[];
  run(...parameters: unknown[]): { changes: number | bigint; lastInsertRowid: number | bigint };
  iterate(...parameters: unknown[]): IterableIterator<unknown>;
}

/** Subset of `node:sqlite` used by the store. `@photostructure/sqlite` implements the same interface for Node 20. */
export interface SqliteConnection {
  exec(sql: string): void;
  prepare(sql: string): SqliteStatement & {
    /** Sets whether integers are read as `bigint`. @default false */
    setReadBigInts(isEnabled: boolean): void;
  };
  /** Defines an SQL function, which replaces one of the same name. */
  function(name: string, options: { varargs: true }, body: (...values: unknown[]) => null): void;
  close(): void;
}

/** Functions that take the rows that the SQL function `collect` of a connection is called with. */
const collectors = new WeakMap<SqliteConnection, { collect: (row: unknown[]) => void }>();

/**
 * Runs a query without a prepared statement. `@photostructure/sqlite` keeps a closed connection open until its statements are garbage
 * collected, and SQLite then copies the write-ahead log into the database. A connection with these queries alone closes at once.
 *
 * @param columns - Names of the columns to select, separated by commas.
 * @param source - Table or table-valued function to select from, with any further clauses.
 * @returns the values of each row.
 */
export function queryOnce(connection: SqliteConnection, columns: string, source: string): unknown[][] {
  const rows: unknown[][] = [];
  // A function cannot be replaced while a statement runs, so it is defined once.
  const collector = getOrInsert(collectors, connection, () => {
    const current = { collect: (_row: unknown[]) => {} };
    connection.function("collect", { varargs: true }, (...values) => {
      current.collect(values);
      return null;
    });
    return current;
  });
  collector.collect = (row) => rows.push(row);
  connection.exec(`SELECT collect(${columns}) FROM ${source}`);
  return rows;
}

/** Subset of a module that binds SQLite. */
interface SqliteModule {
  readonly DatabaseSync: new (path: string, options: { timeout: number; readOnly: boolean }) => SqliteConnection;
}

/** Loads SQLite: the module of Node, or a package for versions of Node without that module or without the columns of its statements. */
export async function loadSqlite(): Promise<SqliteModule> {
  // The names are computed so that bundlers and compilers for Node 20 do not try to resolve a missing module.
  const [builtin, name] = ["node:sqlite", "@photostructure/sqlite"];
  if (isBuiltin(builtin)) {
    const module = (await import(builtin)) as SqliteModule & { readonly StatementSync: { readonly prototype: object } };
    // Absent from Node 22.13 to 22.15.
    if ("columns" in module.StatementSync.prototype) return module;
  }
  try {
    return (await import(name)) as SqliteModule;
  } catch (cause) {
    throw new EngineMissingError(
      `The database binding '${name}' cannot be loaded. Repair it with: npm rebuild @photostructure/sqlite, or use Node 22.16 or newer`,
      { cause },
    );
  }
}

/** Whether a database has a table. */
export function hasTable(connection: SqliteConnection, table: string): boolean {
  return queryOnce(connection, "name", `sqlite_master WHERE type = 'table' AND name = '${table}'`).length > 0;
}

/** Opens a connection, creating a missing file with mode 0600. It waits at most `timeoutMs` for a locked database. */
export async function openConnection(
  path: string,
  timeoutMs: number,
  { isReadOnly = false }: { readonly isReadOnly?: boolean | undefined } = {},
): Promise<SqliteConnection> {
  const { DatabaseSync } = await loadSqlite();
  if (!isReadOnly) await createPrivateFile(path);
  return new DatabaseSync(path, { timeout: timeoutMs, readOnly: isReadOnly });
}

/**
 * Acquires a lock on the file at `path`. The lock is an exclusive SQLite transaction, so the operating system releases it when the process
 * ends for any reason, and no process ids are involved.
 *
 * @returns a function that releases the lock, or null if another connection holds it.
 * @throws ConfigError `E_CONFIG` if the file cannot be created or is no lock file.
 */
export async function lockFile(path: string): Promise<(() => void) | null> {
  const connection = await openConnection(path, 0);
  try {
    // The journal is kept in memory, because a full disk has no room for a journal file. Nothing is ever written to this database.
    connection.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
  } catch (error) {
    connection.close();
    if (error instanceof Error && /locked|busy/i.test(error.message)) return null;
    if (isNoSpace(error)) throw error;
    throw new ConfigError(
      `The lock file '${path}' cannot be used: ${messageOf(error)}. If no service, backup or restore uses its directory, delete the file`,
      { cause: error, param: "dataDir" },
    );
  }
  return () => connection.close();
}
