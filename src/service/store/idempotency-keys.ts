/** Stored responses to requests with an idempotency key; see `http/idempotency.ts` for their use. */
import type { IdempotencyKeyRow, Store } from "./tables.ts";

/** Milliseconds for which the response to a request with an idempotency key is stored. */
export const RETENTION_MS = 24 * 60 * 60 * 1000;
/** Max number of stored responses. */
export const RETENTION_COUNT = 10_000;

/** Request with an idempotency key. Every entity has its own keys. */
export type KeyedRequest = Pick<IdempotencyKeyRow, "entity" | "route" | "key">;

/** Returns the stored response to a request, unless it is older than {@link RETENTION_MS}. */
export function findAnswer(store: Store, { entity, route, key }: KeyedRequest): Promise<IdempotencyKeyRow | undefined> {
  const oldest = new Date(Date.now() - RETENTION_MS).toISOString();
  return store
    .selectFrom("idempotency_keys")
    .selectAll()
    .where((where) => where.and({ entity, route, key }))
    .where("created_at", ">=", oldest)
    .executeTakeFirst();
}

/** Stores a response and deletes responses over the age or count limit. */
export async function rememberAnswer(store: Store, answer: Omit<IdempotencyKeyRow, "created_at">): Promise<void> {
  const nowMs = Date.now();
  await store
    .deleteFrom("idempotency_keys")
    .where("created_at", "<", new Date(nowMs - RETENTION_MS).toISOString())
    .execute();
  // The newest response that must make room for this one.
  const newestSurplus = await store
    .selectFrom("idempotency_keys")
    .select("created_at")
    .orderBy("created_at", "desc")
    .offset(RETENTION_COUNT - 1)
    .limit(1)
    .executeTakeFirst();
  if (newestSurplus !== undefined) await store.deleteFrom("idempotency_keys").where("created_at", "<=", newestSurplus.created_at).execute();
  await store
    .insertInto("idempotency_keys")
    .values({ ...answer, created_at: new Date(nowMs).toISOString() })
    .execute();
}

/** Deletes the response that created the resource with this id, so that the same request creates a new resource. */
export async function forgetAnswer(store: Store, route: string, id: string): Promise<void> {
  // The pattern also finds answers that mention the id elsewhere. An id has none of the pattern's special characters.
  const candidates = await store
    .selectFrom("idempotency_keys")
    .select(["entity", "key", "body"])
    .where("route", "=", route)
    .where("body", "like", `%"id":"${id}"%`)
    .execute();
  for (const { entity, key, body } of candidates) {
    if ((JSON.parse(body) as { readonly id?: unknown }).id !== id) continue;
    await store
      .deleteFrom("idempotency_keys")
      .where((where) => where.and({ entity, route, key }))
      .execute();
  }
}
