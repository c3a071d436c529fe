/** Copy of the rows of a SQLite file into an empty Postgres database. */
import { CompiledQuery, DEFAULT_MIGRATION_LOCK_TABLE, MIGRATION_LOCK_ID } from "kysely";
import { ConfigError, DataCorruptedError } from "../../../base/errors.ts";
import { messageOf } from "../../../base/util/values.ts";
import { openConnection, type SqliteConnection } from "../connection.ts";
import { UnknownOutcomeError } from "../database-errors.ts";
import { codeOf } from "../postgres-errors.ts";
import {
  createSchemaIn,
  createTablesIn,
  tablesIn,
  toDatabaseUseError,
  withPatientStore,
  type PatientStore,
} from "../postgres-migrations.ts";
import { runOnce } from "../postgres-transactions.ts";
import type { Store } from "../tables.ts";
import { insertInto, pagesOf, tablesOf, type CopiedRow, type DatabaseTable } from "./tables.ts";

/** Alias of SQLite's row number in selections; no table has a column of this name. */
const ROWID = "rowid of the copy";
/** Number before the number of any row. */
const BEFORE_FIRST_ROWID = -(2n ** 63n);
/** Max names of tables in a message. */
const MAX_NAMES = 5;
/** Codes of the server for values that it rejects: data exceptions (22), and violated constraints (23). */
const REJECTED_VALUE = /^2[23]/u;

/** Names that Kysely passes to the adapter, which locks by a number. */
const LOCK_OPTIONS = { lockTable: DEFAULT_MIGRATION_LOCK_TABLE, lockRowId: MIGRATION_LOCK_ID };

/** Destination of {@link copyToPostgres}. */
export interface PostgresTarget {
  readonly url: string;
  /** Called before the commit, when all rows are in place. Its error rolls back. */
  readonly beforeCommit: () => Promise<void>;
}

/**
 * Checks that a Postgres database, or the schema that the address names, has no tables.
 *
 * @returns server and database for messages, without a password.
 * @throws ConfigError `E_CONFIG` for tables, and the errors of {@link withPatientStore}.
 */
export function requireEmptyPostgres(url: string): Promise<string> {
  return withPatientStore(url, async (store) => {
    await requireEmpty(store, store.db);
    return store.address.where;
  });
}

/**
 * Copies all rows of a SQLite database of this version into an empty Postgres database, or into an empty schema. Tables and rows are
 * created in one transaction, under the lock of migrations: after an error, or the end of the process, the database is empty as before.
 *
 * @param path - Database file, which must have all migrations.
 * @throws ConfigError `E_CONFIG` if the database has tables, and the errors of {@link withPatientStore}.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a value that Postgres cannot store.
 * @throws UnknownOutcomeError `E_UNAVAILABLE` if the connection was lost during the commit and the outcome could not be found out.
 */
export async function copyToPostgres(path: string, { url, beforeCommit }: PostgresTarget): Promise<void> {
  const source = await openConnection(path, 0, { isReadOnly: true });
  try {
    await withPatientStore(url, (store) =>
      runOnce(store.db, async (db) => {
        try {
          // Released at the end of the connection.
          await db.getExecutor().adapter.acquireMigrationLock(db, LOCK_OPTIONS);
          await requireEmpty(store, db);
          await createSchemaIn(store, db);
          await createTablesIn(store, db, { isInTransaction: true });
          await copyRows(source, db);
        } catch (error) {
          throw codeOf(error) === null ? error : toDatabaseUseError(error, store.address, "The records cannot be restored");
        }
        await beforeCommit();
      }).catch((error: unknown) => {
        throw error instanceof UnknownOutcomeError ? unknownOutcomeError(store.address.where, error) : error;
      }),
    );
  } finally {
    source.close();
  }
}

