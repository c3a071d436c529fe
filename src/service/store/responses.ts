import { setImmediate } from "node:timers/promises";
import { sql } from "kysely";
import type { ResponseRow, Store } from "./tables.ts";

/** Milliseconds for which a response is stored. */
const RETENTION_MS = 30 * 24 * 60 * 60 * 1000;
/** Default of the max number of stored responses. */
const RETENTION_COUNT = 10_000;

/** A response to store. `owner` is the digest of its credential. */
export type NewResponse = Omit<ResponseRow, "created_at">;

/** Stored responses of the Responses API. Every owner has its own. */
export class StoredResponses {
  readonly #store: Store;
  readonly #maxCount: number;
  #pending: ResponseRow[] = [];
  #writing: Promise<void> | null = null;

  /** @param maxCount - Max number of stored responses; the oldest are deleted first. @default 10 000 */
  constructor(store: Store, { maxCount = RETENTION_COUNT }: { readonly maxCount?: number | undefined } = {}) {
    this.#store = store;
    this.#maxCount = maxCount;
  }

  /** Returns a stored response of an owner. */
  find(owner: string, id: string): Promise<ResponseRow | undefined> {
    return this.#store.selectFrom("responses").selectAll().where("id", "=", id).where("owner", "=", owner).executeTakeFirst();
  }

  /**
   * Stores a response, and deletes responses over the age or count limit. Responses that end in the same turn of the event loop share one
   * transaction, because each waits for the disk.
   */
  save(response: NewResponse): Promise<void> {
    this.#pending.push({ ...response, created_at: new Date().toISOString() });
    this.#writing ??= this.#write();
    return this.#writing;
  }

  async #write(): Promise<void> {
    await setImmediate();
    const rows = this.#pending;
    this.#pending = [];
    this.#writing = null;
    const oldest = new Date(Date.now() - RETENTION_MS).toISOString();
    await this.#store.transaction().execute(async (transaction) => {
      for (const row of rows) await transaction.insertInto("responses").values(row).execute();
      await transaction
        .deleteFrom("responses")
        .where((where) =>
          where.or([
            where("created_at", "<", oldest),
            where(sql<number>`rowid`, "<=", sql<number>`(select max(rowid) from responses) - ${this.#maxCount}`),
          ]),
        )
        .execute();
    });
  }

  /** Deletes a stored response of an owner. Returns false if nothing was deleted. */
  async delete(owner: string, id: string): Promise<boolean> {
    const { numDeletedRows } = await this.#store.deleteFrom("responses").where("id", "=", id).where("owner", "=", owner).executeTakeFirst();
    return numDeletedRows > 0n;
  }
}
