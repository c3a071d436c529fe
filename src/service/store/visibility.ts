/**
 * Row-level security: `visibleIn` returns a store in which queries find only the rows that a caller may see.
 *
 * A plugin of Kysely changes the syntax tree of each query before it is compiled: every SELECT, UPDATE and DELETE on a table with a column
 * `entity` gets conditions on this column, and on the column with the id of a model. Code that queries a store therefore needs no conditions
 * of its own.
 */
import {
  AndNode,
  AliasNode,
  BinaryOperationNode,
  ColumnNode,
  IdentifierNode,
  OperationNodeTransformer,
  OperatorNode,
  ParensNode,
  ReferenceNode,
  TableNode,
  ValueNode,
  WhereNode,
  type DeleteQueryNode,
  type KyselyPlugin,
  type OperationNode,
  type PluginTransformQueryArgs,
  type PluginTransformResultArgs,
  type QueryId,
  type QueryResult,
  type RootOperationNode,
  type SelectQueryNode,
  type UnknownRow,
  type UpdateQueryNode,
} from "kysely";
import { ForbiddenError } from "../../base/errors.ts";
import { getOrInsert } from "../../base/util/values.ts";
import { DEFAULT_ENTITY } from "../common/names.ts";
import type { Store, Tables } from "./tables.ts";

/** Rows that a caller may see. */
export interface Visibility {
  /** Entity of the rows; null = all entities. */
  readonly entity: string | null;
  /** Only model, with its jobs and sessions; null = all models of the entity. */
  readonly modelId: string | null;
}

/** Visibility of the service itself and of its administrators. */
export const ALL_ROWS: Visibility = { entity: null, modelId: null };

/**
 * Tables with a column `entity`, and their column with the id of a model. Rows of other tables belong to a row of these tables, through
 * which they are found: checkpoints and aliases to a model, events to a job, files to an artifact, turns to a session, groups to a rollout plan.
 */
const RESTRICTED_TABLES: { readonly [Name in keyof Tables]?: { readonly model: (keyof Tables[Name] & string) | null } } = {
  models: { model: "id" },
  jobs: { model: "model_id" },
  sessions: { model: "model_id" },
  artifacts: { model: null },
  rollout_plans: { model: "model_id" },
  rollout_tasks: { model: "model_id" },
  files: { model: null },
  api_keys: { model: "model_id" },
  entities: { model: null },
  usage: { model: null },
};

/** Adds the conditions of a visibility to every SELECT, UPDATE and DELETE on a restricted table, and to its subqueries. */
class Restriction extends OperationNodeTransformer {
  readonly #visibility: Visibility;

  constructor(visibility: Visibility) {
    super();
    this.#visibility = visibility;
  }

  protected override transformSelectQuery(node: SelectQueryNode, queryId?: QueryId): SelectQueryNode {
    const joined = (node.joins ?? []).map(({ table }) => table);
    return this.#restrict(super.transformSelectQuery(node, queryId), [...(node.from?.froms ?? []), ...joined]);
  }

  protected override transformUpdateQuery(node: UpdateQueryNode, queryId?: QueryId): UpdateQueryNode {
    return this.#restrict(super.transformUpdateQuery(node, queryId), node.table === undefined ? [] : [node.table]);
  }

  protected override transformDeleteQuery(node: DeleteQueryNode, queryId?: QueryId): DeleteQueryNode {
    return this.#restrict(super.transformDeleteQuery(node, queryId), node.from.froms);
  }

  /** Adds the conditions on all tables of a query to the query. */
  #restrict<N extends { readonly where?: WhereNode }>(node: N, tables: readonly OperationNode[]): N {
    let restricted = node;
    for (const table of tables) {
      for (const condition of this.#conditionsOn(table)) restricted = withCondition(restricted, condition);
    }
    return restricted;
  }

