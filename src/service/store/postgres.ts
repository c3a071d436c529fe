/** Schema of a Postgres database as the database of one or more service processes. */
import { CompiledQuery, Kysely, sql } from "kysely";
import { first } from "../../base/util/values.ts";
import { registerDatabase, type Database } from "./database.ts";
import { ServicePostgresDialect } from "./postgres-dialect.ts";
import { migrate } from "./postgres-migrations.ts";
import { createPostgresPool } from "./postgres-pool.ts";
import { runTransaction } from "./postgres-transactions.ts";
import { parsePostgresUrl } from "./postgres-url.ts";
import type { Store, Tables } from "./tables.ts";

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
  await migrate(url, whyNotNew);
  const store = new Kysely<Tables>({ dialect: new ServicePostgresDialect(await createPostgresPool(parsePostgresUrl(url))) });
  registerDatabase(store, databaseOf(store));
  return store;
}

/** Returns the operations of a Postgres database for its store. */
function databaseOf(store: Store): Database {
  let revision = 0;
  return {
    isShared: true,
    // Another process may have changed anything.
    revision: () => ++revision,
    async currentMs(executor) {
      const query = sql<{ now: number }>`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now`;
      const { rows } = await query.execute(executor);
      return first(rows).now;
    },
    transact: (visible, body) => runTransaction(visible, { isolation: "serializable", isSynchronized: true }, body),
    async lockName(transaction, name, isShared) {
      const key = sql`hashtextextended(current_schema() || '/' || ${name}, 0)`;
      const lock = isShared ? sql`select pg_advisory_xact_lock_shared(${key})` : sql`select pg_advisory_xact_lock(${key})`;
      await lock.execute(transaction);
    },
    // A serializable transaction would conflict with the claims that were committed after its start.
    transactLocking: (visible, body) => runTransaction(visible, { isolation: "read committed", isSynchronized: true }, body),
    unsynchronized: (body) =>
      runTransaction(store, { isolation: "read committed", isSynchronized: false }, (transaction) =>
        body(async (statement, parameters) => {
          const query = CompiledQuery.raw(numberPlaceholders(statement), [...parameters]);
          return (await transaction.executeQuery(query)).rows;
        }),
      ),
    jsonNumber: (column, key) => sql<number>`(${sql.ref(column)}::jsonb ->> ${key})::double precision`,
    // Postgres writes unsynchronized transactions to the disk within three times `wal_writer_delay`, 0.6 s by default.
    synchronize: () => Promise.resolve(),
  };
}

/** Replaces each `?` of a statement by the numbered placeholder of Postgres. */
function numberPlaceholders(statement: string): string {
  let count = 0;
  return statement.replaceAll("?", () => `$${++count}`);
}
