/**
 * Interface of the service's database: transactions, locks, and durability. Queries go through the {@link Store}, and
 * must be valid in SQLite and in Postgres.
 *
 * Two implementations: a SQLite file (`sqlite.ts`), and a schema of a Postgres database (`postgres.ts`). Each registers a {@link Database} for
 * its store, and the functions of this module find it by the store that they are given.
 */
import { InternalError } from "../../base/errors.ts";
import type { Store, Tables } from "./tables.ts";
import type { DialectAdapter, RawBuilder, SelectQueryBuilder, Transaction } from "kysely";

/** Function that executes a statement with `?` for each parameter, and returns its rows. */
export type Execute = (sql: string, parameters: readonly unknown[]) => Promise<unknown[]>;

/** Database of a service. */
export interface Database {
  /** Whether other processes may change the database while it is open. */
  readonly isShared: boolean;
  /**
   * Returns a revision number that differs after every change outside {@link unsynchronized}. A value read at the same revision is still
   * current. A shared database has another revision at every call.
   */
  revision(): number;
  /** See {@link currentMs}. */
  currentMs(executor: Store): Promise<number>;
  /** See {@link transact}. */
  transact<T>(store: Store, body: (transaction: Transaction<Tables>) => Promise<T>): Promise<T>;
  /** See {@link transactLocking}. */
  transactLocking<T>(store: Store, body: (transaction: Transaction<Tables>) => Promise<T>): Promise<T>;
  /** See {@link lockName}. */
  lockName(transaction: Store, name: string, isShared: boolean): Promise<void>;
  /** See {@link unsynchronized}. */
  unsynchronized<T>(body: (execute: Execute) => Promise<T>): Promise<T>;
  /** See {@link jsonNumber}. */
  jsonNumber(column: string, key: string): RawBuilder<number>;
  /** See {@link synchronize}. */
  synchronize(): Promise<void>;
}

/** Databases by the adapter of their stores. A restricted store (`visibleIn`) and a transaction have the adapter of the original store. */
const databases = new WeakMap<DialectAdapter, Database>();

/** Registers the database of a store that can be written to. */
export function registerDatabase(store: Store, database: Database): void {
  databases.set(store.getExecutor().adapter, database);
}

/** Returns the database of a store, which must not be opened read-only. */
function databaseOf(store: Store): Database {
  const database = databases.get(store.getExecutor().adapter);
  if (database === undefined) throw new InternalError("Expected a store that can be written to");
  return database;
}

/** Returns the revision of a store, see {@link Database.revision}; 0 for a store that was opened read-only. */
export function revisionOf(store: Store): number {
  return databases.get(store.getExecutor().adapter)?.revision() ?? 0;
}

/** Whether other processes may change the database of the store while it is open. */
export function isShared(store: Store): boolean {
  return databaseOf(store).isShared;
}

/**
 * Returns the time of the database, which is the same for all of its processes, in milliseconds since 1970.
 *
 * @param executor - The store itself, or a transaction on it.
 */
export function currentMs(store: Store, executor: Store): Promise<number> {
  return databaseOf(store).currentMs(executor);
}

/**
 * Runs a transaction as if no other transaction ran at the same time, in any process. Every transaction of the service goes through this
 * function. `body` may be called again after a conflict with another process, so it must have no effect besides its queries, or one that a
 * repetition replaces.
 *
 * @param store - Store, or a restricted store, whose restriction the transaction has as well.
 * @returns the result of `body` after the commit.
 * @throws the error of `body`, after a rollback.
 * @throws UnavailableError `E_UNAVAILABLE` if the database cannot be reached, and if the connection was lost during the commit and the
 *   outcome could not be found out.
 */
export function transact<T>(store: Store, body: (transaction: Transaction<Tables>) => Promise<T>): Promise<T> {
  return databaseOf(store).transact(store, body);
}

/**
 * Runs a transaction that protects itself by the locks of {@link lockFreeRows} and {@link lockName}, instead of conflicting with others.
 * Each statement sees the changes that were committed before it. `body` may be called again, as in {@link transact}.
 *
 * @returns the result of `body` after the commit.
 * @throws as {@link transact}.
 */
export function transactLocking<T>(store: Store, body: (transaction: Transaction<Tables>) => Promise<T>): Promise<T> {
  return databaseOf(store).transactLocking(store, body);
}

/**
 * Returns the selection without the rows that another transaction has locked. Its rows are locked until the end of the transaction, so
 * that concurrent transactions take different rows, for example tasks of a queue, and none waits for another one.
 *
 * @param transaction - Transaction of {@link transactLocking}.
 */
export function lockFreeRows<Names extends keyof Tables, Row>(
  transaction: Store,
  query: SelectQueryBuilder<Tables, Names, Row>,
): SelectQueryBuilder<Tables, Names, Row> {
  // SQLite has one writer, and no locks of rows.
  return databaseOf(transaction).isShared ? query.forUpdate().skipLocked() : query;
}

/**
 * Waits until no other transaction, in any process, has locked a name for itself, or, with `isShared: false`, has locked it at all. The name
 * stays locked until the end of the transaction. Has no effect on a database of this process alone.
 */
export async function lockName(transaction: Store, name: string, { isShared }: { readonly isShared: boolean }): Promise<void> {
  await databaseOf(transaction).lockName(transaction, name, isShared);
}

/**
 * Returns the selection of rows that are locked until the end of the transaction. As the first statement of a transaction, it keeps other
 * changes of these rows from conflicting with the transaction while it runs.
 */
export function lockRows<Names extends keyof Tables, Row>(
  transaction: Store,
  query: SelectQueryBuilder<Tables, Names, Row>,
): SelectQueryBuilder<Tables, Names, Row> {
  return databaseOf(transaction).isShared ? query.forUpdate() : query;
}

/**
 * Runs a transaction that survives the end of the process, but not a failure of the system before the next synchronized one: this saves the
 * synchronization of the disk, which takes milliseconds. It does not change the revision of the store (see {@link revisionOf}), so it must
 * not write to tables whose values are cached by revision. `body` may be called again after a conflict, as in {@link transact}.
 */
export function unsynchronized<T>(store: Store, body: (execute: Execute) => Promise<T>): Promise<T> {
  return databaseOf(store).unsynchronized(body);
}

/** Synchronizes earlier {@link unsynchronized} transactions with the disk. */
export function synchronize(store: Store): Promise<void> {
  return databaseOf(store).synchronize();
}

/** Returns the SQL expression of a number in a JSON object. @param column - Column with the object. @param key - Plain name of the member. */
export function jsonNumber(store: Store, column: string, key: string): RawBuilder<number> {
  return databaseOf(store).jsonNumber(column, key);
}
