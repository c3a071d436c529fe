/** Copy of the rows of a Postgres database into a SQLite file. */
import { sql } from "kysely";
import { DataCorruptedError } from "../../../base/errors.ts";
import { openConnection } from "../connection.ts";
import { createTables, markSnapshot } from "../sqlite.ts";
import type { Store } from "../tables.ts";
import { insertInto, pagesOf, tablesOf, type CopiedRow, type DatabaseTable } from "./tables.ts";

/** Database file to create. */
export interface CopyTarget {
  /** Path of the file, which must not exist. */
  readonly path: string;
  /** Last migration of the source; the file gets the same tables. */
  readonly migration: string;
}

/**
 * Copies all rows of a Postgres database into a new SQLite file, marked as the database of a backup. Rows are read in pages of a few
 * megabytes. The file is not synchronized with the disk; after an error it is incomplete.
 *
 * @param snapshot - Transaction that reads one snapshot (`repeatable read`).
 */
export async function copyFromPostgres(snapshot: Store, { path, migration }: CopyTarget): Promise<void> {
  await createTables(path, migration);
  const connection = await openConnection(path, 0);
  try {
    // An incomplete file is discarded, so it needs no journal.
    connection.exec("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = ON; BEGIN");
    const tables = tablesOf(connection);
    // Removes the rows that migrations insert; a table before the tables that it references.
    for (const { name } of tables.toReversed()) connection.exec(`DELETE FROM "${name}"`);
    for (const table of tables) {
      const insert = connection.prepare(insertInto(table, `(${table.columns.map(() => "?").join(", ")})`));
      for await (const rows of rowsOf(snapshot, table)) for (const row of rows) insert.run(...valuesOf(table, row));
    }
    connection.exec("COMMIT");
  } finally {
    connection.close();
  }
  await markSnapshot(path, true);
}

/** Yields the rows of a table in pages, through a cursor of the server. */
async function* rowsOf(snapshot: Store, { name: table, columns }: DatabaseTable): AsyncGenerator<CopiedRow[], void> {
  // The driver reads a `bigint` as a number, which rounds it.
  const selections = columns.map(({ name, type }) => (type === "bigint" ? `"${name}"::text as "${name}"` : `"${name}"`));
  await sql.raw(`declare copied_rows no scroll cursor for select ${selections.join(", ")} from "${table}"`).execute(snapshot);
  yield* pagesOf(async (count) => {
    const { rows } = await sql.raw<CopiedRow>(`fetch forward ${count} from copied_rows`).execute(snapshot);
    return rows;
  });
  await sql.raw("close copied_rows").execute(snapshot);
}

/** Returns the values of a row for SQLite, in the order of the columns. */
function valuesOf({ name: table, columns }: DatabaseTable, row: CopiedRow): (string | number | bigint | null)[] {
  return columns.map(({ name, type }) => {
    const value = row[name] ?? null;
    // SQLite would store NaN as null.
    if (Number.isNaN(value)) throw new DataCorruptedError(`Expected a number in the column '${table}.${name}', found NaN. Correct the row`);
    return type === "bigint" && value !== null ? BigInt(value) : value;
  });
}
