/**
 * Postgres servers of tests. `WHETSTONE_TEST_DATABASE=postgres://…` runs all services of `startTestService` and all stores of `openTestStore`
 * on that database, each in a schema of its own. Without it, they use SQLite, and the tests of Postgres use the server on its usual loopback
 * port; they are skipped with the reason if it does not answer.
 */
import { createHash, randomUUID } from "node:crypto";
import { userInfo } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { messageOf } from "../../src/base/util/values.ts";
import { openConnection } from "../../src/service/store/connection.ts";
import { openPostgres } from "../../src/service/store/postgres.ts";
import { createPostgresPool } from "../../src/service/store/postgres-pool.ts";
import { parsePostgresUrl } from "../../src/service/store/postgres-url.ts";
import { openStore } from "../../src/service/store/sqlite.ts";
import type { Store } from "../../src/service/store/tables.ts";

/** Database of the tests of the service; undefined = SQLite. */
const chosen = process.env["WHETSTONE_TEST_DATABASE"] || undefined;
let isSqlite = false;

/** Whether the service of the current test runs on Postgres. */
export function isOnPostgres(): boolean {
  return chosen !== undefined && !isSqlite;
}

/** Runs the services of the current test on SQLite in any case, because the test reads or changes the files of SQLite. */
export function onSqlite(): void {
  isSqlite = true;
  onTestFinished(() => void (isSqlite = false));
}

/** Returns the addresses to try: the chosen one, or databases on the usual port. */
function candidates(): string[] {
  if (chosen !== undefined) return [chosen];
  const user = process.env["PGUSER"] ?? userInfo().username;
  const { PGPORT: port = "5432", PGDATABASE: database } = process.env;
  return [...(database === undefined ? ["test", user, "postgres"] : [database])].map(
    (name) => `postgres://${user}@127.0.0.1:${port}/${name}`,
  );
}

/** Returns the rows of a query at an address, such as one of {@link temporarySchema}. */
export async function queryPostgres(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const pool = await createPostgresPool(parsePostgresUrl(url), { isPatient: true });
  try {
    const client = await pool.connect();
    try {
      return (await client.query<Record<string, unknown>>(sql, [])).rows;
    } finally {
      client.release();
    }
  } finally {
    await pool.end();
  }
}

/** Finds a database in which the tests may create schemas. */
async function find(): Promise<{ readonly url: string | null; readonly reason: string | null }> {
  let reason = "";
  for (const url of candidates()) {
    try {
      const [row] = await queryPostgres(url, "select has_database_privilege(current_database(), 'create') as may_create");
      if (row?.["may_create"] === true) return { url, reason: null };
      reason = `the user may not create schemas in ${new URL(url).pathname.slice(1)}`;
    } catch (error) {
      reason = messageOf(error);
    }
  }
  return { url: null, reason: `no Postgres server on 127.0.0.1 that can be used (${reason})` };
}

const found = await find();

/** Reason why the tests of Postgres are skipped; null if a server answers. */
export const missingPostgres = found.reason;

/** Returns the address of the test server. */
export function postgresUrl(): string {
  if (found.url === null) throw new Error(`There is ${found.reason}`);
  return found.url;
}

/** Returns the address of a schema that the end of the test drops. */
export function temporarySchema(name: string = randomUUID()): string {
  const { schema, url } = schemaOf(name);
  onTestFinished(async () => void (await queryPostgres(postgresUrl(), `drop schema if exists ${schema} cascade`)));
  return url;
}

function schemaOf(name: string): { readonly schema: string; readonly url: string } {
  const schema = `test_${createHash("sha256").update(name).digest("hex").slice(0, 20)}`;
  const url = new URL(postgresUrl());
  url.searchParams.set("schema", schema);
  return { schema, url: url.href };
}

/** Returns the rows of a query on the database of a test service that is running on a data directory. */
export async function queryTestStore(dataDir: string, sql: string): Promise<unknown[]> {
  if (isOnPostgres()) return queryPostgres(schemaOf(dataDir).url, sql);
  const connection = await openConnection(join(dataDir, "whetstone.db"), 1000, { isReadOnly: true });
  try {
    return connection.prepare(sql).all();
  } finally {
    connection.close();
  }
}

/** Returns the option `database` of a test service on a data directory: undefined for SQLite. */
export function testDatabase(dataDir: string): { readonly database?: string } {
  return isOnPostgres() ? { database: temporarySchema(dataDir) } : {};
}

/** Opens the database of a test service on a data directory. Close it with `destroy()`. */
export function openTestStore(dataDir: string): Promise<Store> {
  return isOnPostgres() ? openPostgres(temporarySchema(dataDir)) : openStore(join(dataDir, "whetstone.db"));
}
