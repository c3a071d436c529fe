/** Limit on the number of choices that a service generates at a time, shared fairly between its clients. */
import { OverloadedError } from "../../../base/errors.ts";

/**
 * Limiter for the number of choices that run at one time, so that excess requests are rejected at once instead of accumulating in memory. A
 * client that fills the capacity does not exclude others: with `n` clients, each may always have `1 / n` of the capacity, even if the
 * choices of all clients together then exceed it.
 */
export class ChoiceLimiter {
  readonly #capacity: number;
  /** Number of choices that run now, by client. */
  readonly #clients = new Map<string, number>();
  /** Number of choices of all clients. */
  #running = 0;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /**
   * Reserves capacity for `choices`.
   *
   * @param client - Client of the request, such as an entity.
   * @returns Function that releases the capacity; a second call has no effect.
   * @throws OverloadedError `E_OVERLOADED` if the capacity is exceeded. A request is always admitted while no other request runs.
   */
  enter(choices: number, client: string): () => void {
    this.requireRoom(client, choices);
    this.#add(client, choices);
    let isReleased = false;
    return () => {
      if (!isReleased) this.#add(client, -choices);
      isReleased = true;
    };
  }

  /**
   * Checks that there is room for `choices`, without a reservation: a request is rejected before its body is parsed if there is no room for
   * any.
   *
   * @param choices - Number of choices. @default 1
   * @throws OverloadedError `E_OVERLOADED`, as {@link enter}.
   */
  requireRoom(client: string, choices = 1): void {
    if (this.#running === 0 || this.#running + choices <= this.#capacity) return;
    const ownRunning = this.#clients.get(client) ?? 0;
    const clientCount = this.#clients.size + (ownRunning === 0 ? 1 : 0);
    const equalPart = Math.floor(this.#capacity / clientCount);
    if (clientCount > 1 && ownRunning + choices <= equalPart) return;
    throw new OverloadedError(
      `The service generates ${this.#running} choices and has room for ${this.#capacity}; send the request again in a moment`,
      { retryable: true },
    );
  }

  #add(client: string, choices: number): void {
    const running = (this.#clients.get(client) ?? 0) + choices;
    this.#running += choices;
    if (running === 0) this.#clients.delete(client);
    else this.#clients.set(client, running);
  }
}
