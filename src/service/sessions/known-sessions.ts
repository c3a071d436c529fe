/** Sessions by their keys. Keys are looked up by their hash, and the sessions in memory make most queries for authorization unnecessary. */
import { Lru } from "../../base/util/lru.ts";
import { findSession, findSessionByKey } from "../store/sessions.ts";
import type { SessionRow, Store } from "../store/tables.ts";
import { hashSessionKey, serviceKeyOfSession } from "./keys.ts";

/** Max session keys in memory. */
const MAX_KEYS = 10_000;

/** Columns of a session that authorize a request with its key. */
export type KnownSession = Pick<SessionRow, "id" | "key" | "entity" | "expires_at">;

/** Sessions of a service by their keys. */
export class KnownSessions {
  readonly #store: Store;
  /** Sessions by the hash of a key. */
  readonly #byKeyHash = new Lru<string, KnownSession>({ maxEntries: MAX_KEYS });

  constructor(store: Store) {
    this.#store = store;
  }

  /** Returns the session with a key; undefined for an unknown, expired or deleted one. */
  async withKey(key: string): Promise<KnownSession | undefined> {
    const hash = hashSessionKey(key);
    const known = this.#byKeyHash.get(hash);
    if (known !== undefined) return known.expires_at > new Date().toISOString() ? known : undefined;
    const row = await findSessionByKey(this.#store, hash);
    if (row !== undefined) this.#remember(hash, row);
    return row;
  }

  /** Returns the current row of the session with a key; undefined for an unknown, expired or deleted one. */
  async rowOfKey(key: string): Promise<SessionRow | undefined> {
    const hash = hashSessionKey(key);
    const row = await findSessionByKey(this.#store, hash);
    if (row !== undefined) return row;
    // The keys from `keyForService` are only in memory.
    const id = this.#byKeyHash.get(hash)?.id;
    return id === undefined ? undefined : findSession(this.#store, id);
  }

  /** Returns a key of a session for requests with another key that permits the session, and remembers it. `apiKey` is the service's key. */
  keyForService(row: SessionRow, apiKey: string): string {
    const key = serviceKeyOfSession(apiKey, row.id);
    this.#remember(hashSessionKey(key), row);
    return key;
  }

  /** Forgets a deleted session. */
  forget({ key: hash }: SessionRow): void {
    this.#byKeyHash.delete(hash);
  }

  #remember(hash: string, { id, key, entity, expires_at }: SessionRow): void {
    this.#byKeyHash.set(hash, { id, key, entity, expires_at });
  }
}
