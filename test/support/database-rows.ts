/** All rows of a database of the service, to compare databases of both kinds. */
import { openConnection } from "../../src/service/store/connection.ts";
import { queryPostgres } from "./postgres.ts";

/** Rows by table: each row as JSON with its columns in alphabetical order and numbers as text, in the order of these texts. */
export type DatabaseRows = Readonly<Record<string, readonly string[]>>;

/** Returns all rows of the tables in a schema of Postgres, without the tables of the migrator. */
export async function rowsOfPostgres(url: string): Promise<DatabaseRows> {
  const columns = (await queryPostgres(
    url,
    `select table_name as table, column_name as name, data_type as type from information_schema.columns
     where table_schema = current_schema() and table_name not like 'kysely%'`,
  )) as { table: string; name: string; type: string }[];
  const lists = new Map<string, string[]>();
  for (const { table, name, type } of columns) {
    // The driver rounds numbers of 64 bits.
    lists.set(table, [...(lists.get(table) ?? []), type === "bigint" ? `"${name}"::text as "${name}"` : `"${name}"`]);
  }
  const tables: Record<string, readonly string[]> = {};
  for (const [table, list] of lists) tables[table] = toTexts(await queryPostgres(url, `select ${list.join(", ")} from "${table}"`));
  return tables;
}

/** Returns all rows of the tables in a SQLite file, without the tables of the migrator. */
export async function rowsOfSqlite(path: string): Promise<DatabaseRows> {
  const connection = await openConnection(path, 1000, { isReadOnly: true });
  try {
    const names = connection
      .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'kysely%' AND name NOT LIKE 'sqlite%'")
      .all() as { name: string }[];
    const rows = names.map(({ name }) => {
      const select = connection.prepare(`SELECT * FROM "${name}"`);
      select.setReadBigInts(true);
      return [name, toTexts(select.all() as Record<string, unknown>[])] as const;
    });
    return Object.fromEntries(rows);
  } finally {
    connection.close();
  }
}

function toTexts(rows: readonly Readonly<Record<string, unknown>>[]): string[] {
  const toText = (value: unknown) => (value === null ? null : String(value as string | number | bigint));
  return rows
    .map((row) =>
      JSON.stringify(
        Object.keys(row)
          .toSorted()
          .map((name) => [name, toText(row[name])]),
      ),
    )
    .toSorted();
}
