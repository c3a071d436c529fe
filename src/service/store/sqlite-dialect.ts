/** Kysely's dialect of SQLite on an open connection, with the changes that the service needs. */
import { SqliteAdapter, SqliteDialect, type SqliteDatabase } from "kysely";
import type { SqliteConnection } from "./connection.ts";
import type { Transactions } from "./transactions.ts";

/** Statement as Kysely uses it. */
type KyselyStatement = ReturnType<SqliteDatabase["prepare"]>;

/** Max cached prepared statements; more than the service uses. */
const MAX_STATEMENTS = 500;

/** Options of {@link ServiceSqliteDialect}. */
interface DialectOptions {
  /** Counter that every statement besides a selection increments. @default a counter that nobody reads */
  readonly revision?: { count: number } | undefined;
  /** Transactions of the connection, which the high-water mark counts. @default none: the mark counts nothing */
  readonly transactions?: Transactions | null | undefined;
}

/** Dialect of the service's SQLite stores. All migrations run in one transaction. */
export class ServiceSqliteDialect extends SqliteDialect {
  constructor(connection: SqliteConnection, { revision = { count: 0 }, transactions = null }: DialectOptions = {}) {
    super({ database: forKysely(connection, revision, transactions) });
  }

  override createAdapter(): SqliteAdapter {
    return new TransactionalAdapter();
  }
}

/** SQLite supports transactional DDL, which Kysely assumes it does not. */
class TransactionalAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

/** Adapts a connection to Kysely, which needs to know whether a statement returns rows. Statements are prepared once. */
function forKysely(connection: SqliteConnection, revision: { count: number }, transactions: Transactions | null): SqliteDatabase {
  const preparedStatements = new Map<string, KyselyStatement>();
  const prepare = (sql: string): KyselyStatement => {
    const statement = transactions === null ? connection.prepare(sql) : transactions.prepare(sql);
    // A statement that changes data may also return rows.
    const revisionIncrement = /^\s*select\b/i.test(sql) ? 0 : 1;
    return {
      reader: statement.columns().length > 0,
      all(parameters) {
        revision.count += revisionIncrement;
        return statement.all(...parameters);
      },
      run(parameters) {
        revision.count += revisionIncrement;
        return statement.run(...parameters);
      },
      // Each iteration gets its own statement, because reusing one would disturb an iteration in progress.
      iterate: (parameters) => connection.prepare(sql).iterate(...parameters),
    };
  };
  return {
    close() {
      if (transactions === null) connection.close();
      else transactions.close();
    },
    prepare(sql) {
      const known = preparedStatements.get(sql);
      if (known !== undefined) return known;
      const statement = prepare(sql);
      if (preparedStatements.size < MAX_STATEMENTS) preparedStatements.set(sql, statement);
      return statement;
    },
  };
}
