/** Kysely's dialect of Postgres with the changes that the service needs. */
import {
  OperatorNode,
  PostgresIntrospector,
  PostgresDialect,
  PostgresQueryCompiler,
  PrimitiveValueListNode,
  sql,
  ValueListNode,
  type BinaryOperationNode,
  type DatabaseIntrospector,
  type Kysely,
  type PostgresPool,
  type QueryCompiler,
  type TableMetadata,
} from "kysely";

/** Compiler that accepts empty lists: `in ()`, which Postgres rejects, is false, and `not in ()` is true, as in SQLite. */
class Compiler extends PostgresQueryCompiler {
  protected override visitBinaryOperation(node: BinaryOperationNode): void {
    const { operator, rightOperand: list } = node;
    const isEmptyList = (PrimitiveValueListNode.is(list) || ValueListNode.is(list)) && list.values.length === 0;
    const name = OperatorNode.is(operator) ? operator.operator : null;
    if (isEmptyList && name === "in") this.append("false");
    else if (isEmptyList && name === "not in") this.append("true");
    else super.visitBinaryOperation(node);
  }
}

/**
 * Introspector that lists the names of the tables of the current schema. Kysely's introspector reads the columns of all schemas, and fails if
 * another service creates or drops its schema meanwhile.
 */
class Introspector extends PostgresIntrospector {
  readonly #db: Kysely<unknown>;

  constructor(db: Kysely<unknown>) {
    super(db);
    this.#db = db;
  }

  override async getTables(): Promise<TableMetadata[]> {
    const { rows } = await sql<{ schema: string; name: string }>`
      select schemaname as schema, tablename as name from pg_tables where schemaname = current_schema()`.execute(this.#db);
    return rows.map((row) => ({ ...row, isView: false, isForeign: false, columns: [] }));
  }
}

/** Dialect of the service's Postgres stores. */
export class ServicePostgresDialect extends PostgresDialect {
  constructor(pool: PostgresPool) {
    super({ pool });
  }

  override createQueryCompiler(): QueryCompiler {
    return new Compiler();
  }

  override createIntrospector(db: Kysely<unknown>): DatabaseIntrospector {
    return new Introspector(db);
  }
}
