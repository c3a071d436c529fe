/**
 * Pages of lists. A query selects one row more than the page has, so that `pageOf` recognizes further rows; the id of the last item on a page
 * is the cursor of the next page.
 */
import { sql, type RawBuilder } from "kysely";
import { ArgumentError } from "../../base/errors.ts";

/** Position and size of a page. */
export interface PageRequest {
  /** Id of the last item on the previous page. */
  readonly after?: string | undefined;
  readonly limit: number;
}

/** Rows of a page. */
export interface RowPage<Row> {
  readonly rows: Row[];
  /** Whether rows follow the page. */
  readonly hasMore: boolean;
}

/** Returns the page at the start of `rows`, which were selected with a limit of at least `limit + 1`. */
export function pageOf<Row>(rows: readonly Row[], limit: number): RowPage<Row> {
  return { rows: rows.slice(0, limit), hasMore: rows.length > limit };
}

/**
 * Returns the row of a cursor.
 *
 * @param item - Kind of the listed items, for the message.
 * @throws ArgumentError `E_ARGUMENT` if `after` is not the id of such an item.
 */
export function requireCursor<Row>(row: Row | undefined, after: string, item: string): Row {
  if (row !== undefined) return row;
  throw new ArgumentError(`Expected \`after\` to be the id of ${item}, got '${after.slice(0, 100)}'`, { param: "after" });
}

/** Columns by which rows are ordered: by time of creation, and by id at the same time. */
interface CreationCursor {
  readonly created_at: string;
  readonly id: string;
}

/**
 * Returns the condition for the rows after a cursor. The columns of a row are compared as one value.
 *
 * @param order - `desc`: newest first. @default "desc"
 */
export function isAfter(table: string, { created_at, id }: CreationCursor, order: "asc" | "desc" = "desc"): RawBuilder<boolean> {
  const comparison = sql.raw(order === "asc" ? ">" : "<");
  return sql<boolean>`(${sql.ref(`${table}.created_at`)}, ${sql.ref(`${table}.id`)}) ${comparison} (${created_at}, ${id})`;
}

/**
 * Returns a page of a list in memory.
 *
 * @param item - Kind of the listed items, for the message.
 * @throws ArgumentError `E_ARGUMENT` if `after` is not the id of an item.
 */
export function pageOfList<Item extends { readonly id: string }>(
  items: readonly Item[],
  { after, limit }: PageRequest,
  item: string,
): RowPage<Item> {
  const index = items.findIndex(({ id }) => id === after);
  if (after !== undefined) requireCursor(items[index], after, item);
  return pageOf(items.slice(index + 1), limit);
}

/** Returns the response body of a page. */
export function pageBody<Item extends { readonly id: string }>(data: Item[], hasMore: boolean) {
  return { object: "list" as const, data, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null, has_more: hasMore };
}
