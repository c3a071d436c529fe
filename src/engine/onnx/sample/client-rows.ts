/** Division of rows among clients. */
import type { Request } from "./request.ts";

/** Client that gives up rows for another one. */
export interface YieldingClient {
  readonly client: string;
  /** Number of rows that it gives up. */
  readonly count: number;
}

/** Number of requests of each client. */
export class ClientRows {
  readonly #rows = new Map<string, number>();

  constructor(requests: Iterable<Request>) {
    for (const { group } of requests) this.#rows.set(group.client, this.of(group.client) + 1);
  }

  of(client: string): number {
    return this.#rows.get(client) ?? 0;
  }

  /** Whether there are rows, and none of them belongs to the client. */
  isNewcomer(client: string): boolean {
    return this.#rows.size > 0 && !this.#rows.has(client);
  }

  /**
   * Returns the client with the most rows, and the number of rows that it gives up for `wanted` requests of another client, so that it keeps
   * at least as many as the other one then has; null if it has at most one row more.
   */
  yieldingTo(client: string, wanted: number): YieldingClient | null {
    const own = this.of(client);
    const [largest, rows] = [...this.#rows].reduce((most, each) => (each[1] > most[1] ? each : most), [client, own]);
    const count = Math.min(wanted, Math.floor((rows - own) / 2));
    return count > 0 ? { client: largest, count } : null;
  }
}
