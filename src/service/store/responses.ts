import { sql } from "kysely";
import type { ResponseRow, Store } from "./tables.ts";

/** Milliseconds for which a response is stored. */
const RETENTION_MS = 30 * 24 * 60 * 60 * 1000;
/** Max number of stored responses; the oldest are deleted first. */
const RETENTION_COUNT = 10_000;

/** A response to store. */
export interface NewResponse {
  readonly id: string;
  /** Digest of the credential. */
  readonly owner: string;
  readonly previousId: string | null;
  /** Input items as JSON. */
  readonly input: string;
  /** The response as JSON. */
  readonly response: string;
}

/** Returns a stored response of an owner. */
export function findResponse(store: Store, owner: string, id: string): Promise<ResponseRow | undefined> {
  return store.selectFrom("responses").selectAll().where("id", "=", id).where("owner", "=", owner).executeTakeFirst();
}

/** Stores a response, and deletes responses over the age or count limit. */
export async function saveResponse(store: Store, { id, owner, previousId, input, response }: NewResponse): Promise<void> {
  const now = Date.now();
  const row = { id, owner, previous_id: previousId, input, response, created_at: new Date(now).toISOString() };
  await store.transaction().execute(async (transaction) => {
    await transaction.insertInto("responses").values(row).execute();
    await transaction
      .deleteFrom("responses")
      .where((where) =>
        where.or([
          where("created_at", "<", new Date(now - RETENTION_MS).toISOString()),
          where(sql<number>`rowid`, "<=", sql<number>`(select max(rowid) from responses) - ${RETENTION_COUNT}`),
        ]),
      )
      .execute();
  });
}

/** Deletes a stored response of an owner. Returns false if nothing was deleted. */
export async function deleteResponse(store: Store, owner: string, id: string): Promise<boolean> {
  const { numDeletedRows } = await store.deleteFrom("responses").where("id", "=", id).where("owner", "=", owner).executeTakeFirst();
  return numDeletedRows > 0n;
}
