/**
 * Rows of API keys. Queries on a store of a request see only the keys that its caller may see, see `visibility.ts`; no function here adds this
 * condition.
 */
import { NotFoundError } from "../../base/errors.ts";
import type { KeyQuery } from "../../base/schema/index.ts";
import { isAfter, pageOf, requireCursor, type RowPage } from "./paging.ts";
import type { Store } from "./tables.ts";
import type { ApiKeyRow } from "./team-tables.ts";
import { entityFor } from "./visibility.ts";
import { transact } from "./database.ts";

/**
 * Returns the key with a secret, which may be the secret before the last rotation; undefined for an unknown secret. Does not check whether
 * the secret is still accepted: expired and revoked keys are returned, too.
 *
 * @param hash - Hash of the secret.
 */
export function findKeyByHash(store: Store, hash: string): Promise<ApiKeyRow | undefined> {
  return store
    .selectFrom("api_keys")
    .selectAll()
    .where((eb) => eb.or([eb("hash", "=", hash), eb("previous_hash", "=", hash)]))
    .executeTakeFirst();
}

/** Returns a key. @throws NotFoundError `E_NOT_FOUND` if it does not exist. */
export async function getKey(store: Store, id: string): Promise<ApiKeyRow> {
  const row = await store.selectFrom("api_keys").selectAll().where("id", "=", id.toLowerCase()).executeTakeFirst();
  if (row !== undefined) return row;
  throw new NotFoundError(`API key '${id.slice(0, 100)}' does not exist. GET /v1/preview/keys lists the keys`, { param: "key_id" });
}

/** Inserts a key. */
export async function insertKey(store: Store, row: ApiKeyRow): Promise<void> {
  await store.insertInto("api_keys").values(row).execute();
}

/**
 * Changes columns of a key in a transaction.
 *
 * @param change - Returns the new values for the current row. May be called again after a conflict, as in {@link transact}.
 * @returns the changed row.
 * @throws NotFoundError `E_NOT_FOUND` if the key does not exist.
 * @throws the error of `change`, which leaves the key unchanged.
 */
export function updateKey(store: Store, id: string, change: (row: ApiKeyRow) => Partial<ApiKeyRow>): Promise<ApiKeyRow> {
  return transact(store, async (transaction) => {
    const row = await getKey(transaction, id);
    const changes = change(row);
    if (Object.keys(changes).length > 0) await transaction.updateTable("api_keys").set(changes).where("id", "=", row.id).execute();
    return { ...row, ...changes };
  });
}

/**
 * Sets the time of the last request with each of several keys.
 *
 * @param uses - Times in ISO 8601, by the id of the key.
 */
export async function recordUses(store: Store, uses: ReadonlyMap<string, string>): Promise<void> {
  await transact(store, async (transaction) => {
    for (const [id, usedAt] of uses) await transaction.updateTable("api_keys").set({ last_used_at: usedAt }).where("id", "=", id).execute();
  });
}

/**
 * Returns a page of keys, newest first.
 *
 * @throws ArgumentError `E_ARGUMENT` if `after` is not the id of a key that the caller may see.
 * @throws ForbiddenError `E_FORBIDDEN` for another entity than the caller's.
 */
export async function pageOfKeys(store: Store, { after, limit, entity }: KeyQuery): Promise<RowPage<ApiKeyRow>> {
  // Throws for another entity, of which the store would return an empty page.
  entityFor(store, entity, "entity");
  let query = store
    .selectFrom("api_keys")
    .selectAll()
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .limit(limit + 1);
  if (entity !== undefined) query = query.where("entity", "=", entity);
  if (after !== undefined) {
    const row = await store.selectFrom("api_keys").select(["created_at", "id"]).where("id", "=", after.toLowerCase()).executeTakeFirst();
    query = query.where(isAfter("api_keys", requireCursor(row, after, "an API key")));
  }
  return pageOf(await query.execute(), limit);
}
