/**
 * Transactions on the SQLite connection of a store. There are three kinds:
 *
 * - Transactions of Kysely, which executes the statements `begin`, `commit` and `rollback`.
 * - Single statements outside of a transaction, each of which gets a transaction of its own.
 * - Transactions of {@link Transactions.runUncounted}, which are not synchronized with the disk.
 *
 * The `HighWaterMark` counts the first two kinds if they have changed rows: its number in the database is incremented before the commit, and
 * its file is written after the commit.
 */
import { getOrInsert } from "../../base/util/values.ts";
import type { SqliteConnection, SqliteStatement } from "./connection.ts";
import type { HighWaterMark } from "./high-water-mark.ts";

/** Pattern of the statements that change rows. */
const CHANGE = /^\s*(?:insert|update|delete|replace)\b/iu;

/** Result of a statement: its rows, or the number of changes. */
type StatementResult = ReturnType<SqliteStatement["all"]> | ReturnType<SqliteStatement["run"]>;

/**
 * Creates a `rollback` that succeeds if SQLite has already rolled back, as on a full disk. Otherwise Kysely would report the failed
 * rollback instead of the original error.
 */
function rollbackOf(connection: SqliteConnection): SqliteStatement {
  const statement = connection.prepare("rollback");
  return {
    columns: () => [],
    all: () => [],
    iterate: () => [].values(),
    run() {
      try {
        return statement.run();
      } catch (error) {
        if (error instanceof Error && error.message.includes("no transaction is active")) return { changes: 0, lastInsertRowid: 0 };
        throw error;
      }
    },
  };
}

/** Whether a statement has changed rows, by its result: the rows that it returned, or their number. */
function hasChanges(result: StatementResult): boolean {
  return Array.isArray(result) ? result.length > 0 : Number(result.changes) > 0;
}

/** Transactions of one connection. */
export class Transactions {
  readonly #connection: SqliteConnection;
  readonly #mark: HighWaterMark;
  readonly #begin: SqliteStatement;
  readonly #commit: SqliteStatement;
  readonly #rollback: SqliteStatement;
  /** Whether the transaction that Kysely has begun has changed rows; null outside of one. */
  #hasChanged: boolean | null = null;
  /** Statements of {@link prepareOnce} by their text. */
  readonly #uncounted = new Map<string, SqliteStatement>();

  constructor(connection: SqliteConnection, mark: HighWaterMark) {
    this.#connection = connection;
    this.#mark = mark;
    this.#begin = connection.prepare("begin");
    this.#commit = connection.prepare("commit");
    this.#rollback = rollbackOf(connection);
  }

  /** Prepares a statement. A statement that changes rows outside of a transaction runs in a transaction of its own. */
  prepare(sql: string): SqliteStatement {
    const statement = sql === "rollback" ? this.#rollback : this.#connection.prepare(sql);
    const execute = this.#executor(sql);
    return {
      columns: () => statement.columns(),
      all: (...parameters) => execute(() => statement.all(...parameters)),
      run: (...parameters) => execute(() => statement.run(...parameters)),
      iterate: (...parameters) => statement.iterate(...parameters),
    };
  }

  /** Runs a transaction that the mark does not count. No other statement may run on the connection meanwhile. */
  async runUncounted<T>(body: () => Promise<T>): Promise<T> {
    this.#begin.run();
    try {
      const result = await body();
      this.#commit.run();
      return result;
    } catch (error) {
      this.#rollback.run();
      throw error;
    }
  }

  /** Returns a statement for {@link runUncounted}. Each text is prepared once. */
  prepareOnce(sql: string): SqliteStatement {
    return getOrInsert(this.#uncounted, sql, () => this.#connection.prepare(sql));
  }

  /** Closes the connection, leaving all data in a single file unless another connection reads it. */
  close(): void {
    let isComplete = false;
    // A binding may keep the connection open for its statements, which would leave all data in the write-ahead log.
    try {
      const [row] = this.#connection.prepare("PRAGMA wal_checkpoint(TRUNCATE)").all() as { busy: number }[];
      isComplete = row?.busy === 0;
    } finally {
      this.#connection.close();
      this.#mark.close({ isComplete });
    }
  }

  /** Returns the function that executes a statement, and follows the transaction that Kysely controls with `begin`, `commit` and `rollback`. */
  #executor(sql: string): <Result extends StatementResult>(statement: () => Result) => Result {
    switch (sql) {
      case "begin":
        return (statement) => {
          const result = statement();
          this.#hasChanged = false;
          return result;
        };
      case "commit":
        return (statement) => {
          const writeMark = this.#hasChanged === true ? this.#mark.increment() : null;
          const result = statement();
          this.#hasChanged = null;
          writeMark?.();
          return result;
        };
      case "rollback":
        return (statement) => {
          this.#hasChanged = null;
          return statement();
        };
      default:
        return CHANGE.test(sql) ? (statement) => this.#change(statement) : (statement) => statement();
    }
  }

  /** Executes a statement that may change rows: in the transaction of Kysely, or else in a transaction of its own. */
  #change<Result extends StatementResult>(statement: () => Result): Result {
    if (this.#hasChanged === null) return this.#runAlone(statement);
    const result = statement();
    this.#hasChanged ||= hasChanges(result);
    return result;
  }

  /** Executes a statement in a transaction of its own, which the mark counts if rows have changed. */
  #runAlone<Result extends StatementResult>(statement: () => Result): Result {
    this.#begin.run();
    try {
      const result = statement();
      const writeMark = hasChanges(result) ? this.#mark.increment() : null;
      this.#commit.run();
      writeMark?.();
      return result;
    } catch (error) {
      this.#rollback.run();
      throw error;
    }
  }
}