/** Returns the error for a restore with an unknown outcome, with the way to find it out. */
function unknownOutcomeError(where: string, cause: UnknownOutcomeError): UnknownOutcomeError {
  const message = `The connection to the database ${where} was lost during the commit, and whether it was made is not known. If the database has tables, the restore is complete; otherwise run it again`;
  return new UnknownOutcomeError(message, { cause });
}

/** Checks that the schema has no tables. @throws ConfigError `E_CONFIG` otherwise. */
async function requireEmpty({ schema, address }: PatientStore, db: Store): Promise<void> {
  const names = await tablesIn(db, schema);
  if (names.length === 0) return;
  const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : "";
  throw new ConfigError(
    `Expected no tables in the schema '${schema}' of the database ${address.where}, found ${names.length}: ${names.slice(0, MAX_NAMES).join(", ")}${more}. Nothing was restored. Name an empty database, or a new schema with the parameter \`schema\`: postgres://…?schema=restored`,
    { param: "database" },
  );
}

/** Copies the rows of all tables. */
async function copyRows(source: SqliteConnection, db: Store): Promise<void> {
  const tables = tablesOf(source);
  // Removes the rows that migrations insert; a table before the tables that it references.
  for (const { name } of tables.toReversed()) await db.executeQuery(CompiledQuery.raw(`DELETE FROM "${name}"`));
  for (const table of tables) {
    requireStorable(source, table);
    for await (const rows of rowsOf(source, table)) await insertRows(db, table, rows);
  }
}

/** Inserts rows of a table with one statement. @throws DataCorruptedError `E_DATA_CORRUPTED` for a value that Postgres rejects. */
async function insertRows(db: Store, table: DatabaseTable, rows: readonly CopiedRow[]): Promise<void> {
  const width = table.columns.length;
  // Parameters are numbered from 1, row by row.
  const placeholders = rows.map((_, row) => `(${table.columns.map((_column, index) => `$${row * width + index + 1}`).join(", ")})`);
  const values = rows.flatMap((row) => table.columns.map(({ name }) => row[name] ?? null));
  try {
    await db.executeQuery(CompiledQuery.raw(insertInto(table, placeholders.join(", ")), values));
  } catch (error) {
    throw REJECTED_VALUE.test(codeOf(error) ?? "") ? rejectedError(table, messageOf(error), error) : error;
  }
}

/** Checks that no text has the character U+0000. Some versions of SQLite's binding end a text there. */
function requireStorable(source: SqliteConnection, table: DatabaseTable): void {
  for (const { name } of table.columns.filter(({ type }) => type === "text")) {
    const [found] = source.prepare(`SELECT 1 FROM "${table.name}" WHERE instr("${name}", char(0)) > 0 LIMIT 1`).all();
    if (found !== undefined) throw rejectedError(table, `text with the character U+0000 in the column '${name}'`);
  }
}

/** Yields the rows of a table in pages. Integers are `bigint`. */
function rowsOf(source: SqliteConnection, table: DatabaseTable): AsyncGenerator<CopiedRow[], void> {
  const names = table.columns.map(({ name }) => `"${name}"`).join(", ");
  // Pages, because the binding for Node 20 may invalidate an iteration between two rows.
  const select = source.prepare(`SELECT ${names}, rowid AS "${ROWID}" FROM "${table.name}" WHERE rowid > ? ORDER BY rowid LIMIT ?`);
  select.setReadBigInts(true);
  let lastRowid: CopiedRow[string] = BEFORE_FIRST_ROWID;
  return pagesOf((count) => {
    const rows = select.all(lastRowid, count) as CopiedRow[];
    lastRowid = rows.at(-1)?.[ROWID] ?? lastRowid;
    return rows;
  });
}

/** Returns the error for a row that Postgres rejects. */
function rejectedError({ name }: DatabaseTable, found: string, cause?: unknown): DataCorruptedError {
  return new DataCorruptedError(
    `Expected rows that Postgres can store in the table '${name}' of the backup, found: ${found}. Nothing was restored. Restore into a data directory (\`--database ""\`), delete the object there, and make another backup`,
    { cause },
  );
}
