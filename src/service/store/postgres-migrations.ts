/** Tables of the service in a schema of a Postgres database: creation, migration, and connections for long statements. */
import { Kysely, Migrator, sql } from "kysely";
import { ConfigError, InternalError, WhetstoneError } from "../../base/errors.ts";
import { first, messageOf } from "../../base/util/values.ts";
import { requireKnownMigrations } from "./checks.ts";
import { MIGRATIONS } from "./migrations.ts";
import { ServicePostgresDialect } from "./postgres-dialect.ts";
import { codeOf } from "./postgres-errors.ts";
import { createPostgresPool } from "./postgres-pool.ts";
import { parsePostgresUrl, type PostgresAddress } from "./postgres-url.ts";
import type { Store, Tables } from "./tables.ts";

/** Oldest supported version of Postgres, as `server_version_num`. */
const MIN_VERSION = 130_000;

/** Store on a single connection to a Postgres database, without a limit of time for statements. */
export interface PatientStore {
  /** Store with one connection at a time. */
  readonly db: Store;
  /** Schema of the tables. */
  readonly schema: string;
  readonly address: PostgresAddress;
}

/**
 * Calls `use` with a connection for migrations and copies. The address may name a schema that does not exist.
 *
 * @throws ConfigError `E_CONFIG` for an invalid address, a user or a database that the server rejects, a server before Postgres 13, and a
 *   connection without a schema.
 * @throws EngineMissingError `E_ENGINE_MISSING` if the package `pg` is not installed.
 * @throws UnavailableError `E_UNAVAILABLE` if the server cannot be reached.
 */
export async function withPatientStore<T>(url: string, use: (store: PatientStore) => Promise<T>): Promise<T> {
  const address = parsePostgresUrl(url);
  const db = new Kysely<Tables>({ dialect: new ServicePostgresDialect(await createPostgresPool(address, { isPatient: true })) });
  try {
    const schema = await schemaOf(db, address).catch((error: unknown) => {
      throw toDatabaseUseError(error, address);
    });
    return await use({ db, schema, address });
  } finally {
    await db.destroy();
  }
}

/**
 * Brings the tables to this version, in one transaction under a lock.
 *
 * @param whyNotNew - Error message for a database without tables of the service, if they must not be created; null if they may.
 */
export function migrate(url: string, whyNotNew: string | null): Promise<void> {
  return withPatientStore(url, async (store) => {
    try {
      const applied = await appliedMigrations(store);
      if (applied.length === 0 && whyNotNew !== null) throw new ConfigError(whyNotNew, { param: "dataDir" });
      await createTablesIn(store, store.db);
    } catch (error) {
      throw toDatabaseUseError(error, store.address);
    }
  });
}

/**
 * Creates and migrates the tables.
 *
 * @param options.isInTransaction - Whether `db` is a connection in a transaction, which the caller commits. @default false
 */
export async function createTablesIn(
  { schema }: PatientStore,
  db: Store,
  { isInTransaction = false }: { readonly isInTransaction?: boolean | undefined } = {},
): Promise<void> {
  const provider = { getMigrations: () => Promise.resolve(MIGRATIONS) };
  const migrator = new Migrator({ db, provider, migrationTableSchema: schema, disableTransactions: isInTransaction });
  const { error } = await migrator.migrateToLatest();
  if (error !== undefined) throw error;
}

/**
 * Creates the schema of the tables if it is missing, in a transaction.
 *
 * @throws ConfigError `E_CONFIG` if the user may not create tables in it.
 */
export async function createSchemaIn({ schema, address }: PatientStore, db: Store): Promise<void> {
  const { rows } = await sql<{ isAllowed: boolean }>`
    select has_schema_privilege(oid, 'create') as "isAllowed" from pg_namespace where nspname = ${schema}`.execute(db);
  const [found] = rows;
  if (found === undefined) await sql`create schema ${sql.id(schema)}`.execute(db);
  else if (!found.isAllowed) {
    throw new ConfigError(
      `Expected the right to create tables in the schema '${schema}' of the database ${address.where}, found none. Grant it, or name a schema of the user with the parameter \`schema\``,
      { param: "database" },
    );
  }
}

/** Returns the schema of the tables. @throws ConfigError `E_CONFIG` for an old server, and for a connection without a schema. */
async function schemaOf(db: Store, { schema, where }: PostgresAddress): Promise<string> {
  const { rows } = await sql<{ version: string; schema: string | null }>`
    select current_setting('server_version_num') as version, current_schema() as schema`.execute(db);
  const { version, schema: currentSchema } = first(rows);
  if (Number(version) < MIN_VERSION) {
    throw new ConfigError(`Expected the database ${where} to be Postgres 13 or newer, got ${version}`, { param: "database" });
  }
  const tableSchema = schema ?? currentSchema;
  if (tableSchema !== null) return tableSchema;
  throw new ConfigError(
    `The database ${where} has no schema for the tables. Name one with the parameter \`schema\`: postgres://…?schema=whetstone`,
    { param: "database" },
  );
}

/**
 * Returns the names of the migrations that were applied, oldest first; none without tables of the service.
 *
 * @throws ConfigError `E_CONFIG` for a migration that this version does not know.
 */
async function appliedMigrations({ db, schema, address }: PatientStore): Promise<string[]> {
  if (!(await tablesIn(db, schema)).includes("kysely_migration")) return [];
  const { rows } = await sql<{ name: string }>`select name from ${sql.id(schema, "kysely_migration")} order by name`.execute(db);
  const names = rows.map(({ name }) => name);
  requireKnownMigrations(names, address.where, "database");
  return names;
}

/**
 * Returns the name of the last applied migration.
 *
 * @throws ConfigError `E_CONFIG` for a database without tables of the service, and for a migration that this version does not know.
 */
export async function lastMigration(store: PatientStore): Promise<string> {
  const last = (await appliedMigrations(store)).at(-1);
  if (last !== undefined) return last;
  throw new ConfigError(
    `Expected the tables of a service in the schema '${store.schema}' of the database ${store.address.where}, found none. Name the database, and its schema with the parameter \`schema\``,
    { param: "database" },
  );
}

/** Lists the tables of a schema, also of other programs. */
export async function tablesIn(db: Store, schema: string): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    select tablename as name from pg_tables where schemaname = ${schema} order by tablename`.execute(db);
  return rows.map(({ name }) => name);
}

/**
 * Returns the error for an error of the server: the reason and the remedy, without the address, which may have a password. Errors of this
 * package are returned unchanged.
 *
 * @param failure - Sentence for errors that have no remedy.
 */
export function toDatabaseUseError(
  error: unknown,
  { where }: PostgresAddress,
  failure = "The tables cannot be brought to this version",
): unknown {
  if (WhetstoneError.isInstance(error)) return error;
  const code = codeOf(error) ?? "";
  const message = `The database ${where} cannot be used: ${messageOf(error)}`;
  // The user or the password (28), the database (3D000), or a permission (42501).
  const isAddressRejected = /^(?:28|3D|42501)/u.test(code);
  // An error without a code of the server belongs to the connection, such as one of its encryption.
  const isFromServer = /^[0-9A-Z]{5}$/u.test(code);
  if (isAddressRejected || !isFromServer) {
    return new ConfigError(`${message}. Correct the address, or create the user and the database with the right to create tables`, {
      cause: error,
      param: "database",
    });
  }
  return new InternalError(`${failure}: ${message}`, { cause: error });
}
