/** Reservation of a session's output tokens before they are sampled, so that concurrent requests stay within `max_tokens` together. */
import { EventEmitter, once } from "node:events";

/** Output tokens that a request may sample. */
export interface TokenDemand {
  /** Number of choices, ≥ 1. */
  readonly choices: number;
  /** Max tokens of each choice; null = as many as possible. */
  readonly maxTokens: number | null;
}

/** Reserved output tokens of one session. Requests reserve in the order of their arrival. */
export class TokenReservations {
  readonly #events = new EventEmitter();
  /** Number of tokens reserved now. */
  #reserved = 0;
  /** Resolves when the last call of {@link reserve} has its tokens or has failed; the next call waits for it. */
  #lastReservation: Promise<unknown> = Promise.resolve();

  /**
   * Reserves tokens once the demand and the reservations of running requests are within the limit. Without another reservation, a demand
   * that does not fit gets the tokens that remain.
   *
   * @param remaining - Returns the number of tokens that the session may still sample, reserved tokens included.
   * @param signal - Ends the wait.
   * @returns Max tokens of each choice; null if the session has too few tokens left for one of each choice.
   * @throws The reason of `signal`, or an `AbortError`.
   */
  reserve(demand: TokenDemand, remaining: () => number, signal: AbortSignal): Promise<number | null> {
    const reservation = this.#lastReservation.then(() => this.#reserve(demand, remaining, signal));
    this.#lastReservation = reservation.catch(() => {});
    return reservation;
  }

  async #reserve({ choices, maxTokens }: TokenDemand, remaining: () => number, signal: AbortSignal): Promise<number | null> {
    const wantedPerChoice = maxTokens ?? Infinity;
    for (;;) {
      signal.throwIfAborted();
      const availablePerChoice = Math.floor((remaining() - this.#reserved) / choices);
      const isAlone = this.#reserved === 0;
      if (availablePerChoice >= wantedPerChoice || (isAlone && availablePerChoice >= 1)) {
        const granted = Math.min(availablePerChoice, wantedPerChoice);
        this.#reserved += granted * choices;
        return granted;
      }
      if (isAlone) return null;
      await once(this.#events, "release", { signal });
    }
  }

  /** Releases the tokens of a request that has ended. To be called after its sampled tokens are subtracted from `remaining`. */
  release(tokens: number): void {
    this.#reserved -= tokens;
    this.#events.emit("release");
  }
}
