/** Schema of a Postgres database as the database of one or more service processes. */
import { CompiledQuery, Kysely, Migrator, sql } from "kysely";
import { ConfigError, InternalError, WhetstoneError } from "../../base/errors.ts";
import { first, messageOf } from "../../base/util/values.ts";
import { requireKnownMigrations } from "./checks.ts";
import { registerDatabase, type Execute } from "./database.ts";
import { MIGRATIONS } from "./migrations.ts";
import { ServicePostgresDialect } from "./postgres-dialect.ts";
import { createPool } from "./postgres-pool.ts";
import { codeOf } from "./postgres-errors.ts";
import { runTransaction } from "./postgres-transactions.ts";
import { parsePostgresUrl, type PostgresAddress } from "./postgres-url.ts";
import type { Store, Tables } from "./tables.ts";

/** Oldest supported version of Postgres, as `server_version_num`. */
const MIN_VERSION = 130_000;

/** Options of {@link openPostgres}. */
export interface OpenPostgresOptions {
  /** Error message for a database without tables of the service, if they must not be created; null if they may. @default null */
  readonly whyNotNew?: string | null | undefined;
}

/**
 * Opens a Postgres database, creating and migrating the tables of the service if necessary. Migrations run in one transaction under a lock,
 * so that several processes may start at once.
 *
 * @param url - Address of the form `postgres://user:password@host:5432/database`. The parameter `schema` names the schema of the tables,
 *   which is created if it is missing. @default the current schema, usually `public`
 * @throws ConfigError `E_CONFIG` for an invalid address, a user or a database that the server rejects, a server before Postgres 13, a database of a
 *   newer version, and for one without tables if `whyNotNew` is given.
 * @throws EngineMissingError `E_ENGINE_MISSING` if the package `pg` is not installed.
 * @throws UnavailableError `E_UNAVAILABLE` if the server cannot be reached.
 */
export async function openPostgres(url: string, { whyNotNew = null }: OpenPostgresOptions = {}): Promise<Store> {
  const address = parsePostgresUrl(url);
  await migrate(address, whyNotNew);
  const store = new Kysely<Tables>({ dialect: new ServicePostgresDialect(await createPool(address)) });
  let revision = 0;
  registerDatabase(store, {
    isShared: true,
    // Another process may have changed anything.
    revision: () => ++revision,
    async currentMs(executor) {
      const { rows } = await sql<{ now: number }>`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now`.execute(
        executor,
      );
      return first(rows).now;
    },
    transact: (visible, body) => runTransaction(visible, { isolation: "serializable", isSynchronized: true }, body),
    async lockName(transaction, name, isShared) {
      const key = sql`hashtextextended(current_schema() || '/' || ${name}, 0)`;
      await (isShared ? sql`select pg_advisory_xact_lock_shared(${key})` : sql`select pg_advisory_xact_lock(${key})`).execute(transaction);
    },
    // A serializable transaction would conflict with the claims that were committed after its start.
    transactLocking: (visible, body) => runTransaction(visible, { isolation: "read committed", isSynchronized: true }, body),
    unsynchronized: (body) =>
      runTransaction(store, { isolation: "read committed", isSynchronized: false }, (transaction) => {
        const execute: Execute = async (statement, parameters) => {
          let count = 0;
          const numbered = statement.replaceAll("?", () => `$${++count}`);
          return (await transaction.executeQuery(CompiledQuery.raw(numbered, [...parameters]))).rows;
        };
        return body(execute);
      }),
    jsonNumber: (column, key) => sql<number>`(${sql.ref(column)}::jsonb ->> ${key})::double precision`,
    // Postgres writes unsynchronized transactions to the disk within three times `wal_writer_delay`, 0.6 s by default.
    synchronize: () => Promise.resolve(),
  });
  return store;
}

/** Brings the tables to this version, on a connection without a limit of time for statements. */
async function migrate(address: PostgresAddress, whyNotNew: string | null): Promise<void> {
  const store = new Kysely<Tables>({ dialect: new ServicePostgresDialect(await createPool(address, { isPatient: true })) });
  try {
    const schema = await schemaOf(store, address);
    const known = await knownMigrations(store, schema);
    requireKnownMigrations(known, address.where, "database");
    if (known.length === 0 && whyNotNew !== null) throw new ConfigError(whyNotNew, { param: "dataDir" });
    const provider = { getMigrations: () => Promise.resolve(MIGRATIONS) };
    const { error } = await new Migrator({ db: store, provider, migrationTableSchema: schema }).migrateToLatest();
    if (error !== undefined) throw error;
  } catch (error) {
    throw toStartError(error, address);
  } finally {
    await store.destroy();
  }
}

/** Returns the schema of the tables. @throws ConfigError `E_CONFIG` for an old server, and for a connection without a schema. */
async function schemaOf(store: Store, { schema, where }: PostgresAddress): Promise<string> {
  const { rows } = await sql<{ version: string; schema: string | null }>`
    select current_setting('server_version_num') as version, current_schema() as schema`.execute(store);
  const found = first(rows);
  if (Number(found.version) < MIN_VERSION) {
    throw new ConfigError(`Expected the database ${where} to be Postgres 13 or newer, got ${found.version}`, { param: "database" });
  }
  if ((schema ?? found.schema) !== null) return (schema ?? found.schema) as string;
  throw new ConfigError(
    `The database ${where} has no schema for the tables. Name one with the parameter \`schema\`: postgres://…?schema=whetstone`,
    {
      param: "database",
    },
  );
}

/** Returns the names of the migrations that were applied. */
async function knownMigrations(store: Store, schema: string): Promise<string[]> {
  const tables = await sql`select 1 from pg_tables where schemaname = ${schema} and tablename = 'kysely_migration'`.execute(store);
  if (tables.rows.length === 0) return [];
  const { rows } = await sql<{ name: string }>`select name from ${sql.id(schema, "kysely_migration")} order by name`.execute(store);
  return rows.map(({ name }) => name);
}

/** Returns the error of a start: the reason and the remedy, without the address, which may have a password. */
function toStartError(error: unknown, { where }: PostgresAddress): unknown {
  if (WhetstoneError.isInstance(error)) return error;
  const code = codeOf(error) ?? "";
  const message = `The database ${where} cannot be used: ${messageOf(error)}`;
  // The user or the password (28), the database (3D000), a permission (42501), or the encryption of the connection.
  if (/^(?:28|3D|42501)/u.test(code) || !/^[0-9A-Z]{5}$/u.test(code)) {
    return new ConfigError(`${message}. Correct the address, or create the user and the database with the right to create tables`, {
      cause: error,
      param: "database",
    });
  }
  return new InternalError(`The tables cannot be brought to this version: ${message}`, { cause: error });
}
