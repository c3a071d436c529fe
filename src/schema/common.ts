import { z } from "zod";

/** A JSON value. */
export const jsonValue = z.json();
export type JsonValue = z.infer<typeof jsonValue>;

/** A JSON object. */
export const jsonObject = z.record(z.string(), jsonValue);
export type JsonObject = z.infer<typeof jsonObject>;

/** A resource identifier. */
export const uuid = z.uuid();

/** A component of `entity/project/name`: letters, digits, `.`, `_`, `-`; max 128 characters; does not start with a dot. */
export const namePart = z
  .string()
  .regex(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$/, "must be 1 to 128 letters, digits, '.', '_' or '-', and not start with a dot");

/** Query parameters of every paginated list. */
export const listQuery = z.strictObject({
  /** Id of the last item of the previous page. */
  after: z.string().optional(),
  /** Items per page, 1 to 100. @default 20 */
  limit: z.coerce.number().int().min(1).max(100).default(20),
  /** Order by step (checkpoints) or time (events). @default "asc" */
  order: z.enum(["asc", "desc"]).default("asc"),
});
export type ListQuery = z.infer<typeof listQuery>;

/**
 * Returns the schema of a page with entries of schema `item`.
 *
 * @param item - Schema of an entry.
 */
export function listOf<T extends z.ZodType>(item: T) {
  return z.object({
    object: z.literal("list").default("list"),
    data: z.array(item),
    first_id: z.string().nullable().default(null),
    last_id: z.string().nullable().default(null),
    has_more: z.boolean(),
  });
}
