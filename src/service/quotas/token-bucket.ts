/** Token bucket for limits per minute. */

/** Milliseconds of a minute. */
const MINUTE_MS = 60_000;
/** Max milliseconds of {@link TokenBucket.nextTurnMs}. Clients of the OpenAI API ignore longer times. */
const MAX_TURN_MS = 60_000;

/**
 * Token bucket: holds as many units as its limit permits per minute, starts full, and refills continuously. The level may fall below zero,
 * because the number of sampled tokens is known only afterwards; nothing is admitted then until the bucket has refilled.
 *
 * @source Turner, "New directions in communications", 1986.
 */
export class TokenBucket {
  #perMinute: number;
  /** Units at the time {@link #levelAtMs}. */
  #level: number;
  /** Time of the last refill, by `performance.now()`. */
  #levelAtMs = performance.now();
  /** Time of the last turn that was given to a rejected request. */
  #turnAtMs = -Infinity;

  constructor(perMinute: number) {
    this.#perMinute = perMinute;
    this.#level = perMinute;
  }

  /** Max units, which is also the refill per minute. */
  get perMinute(): number {
    return this.#perMinute;
  }

  /** Sets the limit. The part of the old limit that is used stays used. */
  set perMinute(limit: number) {
    const used = this.#perMinute - this.level;
    this.#perMinute = limit;
    this.#level = limit - used;
  }

  /** Number of units in the bucket now, after the refill since the last read. */
  get level(): number {
    const nowMs = performance.now();
    this.#level = Math.min(this.#perMinute, this.#level + ((nowMs - this.#levelAtMs) / MINUTE_MS) * this.#perMinute);
    this.#levelAtMs = nowMs;
    return this.#level;
  }

  /** Takes units, also more than there are. */
  take(units: number): void {
    this.#level = this.level - units;
  }

  /**
   * Returns the milliseconds after which a rejected request should be repeated, and gives it the turn. Requests that are rejected at the
   * same time get successive turns, so that each finds a unit when it returns.
   */
  nextTurnMs(): number {
    const nowMs = performance.now();
    const freeAtMs = nowMs + this.msUntil(1);
    const afterLastTurnMs = this.#turnAtMs + MINUTE_MS / this.#perMinute;
    this.#turnAtMs = Math.min(Math.max(freeAtMs, afterLastTurnMs), nowMs + MAX_TURN_MS);
    return this.#turnAtMs - nowMs;
  }

  /** Returns the milliseconds until the bucket holds `units`; 0 if it does now. */
  msUntil(units: number): number {
    return Math.max(0, ((units - this.level) / this.#perMinute) * MINUTE_MS);
  }
}
