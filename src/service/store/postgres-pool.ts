/** Connections to Postgres through the package `pg`, which is loaded when a service is started on Postgres. */
import type { PostgresPool, PostgresPoolClient } from "kysely";
import { EngineMissingError } from "../../base/errors.ts";
import { DatabaseUnavailableError } from "./database-errors.ts";
import { isConnectionLoss, toDatabaseError } from "./postgres-errors.ts";
import type { PostgresAddress } from "./postgres-url.ts";

/** Subset of a client of `pg`. */
interface PgClient {
  query<Row>(sql: string, parameters?: readonly unknown[]): Promise<{ command: string; rowCount: number; rows: Row[] }>;
  on(event: "error", listener: (error: Error) => void): unknown;
}

/** Client that belongs to a pool. */
interface PgPoolClient extends PgClient {
  /** Returns the client to the pool; with `true` closes its connection. */
  release(error?: boolean): void;
}

/** Subset of a pool of `pg`. */
interface PgPool {
  connect(): Promise<PgPoolClient>;
  end(): Promise<void>;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "connect" | "remove", listener: (client: PgClient) => void): unknown;
}

/** Configuration of a pool, with the names of `pg`. */
type Config = Readonly<Record<string, unknown>>;

/** Subset of the module `pg`. */
interface PgModule {
  readonly Pool: new (config: Config) => PgPool;
  readonly types: { getTypeParser(oid: number, format?: string): (value: string) => unknown };
}

/**
 * Object ids of types that the driver returns as text, because their range is larger than that of a number, and that the service reads as
 * numbers: `bigint`, and `numeric`, the type of sums of `bigint`.
 */
const NUMBER_TYPES: ReadonlySet<number> = new Set([20, 1700]);

/**
 * Limits in milliseconds of waiting for the server, which parameters of the address replace. A statement fails rather than waiting for a
 * connection that has silently ended; two of them in a row take less time than the default of a job's lease.
 */
const TIMEOUTS = {
  connectionTimeoutMillis: 10_000,
  query_timeout: 14_000,
  statement_timeout: 12_000,
  lock_timeout: 10_000,
  // A process that stops in a transaction releases its locks.
  idle_in_transaction_session_timeout: 15_000,
};

/** Replacements of {@link TIMEOUTS} for migrations, which take time for many rows and wait for the migrations of other processes. */
const NO_TIMEOUTS = { query_timeout: 0, statement_timeout: 0, lock_timeout: 0, idle_in_transaction_session_timeout: 0 };

/** Max connections of a process for statements. */
const MAX_CONNECTIONS = 10;

/** Loads the driver. @throws EngineMissingError `E_ENGINE_MISSING` if it is not installed. */
async function loadPg(): Promise<PgModule> {
  try {
    const { default: module } = (await import("pg" as string)) as { readonly default: PgModule };
    return module;
  } catch (cause) {
    throw new EngineMissingError("A Postgres database needs the package 'pg', which cannot be loaded. Install it with: npm install pg", {
      cause,
    });
  }
}

/** Returns the parameters of an address that replace {@link TIMEOUTS}. The driver would use some of them as text, and others not at all. */
function timeoutsOf(connectionString: string): Config {
  const { searchParams } = new URL(connectionString);
  const names = Object.keys(TIMEOUTS).filter((name) => searchParams.has(name));
  return Object.fromEntries(names.map((name) => [name, Number(searchParams.get(name))]));
}

/** Returns the configuration of a pool for an address. */
function configOf({ connectionString, schema }: PostgresAddress, { types }: PgModule): Config {
  return {
    application_name: "whetstone",
    keepAlive: true,
    ...TIMEOUTS,
    ...timeoutsOf(connectionString),
    connectionString,
    types: {
      getTypeParser: (oid: number, format?: string) =>
        NUMBER_TYPES.has(oid) && format !== "binary" ? Number : types.getTypeParser(oid, format),
    },
    ...(schema === null ? {} : { options: `-c search_path=${schema}` }),
  };
}

/** Options of {@link createPostgresPool}. */
interface PoolOptions {
  /** Whether to open only one connection, whose statements have no limit of time. @default false */
  readonly isPatient?: boolean | undefined;
}

/** Creates a pool for Kysely, whose errors are errors of this package if the connection or the server failed. */
export async function createPostgresPool(address: PostgresAddress, { isPatient = false }: PoolOptions = {}): Promise<PostgresPool> {
  const pg = await loadPg();
  const pool = new pg.Pool({ ...configOf(address, pg), ...(isPatient ? NO_TIMEOUTS : {}), max: isPatient ? 1 : MAX_CONNECTIONS });
  // A connection that ends is replaced, and its statements report the error. Without listeners the process would end.
  pool.on("error", () => undefined);
  const connectedClients = new Set<PgClient>();
  /** Clients that are replaced before their next use. */
  const suspectClients = new WeakSet<PgClient>();
  pool.on("connect", (client) => {
    connectedClients.add(client);
    client.on("error", () => undefined);
  });
  pool.on("remove", (client) => void connectedClients.delete(client));
  // A connection that has silently ended, for example in a firewall that lost its state, is rarely the only one.
  const onLost = () => {
    for (const client of connectedClients) suspectClients.add(client);
  };
  return {
    end: () => pool.end(),
    async connect() {
      try {
        for (;;) {
          const client = await pool.connect();
          if (!suspectClients.has(client)) return forKysely(client, { where: address.where, onLost });
          client.release(true);
        }
      } catch (error) {
        throw toDatabaseError(error, address.where);
      }
    },
  };
}

/**
 * Adapts a client to Kysely. A connection that has failed is closed when it is released.
 *
 * @param context - Server for messages, and a function to call when the connection fails.
 */
function forKysely(client: PgPoolClient, { where, onLost }: { readonly where: string; readonly onLost: () => void }): PostgresPoolClient {
  let isBroken = false;
  const query = async (sql: string, parameters: readonly unknown[]) => {
    // The end of the connection ends the transaction, and the error that broke it is the one to report.
    if (isBroken && sql === "rollback") return { command: "ROLLBACK", rowCount: 0, rows: [] };
    try {
      return await client.query(sql, parameters);
    } catch (error) {
      const reason = toDatabaseError(error, where);
      if (reason instanceof DatabaseUnavailableError) {
        isBroken = true;
        if (isConnectionLoss(error)) onLost();
      }
      throw reason;
    }
  };
  return { query, release: () => client.release(isBroken) } as PostgresPoolClient;
}
