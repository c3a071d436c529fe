/** Copies of all rows between a Postgres database and a SQLite file. */
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { copyFromPostgres } from "../../../../src/service/store/copy/from-postgres.ts";
import { copyToPostgres, requireEmptyPostgres } from "../../../../src/service/store/copy/to-postgres.ts";
import { openConnection } from "../../../../src/service/store/connection.ts";
import { openPostgres } from "../../../../src/service/store/postgres.ts";
import { lastMigration, withPatientStore } from "../../../../src/service/store/postgres-migrations.ts";
import { readSnapshot } from "../../../../src/service/store/postgres-transactions.ts";
import { openStore } from "../../../../src/service/store/sqlite.ts";
import { rowsOfPostgres, rowsOfSqlite } from "../../../support/database-rows.ts";
import { missingPostgres, queryPostgres, temporarySchema } from "../../../support/postgres.ts";
import { startPostgresProxy } from "../../../support/postgres-proxy.ts";
import { temporaryDirectory } from "../../support.ts";

/** Text with the characters that quoting or encoding may change. */
const TEXT = `' " \\ ü 漢 😀 \r\n\t {"a": [1, "\\u0000"]} $1 ?`;
/** Extreme numbers by type. */
const NUMBERS: Readonly<Record<string, string>> = {
  integer: "-2147483648",
  bigint: "9223372036854775807",
  "double precision": "0.1",
};
const ROWS = 3;

interface Column {
  readonly table: string;
  readonly name: string;
  readonly type: string;
  readonly is_nullable: string;
  readonly is_identity: string;
  readonly column_default: string | null;
}

/** Lists the columns of all tables in a schema, without the tables of the migrator. */
async function columnsOf(url: string): Promise<Column[]> {
  const rows = await queryPostgres(
    url,
    `select table_name as table, column_name as name, data_type as type, is_nullable, is_identity, column_default
     from information_schema.columns where table_schema = current_schema() and table_name not like 'kysely%'`,
  );
  return rows as unknown as Column[];
}

/** Creates the tables of a service in a new schema. */
async function emptyTables(): Promise<string> {
  const url = temporarySchema();
  await (await openPostgres(url)).destroy();
  return url;
}

/** Returns the statement that inserts a row: the second has nulls, the third extreme numbers. */
function insertion(columns: readonly Column[], index: number): string {
  const values = columns.map(({ type, is_nullable: nullable }) => {
    if (index === 1 && nullable === "YES") return "null";
    // The texts of a row are equal in all tables, so that references are satisfied.
    if (type === "text") return `'${`${index} ${TEXT}`.replaceAll("'", "''")}'`;
    return index === 2 ? (NUMBERS[type] ?? "") : String(index);
  });
  return `insert into "${columns[0]?.table}" (${columns.map(({ name }) => `"${name}"`).join(", ")}) values (${values.join(", ")})`;
}

/** Creates the tables of a service in a new schema, each with rows of all kinds of values. */
async function filledTables(): Promise<string> {
  const url = await emptyTables();
  const columns = await columnsOf(url);
  let remaining = [...new Set(columns.map(({ table }) => table))].flatMap((table) =>
    Array.from({ length: ROWS }, (_, index) =>
      insertion(
        columns.filter((column) => column.table === table),
        index,
      ),
    ),
  );
  // Rows are inserted after the rows that they reference; that order is not known here.
  while (remaining.length > 0) {
    const failed: string[] = [];
    for (const statement of remaining) await queryPostgres(url, statement).catch(() => failed.push(statement));
    expect(failed.length, failed[0]).toBeLessThan(remaining.length);
    remaining = failed;
  }
  return url;
}

/** Copies a database of Postgres to a new SQLite file. */
async function toSqlite(url: string, during: () => Promise<unknown> = () => Promise.resolve()): Promise<string> {
  const path = join(await temporaryDirectory(), "copy.db");
  await withPatientStore(url, (store) =>
    readSnapshot(store.db, async (db) => {
      const migration = await lastMigration({ ...store, db });
      await during();
      await copyFromPostgres(db, { path, migration });
    }),
  );
  return path;
}

/** Creates a SQLite file with the tables of this version. @param change - Statement to execute on it. */
async function sqliteFile(change: string): Promise<string> {
  const path = join(await temporaryDirectory(), "made.db");
  await (await openStore(path)).destroy();
  const connection = await openConnection(path, 0);
  connection.exec(change);
  connection.close();
  return path;
}

const done = () => Promise.resolve();
const addEntity = (name: string) => `insert into entities (entity, limits) values ('${name}', '{}')`;
const tablesIn = (url: string) => queryPostgres(url, "select tablename from pg_tables where schemaname = current_schema()");

