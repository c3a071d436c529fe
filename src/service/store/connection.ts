import { isBuiltin } from "node:module";
import { EngineMissingError } from "../../errors.ts";

/** The part of `node:sqlite` that is used here; `@photostructure/sqlite` has the same one for Node 20. */
export interface SqliteConnection {
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
  readonly DatabaseSync: new (path: string, options: { timeout: number; readOnly: boolean }) => SqliteConnection;
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

/** Opens a connection that waits at most `timeoutMs` for a busy database. */
export async function connect(
  path: string,
  timeoutMs: number,
  { isReadOnly = false }: { readonly isReadOnly?: boolean | undefined } = {},
): Promise<SqliteConnection> {
  const { DatabaseSync } = await loadSqlite();
  return new DatabaseSync(path, { timeout: timeoutMs, readOnly: isReadOnly });
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
    // A journal in memory: on a full disk one in a file could not be begun, and nothing is ever written here.
    connection.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
  } catch (error) {
    connection.close();
    if (error instanceof Error && /locked|busy/i.test(error.message)) return null;
    throw error;
  }
  return () => connection.close();
}
