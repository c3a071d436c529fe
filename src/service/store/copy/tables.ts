/** Tables and columns of the service's database. The tables that the migrations create are the only list of them. */
import { DEFAULT_MIGRATION_LOCK_TABLE, DEFAULT_MIGRATION_TABLE } from "kysely";
import { InternalError } from "../../../base/errors.ts";
import type { SqliteConnection } from "../connection.ts";

/** Types of columns whose values are converted exactly between SQLite and Postgres. */
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
  const isOwn = (name: string) => !name.startsWith("sqlite_") && name !== DEFAULT_MIGRATION_TABLE && name !== DEFAULT_MIGRATION_LOCK_TABLE;
  const remaining = new Map(found.flatMap(({ name }) => (isOwn(name) ? [[name, referencesOf(connection, name)]] : [])));
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
/** Characters of a page that the number of its rows is chosen for. */
const PAGE_CHARACTERS = 4 * 1024 * 1024;

/** Yields the pages of a table until one is empty. `read` returns the next rows, at most `count`, which depends on their size. */
export async function* pagesOf(read: (count: number) => CopiedRow[] | Promise<CopiedRow[]>): AsyncGenerator<CopiedRow[], void> {
  for (let count = 1; ;) {
    const rows = await read(count);
    if (rows.length === 0) return;
    yield rows;
    const charactersPerRow = Math.max(1, rows.reduce((sum, row) => sum + charactersOf(row), 0) / rows.length);
    count = Math.max(1, Math.min(MAX_PAGE_ROWS, 2 * count, Math.floor(PAGE_CHARACTERS / charactersPerRow)));
  }
}

function charactersOf(row: CopiedRow): number {
  return Object.values(row).reduce<number>((sum, value) => sum + (typeof value === "string" ? value.length : 1), 0);
}