describe.skipIf(missingPostgres !== null)(`with Postgres${missingPostgres === null ? "" : `: ${missingPostgres}`}`, () => {
  test("every row of every table is the same after a copy to SQLite, and after a copy back", async () => {
    const url = await filledTables();
    const expected = await rowsOfPostgres(url);
    for (const [table, rows] of Object.entries(expected)) expect(rows.length, table).toBeGreaterThanOrEqual(ROWS);
    const path = await toSqlite(url);
    expect(await rowsOfSqlite(path)).toEqual(expected);
    const back = temporarySchema();
    await copyToPostgres(path, { url: back, beforeCommit: done });
    expect(await rowsOfPostgres(back)).toEqual(expected);
  });

  test("no column has a number that the database generates: a copy would have to continue its sequence", async () => {
    const columns = await columnsOf(await emptyTables());
    const generated = columns.filter((column) => column.is_identity === "YES" || column.column_default?.includes("nextval"));
    expect(generated).toEqual([]);
  });

  test("a copy has the rows at the start of its snapshot, without waiting for or delaying a change", async () => {
    const url = await emptyTables();
    await queryPostgres(url, addEntity("before"));
    const path = await toSqlite(url, () => queryPostgres(url, addEntity("after")));
    expect((await rowsOfSqlite(path))["entities"]).toEqual(['[["entity","before"],["limits","{}"]]']);
  });

  test("a copy of tables of an earlier version has the tables of that version", async () => {
    const url = await emptyTables();
    await queryPostgres(url, "delete from kysely_migration where name >= '0008'");
    const tables = Object.keys(await rowsOfSqlite(await toSqlite(url)));
    expect(tables).toEqual(expect.arrayContaining(["models", "files"]));
    expect(tables).not.toContain("api_keys");
  });

  test("many rows, and rows of several megabytes, are copied in several pages and insertions", async () => {
    const url = await emptyTables();
    await queryPostgres(url, "insert into entities select 'e' || n, repeat('x', 100) from generate_series(1, 2500) n");
    await queryPostgres(url, "insert into entities select 'large' || n, repeat('ü', 3000000) from generate_series(1, 3) n");
    const path = await toSqlite(url);
    const back = temporarySchema();
    await copyToPostgres(path, { url: back, beforeCommit: done });
    const [row] = await queryPostgres(back, "select count(*) as count, sum(length(limits)) as sum from entities");
    expect(row).toEqual({ count: 2503, sum: 250_000 + 9_000_000 });
  });

  test("a database with tables is refused by their names, and not changed", async () => {
    const [url, path] = [temporarySchema(), await sqliteFile(addEntity("a"))];
    await copyToPostgres(path, { url, beforeCommit: done });
    const refused = {
      code: "E_CONFIG",
      param: "database",
      message: expect.stringMatching(/^Expected no tables in the schema '\w+' of .*, found \d+: api_keys, .* and \d+ more\. Nothing was/u),
    };
    await expect(requireEmptyPostgres(url)).rejects.toMatchObject(refused);
    await expect(copyToPostgres(path, { url, beforeCommit: done })).rejects.toMatchObject(refused);
    expect((await rowsOfPostgres(url))["entities"]).toHaveLength(1);
  });

  test.each([
    [
      "text that Postgres cannot store",
      addEntity("a' || char(0) || 'b"),
      done,
      "'entities' of the backup, found: text with the character U+0000",
    ],
    ["a number that is too large", "update transaction_count set count = 3000000000", done, "'transaction_count'"],
    ["an error before the commit", addEntity("a"), () => Promise.reject(new Error("the disk fails")), "the disk fails"],
  ])("%s leaves no table", async (_, change, beforeCommit, message) => {
    const url = temporarySchema();
    const path = await sqliteFile(change);
    await expect(copyToPostgres(path, { url, beforeCommit })).rejects.toThrow(message);
    expect(await tablesIn(url)).toEqual([]);
  });

  test.each(["cut", "forward and cut"] as const)(
    "a connection that is lost at the commit (%s) leaves no table or all rows, and the result says which",
    async (verdict) => {
      const url = temporarySchema();
      const { proxy, database } = await startPostgresProxy(url);
      const path = await sqliteFile(addEntity("a"));
      proxy.judge = (data) => (data.includes("commit\0") ? verdict : "forward");
      const copied = copyToPostgres(path, { url: database, beforeCommit: done });
      if (verdict === "cut") await expect(copied).rejects.toMatchObject({ code: "E_UNAVAILABLE" });
      else await copied;
      expect((await tablesIn(url)).length > 0).toBe(verdict !== "cut");
    },
  );

  test("a user without the right to create tables gets an error that names the schema", async () => {
    const url = temporarySchema();
    const schema = new URL(url).searchParams.get("schema");
    const role = `${schema}_user`;
    for (const statement of [`create schema ${schema}`, `create role ${role} login`, `grant usage on schema ${schema} to ${role}`])
      await queryPostgres(url, statement);
    const address = new URL(url);
    address.username = role;
    const copied = copyToPostgres(await sqliteFile(addEntity("a")), { url: address.href, beforeCommit: done }).catch(
      (error: unknown) => error,
    );
    const error = await copied;
    for (const statement of [`revoke all on schema ${schema} from ${role}`, `drop role ${role}`]) await queryPostgres(url, statement);
    expect(error).toMatchObject({
      code: "E_CONFIG",
      param: "database",
      message: expect.stringContaining(`Expected the right to create tables in the schema '${schema}'`),
    });
  });
});
