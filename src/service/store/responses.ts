/** Stored responses of the Responses API, which later requests can continue. */
import { setImmediate } from "node:timers/promises";
import { sql } from "kysely";
import type { ResponseRow, Store } from "./tables.ts";
import { transact } from "./database.ts";

/** Milliseconds for which a response is stored. */
const RETENTION_MS = 30 * 24 * 60 * 60 * 1000;
/** Default of the max number of stored responses. */
const RETENTION_COUNT = 10_000;
/** Default of the max bytes of all stored responses. */
const RETENTION_BYTES = 512 * 2 ** 20;

/** Limits of {@link StoredResponses}. The oldest responses over a limit are deleted. */
export interface ResponseLimits {
  /** Max number of stored responses. @default 10 000 */
  readonly maxCount?: number | undefined;
  /** Max bytes of all stored responses with their inputs. @default 512 MiB */
  readonly maxBytes?: number | undefined;
}

/** A response to store. `owner` is the owner of its principal. */
export type NewResponse = Omit<ResponseRow, "created_at" | "size_bytes">;

/** Adds the size of both JSON texts. */
function withSize<T extends Pick<ResponseRow, "input" | "response">>(texts: T): T & Pick<ResponseRow, "size_bytes"> {
  return { ...texts, size_bytes: Buffer.byteLength(texts.input) + Buffer.byteLength(texts.response) };
}

/** Parses stored input items. */
function itemsIn(input: string): readonly unknown[] {
  return JSON.parse(input) as readonly unknown[];
}

/** Stored responses of the Responses API. Every owner has its own. */
export class StoredResponses {
  readonly #store: Store;
  readonly #maxCount: number;
  readonly #maxBytes: number;
  /** Responses of the next transaction. */
  #pending: ResponseRow[] = [];
  /** Next transaction, before it takes the pending responses; null without any. */
  #nextWrite: Promise<void> | null = null;
  /** Time of the newest response. Times increase, so that they order the responses of this process. */
  #newestMs = 0;

  constructor(store: Store, { maxCount = RETENTION_COUNT, maxBytes = RETENTION_BYTES }: ResponseLimits = {}) {
    this.#store = store;
    this.#maxCount = maxCount;
    this.#maxBytes = maxBytes;
  }

  /** Returns a stored response of an owner. */
  find(owner: string, id: string): Promise<ResponseRow | undefined> {
    return this.#store.selectFrom("responses").selectAll().where("id", "=", id).where("owner", "=", owner).executeTakeFirst();
  }

  /**
   * Stores a response, and deletes responses over a limit. Responses that end in the same turn of the event loop share one
   * transaction, because each waits for the disk.
   */
  save(response: NewResponse): Promise<void> {
    this.#newestMs = Math.max(Date.now(), this.#newestMs + 1);
    this.#pending.push({ ...withSize(response), created_at: new Date(this.#newestMs).toISOString() });
    this.#nextWrite ??= this.#write();
    return this.#nextWrite;
  }

  /** Writes the pending responses in one transaction. */
  async #write(): Promise<void> {
    await setImmediate();
    const rows = this.#pending;
    this.#pending = [];
    this.#nextWrite = null;
    const oldest = new Date(Date.now() - RETENTION_MS).toISOString();
    await transact(this.#store, async (transaction) => {
      for (const row of rows) await transaction.insertInto("responses").values(row).execute();
      await this.#prune(transaction, oldest);
    });
  }

  /** Deletes responses that are too old, then the oldest beyond the count and the total size. */
  async #prune(store: Store, oldest: string): Promise<void> {
    await store.deleteFrom("responses").where("created_at", "<", oldest).execute();
    // Reads the index of the sizes alone.
    const { count, bytes } = await store
      .selectFrom("responses")
      .select((eb) => [eb.fn.count<number>("size_bytes").as("count"), eb.fn.sum<number | null>("size_bytes").as("bytes")])
      .executeTakeFirstOrThrow();
    if (count <= this.#maxCount && (bytes ?? 0) <= this.#maxBytes) return;
    // Counted from the newest response on, deletes each response at which a limit is exceeded.
    const newestFirst = sql`order by created_at desc, id desc`;
    const counted = sql`(select id, row_number() over (${newestFirst}) as number, sum(size_bytes) over (${newestFirst}) as total_bytes from responses) as counted`;
    const surplus = sql`select id from ${counted} where number > ${this.#maxCount} or total_bytes > ${this.#maxBytes}`;
    await sql`delete from responses where id in (${surplus})`.execute(store);
  }

  /**
   * Deletes a stored response of an owner. Its items are added to the responses that continue it, so that they can still be continued.
   *
   * @returns false if nothing was deleted.
   */
  delete(owner: string, id: string): Promise<boolean> {
    return transact(this.#store, async (transaction) => {
      const ownedRows = transaction.selectFrom("responses").selectAll().where("owner", "=", owner);
      const row = await ownedRows.where("id", "=", id).executeTakeFirst();
      if (row === undefined) return false;
      const { output } = JSON.parse(row.response) as { readonly output: readonly unknown[] };
      for (const continuation of await ownedRows.where("previous_id", "=", id).execute()) {
        const items = [...itemsIn(row.input), ...output, ...itemsIn(continuation.input)];
        const changes = withSize({ previous_id: row.previous_id, input: JSON.stringify(items), response: continuation.response });
        await transaction.updateTable("responses").set(changes).where("id", "=", continuation.id).execute();
      }
      await transaction.deleteFrom("responses").where("id", "=", id).execute();
      return true;
    });
  }
}
