/**
 * Tables and columns of the service's database, for copies between SQLite and Postgres, and the pages in which rows are copied. The list of
 * tables is read from a SQLite file with all migrations, so that a new table is copied without a change here.
 */
import { DEFAULT_MIGRATION_LOCK_TABLE, DEFAULT_MIGRATION_TABLE } from "kysely";
import { InternalError } from "../../../base/errors.ts";
import type { SqliteConnection } from "../connection.ts";

const MIGRATOR_TABLES: readonly string[] = [DEFAULT_MIGRATION_TABLE, DEFAULT_MIGRATION_LOCK_TABLE];

/** Types of columns with values that are converted exactly between SQLite and Postgres. */
const COLUMN_TYPES = ["text", "integer", "bigint", "double precision"] as const;

/** Column of a {@link DatabaseTable}. */
interface Column {
  readonly name: string;
  readonly type: (typeof COLUMN_TYPES)[number];
}

/** Table of the service's database. */
export interface DatabaseTable {
  readonly name: string;
  readonly columns: readonly Column[];
}

/**
 * Lists all tables of a SQLite database, except the tables of SQLite and of the migrator. A table comes after the tables that it
 * references, so that rows can be inserted in this order.
 *
 * @throws InternalError `E_INTERNAL` for a column of another type than {@link COLUMN_TYPES}, and for tables that reference each other.
 */
export function tablesOf(connection: SqliteConnection): DatabaseTable[] {
  const found = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").all() as { name: string }[];
  const names = found.map(({ name }) => name).filter((name) => !name.startsWith("sqlite_") && !MIGRATOR_TABLES.includes(name));
  /** Tables that are not listed yet, with the tables that each one references. */
  const remaining = new Map(names.map((name) => [name, referencesOf(connection, name)]));
  const tables: DatabaseTable[] = [];
  while (remaining.size > 0) {
    const next = [...remaining].find(([, references]) => !references.some((name) => remaining.has(name)))?.[0];
    if (next === undefined) throw new InternalError(`Expected tables without mutual references, got ${[...remaining.keys()].join(", ")}`);
    remaining.delete(next);
    tables.push({ name: next, columns: columnsOf(connection, next) });
  }
  return tables;
}

/** Lists the tables that a table references. */
function referencesOf(connection: SqliteConnection, table: string): string[] {
  const rows = connection.prepare(`PRAGMA foreign_key_list("${table}")`).all() as { table: string }[];
  return rows.map((row) => row.table);
}

/** Lists the columns of a table. */
function columnsOf(connection: SqliteConnection, table: string): Column[] {
  const rows = connection.prepare(`PRAGMA table_info("${table}")`).all() as { name: string; type: string }[];
  return rows.map(({ name, type: declared }) => {
    const type = COLUMN_TYPES.find((each) => each === declared.toLowerCase());
    if (type === undefined) {
      throw new InternalError(`Expected the column '${table}.${name}' to be ${COLUMN_TYPES.join(", ")}, got the type '${declared}'`);
    }
    return { name, type };
  });
}

/** Returns the statement that inserts rows of a table. @param values - Placeholders of the values. */
export function insertInto({ name, columns }: DatabaseTable, values: string): string {
  return `INSERT INTO "${name}" (${columns.map((column) => `"${column.name}"`).join(", ")}) VALUES ${values}`;
}

/** Row by column. Numbers of 64 bits are `bigint` or text. */
export type CopiedRow = Readonly<Record<string, string | number | bigint | null>>;

/** Max rows of a page. */
const MAX_PAGE_ROWS = 500;
/** Intended characters of a page. */
const PAGE_CHARACTERS = 4 * 1024 * 1024;

/**
 * Yields the pages of a table until one is empty. The first page has one row; the number of rows then at most doubles from page to page, and is
 * chosen by the size of the rows of the page before.
 *
 * @param read - Returns the next rows, at most `count`.
 */
export async function* pagesOf(read: (count: number) => CopiedRow[] | Promise<CopiedRow[]>): AsyncGenerator<CopiedRow[], void> {
  let count = 1;
  for (;;) {
    const rows = await read(count);
    if (rows.length === 0) return;
    yield rows;
    let characters = 0;
    for (const row of rows) characters += charactersOf(row);
    const charactersPerRow = Math.max(1, characters / rows.length);
    count = Math.max(1, Math.min(MAX_PAGE_ROWS, 2 * count, Math.floor(PAGE_CHARACTERS / charactersPerRow)));
  }
}

/** Returns the characters of a row; values other than text count as one. */
function charactersOf(row: CopiedRow): number {
  let sum = 0;
  for (const value of Object.values(row)) sum += typeof value === "string" ? value.length : 1;
  return sum;
}
