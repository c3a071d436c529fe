/** Transactions on Postgres: serializable, repeated after conflicts, and with a known outcome if the connection is lost during the commit. */
import { sql, type Transaction } from "kysely";
import { delay } from "../../base/util/delay.ts";
import { first, messageOf } from "../../base/util/values.ts";
import { DatabaseUnavailableError, UnknownOutcomeError } from "./database-errors.ts";
import { isConflict, isUniqueViolation } from "./postgres-errors.ts";
import type { Store, Tables } from "./tables.ts";

/** Max attempts of a transaction that conflicts with others. */
const MAX_ATTEMPTS = 30;
/**
 * Max attempts of a transaction that violates a unique constraint. Of two transactions that read the absence of a row and insert it, one
 * gets this error instead of a conflict, and reads the row when it is repeated.
 */
const MAX_UNIQUE_ATTEMPTS = 3;
/** Base of the range of milliseconds from which the pause before an attempt is drawn: the range doubles with each attempt. */
const PAUSE_MS = 5;
/** Max of this range. */
const MAX_PAUSE_MS = 500;
/** Milliseconds between two queries for the outcome of a transaction. */
const OUTCOME_PAUSE_MS = 500;
/** Milliseconds after the first query during which further queries for the outcome start. */
const OUTCOME_MS = 10_000;

/** Kind of a transaction. */
export interface TransactionKind {
  readonly isolation: "serializable" | "read committed";
  /** Whether the commit waits until the transaction survives a failure of the system. */
  readonly isSynchronized: boolean;
}

/** Runs a transaction, see `transact` of `database.ts`. */
export async function runTransaction<T>(
  store: Store,
  { isolation, isSynchronized }: TransactionKind,
  body: (transaction: Transaction<Tables>) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    // Set after `body` and before the commit: with it, an error is an error of the commit.
    let committing: { readonly id: string; readonly result: T } | undefined;
    try {
      return await store
        .transaction()
        .setIsolationLevel(isolation)
        .execute(async (transaction) => {
          const id = await begin(transaction, { isSynchronized });
          const result = await body(transaction);
          committing = { id, result };
          return result;
        });
    } catch (error) {
      if (committing !== undefined && error instanceof DatabaseUnavailableError) {
        if (await isCommitted(store, committing.id, error)) return committing.result;
      } else if (!isWorthRepeating(error, attempt)) throw isConflict(error) ? tooManyConflicts(error) : error;
    }
    await delay(Math.random() * Math.min(PAUSE_MS * 2 ** attempt, MAX_PAUSE_MS));
  }
}

function tooManyConflicts(cause: unknown): DatabaseUnavailableError {
  const message = `The service's database rejected a change ${MAX_ATTEMPTS} times because of other changes at the same time: ${messageOf(cause)}. Send the request again`;
  return new DatabaseUnavailableError(message, { cause });
}

/** Whether a transaction may succeed after its `attempt`-th attempt (counted from 1) has failed. */
function isWorthRepeating(error: unknown, attempt: number): boolean {
  return (isConflict(error) && attempt < MAX_ATTEMPTS) || (isUniqueViolation(error) && attempt < MAX_UNIQUE_ATTEMPTS);
}

/** Returns the id of the transaction, and with one statement also sets how its commit is synchronized. */
async function begin(transaction: Store, { isSynchronized }: Pick<TransactionKind, "isSynchronized">): Promise<string> {
  const query = isSynchronized
    ? sql<{ id: string }>`select pg_current_xact_id()::text as id`
    : sql<{ id: string }>`select pg_current_xact_id()::text as id, set_config('synchronous_commit', 'off', true)`;
  const { rows } = await query.execute(transaction);
  return first(rows).id;
}

/** Statements that replace limits of time of the server, for transactions that take as long as the rows are many. */
const WITHOUT_LIMITS = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"].map((name) => `set local ${name} = 0`);

/**
 * Runs a transaction that reads one snapshot and has no limit of time. Other transactions neither wait for it nor conflict with it.
 *
 * @throws the error of `body`.
 */
export function readSnapshot<T>(store: Store, body: (snapshot: Transaction<Tables>) => Promise<T>): Promise<T> {
  return store
    .transaction()
    .setIsolationLevel("repeatable read")
    .setAccessMode("read only")
    .execute(async (snapshot) => {
      for (const statement of WITHOUT_LIMITS) await sql.raw(statement).execute(snapshot);
      return body(snapshot);
    });
}

/**
 * Runs a transaction that is not repeated and has no limit of time.
 *
 * @param store - Store with one connection, on which no other statement may run meanwhile.
 * @param body - Called with the connection in the transaction, which may run migrations.
 * @throws the error of `body`, after a rollback.
 * @throws UnknownOutcomeError `E_UNAVAILABLE` if the connection was lost during the commit and the outcome could not be found out.
 */
export async function runOnce(store: Store, body: (db: Store) => Promise<void>): Promise<void> {
  // Set after `body` and before the commit, as in `runTransaction`.
  let committingId: string | undefined;
  try {
    // A migrator accepts no Transaction of Kysely.
    await store.connection().execute(async (db) => {
      const execute = (statement: string) => sql.raw(statement).execute(db);
      await execute("begin isolation level read committed");
      try {
        for (const statement of WITHOUT_LIMITS) await execute(statement);
        const transactionId = await begin(db, { isSynchronized: true });
        await body(db);
        committingId = transactionId;
        await execute("commit");
      } catch (error) {
        await execute("rollback").catch(() => undefined);
        throw error;
      }
    });
  } catch (error) {
    if (committingId === undefined || !(error instanceof DatabaseUnavailableError)) throw error;
    if (!(await isCommitted(store, committingId, error))) throw error;
  }
}

/**
 * Returns whether a transaction was committed. Its connection was lost during the commit.
 *
 * @throws UnknownOutcomeError `E_UNAVAILABLE` if the database does not answer, or no longer knows.
 */
async function isCommitted(store: Store, id: string, cause: DatabaseUnavailableError): Promise<boolean> {
  const endsAtMs = performance.now() + OUTCOME_MS;
  while (performance.now() < endsAtMs) {
    try {
      const { rows } = await sql<{ status: string | null }>`select pg_xact_status(${id}::xid8) as status`.execute(store);
      const status = rows[0]?.status ?? null;
      if (status === "committed" || status === "aborted") return status === "committed";
      // The server has forgotten the transaction. Any other status is `in progress`: it has not noticed the end of the connection.
      if (status === null) break;
    } catch (error) {
      if (!(error instanceof DatabaseUnavailableError)) throw error;
    }
    await delay(OUTCOME_PAUSE_MS);
  }
  throw new UnknownOutcomeError(`${cause.message}. It is not known whether the change was made`, { cause });
}