  /** Returns the conditions on the rows of a table expression; none for a table that is not restricted. */
  #conditionsOn(expression: OperationNode): OperationNode[] {
    const { entity, modelId } = this.#visibility;
    const table = AliasNode.is(expression) ? expression.node : expression;
    // A subquery gets its conditions when its own SELECT is transformed.
    if (!TableNode.is(table)) return [];
    const tableName = table.table.identifier.name;
    const columns = RESTRICTED_TABLES[tableName as keyof Tables];
    if (columns === undefined) return [];
    // The name of the table in the query.
    const name = AliasNode.is(expression) && IdentifierNode.is(expression.alias) ? expression.alias.name : tableName;
    const conditions: OperationNode[] = [];
    if (entity !== null) conditions.push(equals(name, "entity", entity));
    if (modelId !== null && columns.model !== null) conditions.push(equals(name, columns.model, modelId));
    return conditions;
  }
}

/** Returns the condition that a column equals a value. */
function equals(table: string, column: string, value: string): OperationNode {
  const reference = ReferenceNode.create(ColumnNode.create(column), TableNode.create(table));
  return BinaryOperationNode.create(reference, OperatorNode.create("="), ValueNode.create(value));
}

/** Adds a condition to a query, besides the conditions that it has. */
function withCondition<N extends { readonly where?: WhereNode }>(node: N, condition: OperationNode): N {
  const { where } = node;
  // In parentheses, because raw SQL in a condition may contain an OR.
  const combined = where === undefined ? condition : AndNode.create(ParensNode.create(where.where), condition);
  return { ...node, where: WhereNode.create(combined) };
}

/** Plugin of a restricted store. Transactions inherit it. */
class VisibilityPlugin implements KyselyPlugin {
  readonly visibility: Visibility;
  readonly #restriction: Restriction;

  constructor(visibility: Visibility) {
    this.visibility = visibility;
    this.#restriction = new Restriction(visibility);
  }

  transformQuery({ node, queryId }: PluginTransformQueryArgs): RootOperationNode {
    return this.#restriction.transformNode(node, queryId);
  }

  transformResult({ result }: PluginTransformResultArgs): Promise<QueryResult<UnknownRow>> {
    return Promise.resolve(result);
  }
}

/** Restricted stores by store and visibility, so that each one is created once. `http/idempotency.ts` relies on their identity. */
const restrictedStores = new WeakMap<Store, Map<string, Store>>();

/**
 * Returns the store in which queries find only the visible rows: another row is like a missing one. Queries written in SQL and inserted
 * rows are not restricted.
 */
export function visibleIn(store: Store, visibility: Visibility): Store {
  const { entity, modelId } = visibility;
  if (entity === null && modelId === null) return store;
  const stores = getOrInsert(restrictedStores, store, () => new Map<string, Store>());
  return getOrInsert(stores, JSON.stringify([entity, modelId]), () => store.withPlugin(new VisibilityPlugin(visibility)));
}

/** Returns the store, or a transaction on it, in which queries find all rows; for numbers that are unique over all entities. */
export function unrestricted(store: Store): Store {
  return store.withoutPlugins();
}

/** Returns the visibility of a store, or of a transaction on it. */
export function visibilityOf(store: Store): Visibility {
  const plugin = store.getExecutor().plugins.find((each) => each instanceof VisibilityPlugin);
  return plugin?.visibility ?? ALL_ROWS;
}

/**
 * Returns the entity that a request names, or the entity of its caller.
 *
 * @param store - Store of the request.
 * @param requested - Entity in the request; null and undefined for none.
 * @param param - Request field named in the error.
 * @throws ForbiddenError `E_FORBIDDEN` for another entity than the caller's, whether it exists or not.
 */
export function entityFor(store: Store, requested: string | null | undefined, param: string): string {
  const { entity } = visibilityOf(store);
  if (entity === null) return requested ?? DEFAULT_ENTITY;
  if (requested === null || requested === undefined || requested === entity) return entity;
  throw new ForbiddenError(
    `Expected the entity '${entity}', which the API key belongs to, got '${requested.slice(0, 128)}'. Use a key of that entity, or leave the entity out`,
    { param },
  );
}

/**
 * Checks that the caller's key is not limited to one model.
 *
 * @param action - Action that such a key does not permit, after "The API key is for one model and does not permit".
 * @throws ForbiddenError `E_FORBIDDEN` if it is.
 */
export function requireAllModels(store: Store, action: string): void {
  if (visibilityOf(store).modelId === null) return;
  throw new ForbiddenError(`The API key is for one model and does not permit ${action}. Use a key without \`model_id\``);
}
