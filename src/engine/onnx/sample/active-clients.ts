/** Clients that use a sampler at present. */
import type { Request } from "./request.ts";

/** Milliseconds for which a client counts as active after its last request. */
const ACTIVE_MS = 10_000;

/** Clients with a request now or shortly before. */
export class ActiveClients {
  /** Time at which each client was seen last, the earliest first. */
  readonly #seenMs = new Map<string, number>();

  /** Records that the clients of these requests are active at `nowMs`. */
  see(requests: Iterable<Pick<Request, "group">>, nowMs: number): void {
    for (const client of new Set([...requests].map(({ group }) => group.client))) {
      this.#seenMs.delete(client);
      this.#seenMs.set(client, nowMs);
    }
  }

  /** Whether more than one client is active at `nowMs`. */
  areSeveral(nowMs: number): boolean {
    for (const [client, seenMs] of this.#seenMs) {
      if (nowMs - seenMs <= ACTIVE_MS) break;
      this.#seenMs.delete(client);
    }
    return this.#seenMs.size > 1;
  }
}
