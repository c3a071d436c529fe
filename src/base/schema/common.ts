/** Schemas that several resources share: JSON values, names, and pages of lists. */

import { z } from "zod";

/** Schema of {@link JsonValue}. */
export const jsonValue = z.json();

/** Any value that JSON can represent: string, number, boolean, null, array or object. */
export type JsonValue = z.infer<typeof jsonValue>;

/** Schema of {@link JsonObject}. */
export const jsonObject = z.record(z.string(), jsonValue);

/** An object with string keys and JSON values, of any depth. */
export type JsonObject = z.infer<typeof jsonObject>;

/** A resource identifier. */
export const uuid = z.uuid();

/** A component of `entity/project/name`: letters, digits, `.`, `_`, `-`; max 128 characters; does not start with a dot. */
export const namePart = z
  .string()
  .regex(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$/, "must be 1 to 128 letters, digits, '.', '_' or '-', and not start with a dot");

/** Schema of {@link ListQuery}. */
export const listQuery = z.strictObject({
  /** Id of the last item of the previous page. */
  after: z.string().optional(),
  /** Items per page, 1 to 100. @default 20 */
  limit: z.coerce.number().int().min(1).max(100).default(20),
  /** Order by step (checkpoints) or time (events). @default "asc" */
  order: z.literal(["asc", "desc"]).default("asc"),
});
/** Query parameters of every paginated list. @interface */
export type ListQuery = z.infer<typeof listQuery>;

/** Schema of {@link NewestFirstQuery}. */
export const newestFirstQuery = listQuery.omit({ order: true });
/** Query parameters of a paginated list whose order is fixed: newest first. @interface */
export type NewestFirstQuery = z.infer<typeof newestFirstQuery>;

/**
 * Returns the schema of a page of a paginated list.
 *
 * @param item - Schema of an entry.
 * @returns an object schema: `data`, the ids of the first and the last entry, and `has_more`.
 * @example
 * ```ts
 * import { model } from "whetstone/schema";
 *
 * const { data, has_more } = listOf(model).parse(JSON.parse(line));
 * ```
 */
export function listOf<T extends z.ZodType>(item: T) {
  return z.object({
    /** Type of the object in the wire format. */
    object: z.literal("list").default("list"),
    /** Entries of the page, in the order of the query. */
    data: z.array(item),
    /** Id of the first entry; null for an empty page. */
    first_id: z.string().nullable().default(null),
    /** Id of the last entry, the `after` of the next page; null for an empty page. */
    last_id: z.string().nullable().default(null),
    /** Whether entries follow this page. */
    has_more: z.boolean(),
  });
}
