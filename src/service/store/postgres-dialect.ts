import {
  OperatorNode,
  PostgresDialect,
  PostgresQueryCompiler,
  PrimitiveValueListNode,
  ValueListNode,
  type BinaryOperationNode,
  type PostgresPool,
  type QueryCompiler,
} from "kysely";

/** Compiler that accepts empty lists: `in ()`, which Postgres rejects, is false, and `not in ()` is true, as in SQLite. */
class Compiler extends PostgresQueryCompiler {
  protected override visitBinaryOperation(node: BinaryOperationNode): void {
    const { operator, rightOperand: list } = node;
    const isEmpty = (PrimitiveValueListNode.is(list) || ValueListNode.is(list)) && list.values.length === 0;
    const name = OperatorNode.is(operator) ? operator.operator : null;
    if (isEmpty && (name === "in" || name === "not in")) this.append(String(name === "not in"));
    else super.visitBinaryOperation(node);
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
}
