import type PQueue from "p-queue";
import { backoffMs } from "../util/backoff.ts";
import { deferred, type Deferred } from "../util/deferred.ts";
import type { SlowDownEvent, SpeedUpEvent } from "./events.ts";

/** What a 429 leaves of the concurrency. */
const DECREASE = 0.5;
/** What is added after as many rollouts without a 429 as run at once: a share of the full concurrency, at least 1. */
const RECOVERY = 0.1;
/** No service may hold a run longer than this with one `Retry-After`. */
const MAX_WAIT_MS = 10 * 60_000;

/**
 * How many rollouts run at once: the queue's concurrency, lowered by half when a service answers 429 and raised again by
 * a tenth of the full one for every round without. A service's `Retry-After` holds everything back; then the refused go first.
 *
 * The refused stay in the queue's count while they wait, so that none begins in their place.
 */
export class Pace {
  readonly #queue: PQueue;
  readonly #full: number;
  readonly #onChange: (event: SlowDownEvent | SpeedUpEvent) => void;
  readonly #refused = new Set<Deferred<void>>();
  #current: number;
  #pausedUntilMs = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Slow-downs since a rollout last succeeded. */
  #inARow = 0;
  #successes = 0;

  constructor(queue: PQueue, onChange: (event: SlowDownEvent | SpeedUpEvent) => void) {
    this.#queue = queue;
    this.#full = this.#current = queue.concurrency;
    this.#onChange = onChange;
    queue.on("next", () => this.#release());
  }

  /**
   * Waits as long as a service that answered 429 needs.
   *
   * @throws the signal's reason when it aborts first.
   */
  async slowDown(retryAfterMs: number | null, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const turn = deferred<void>();
    const onAbort = () => turn.reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    this.#refused.add(turn);
    try {
      this.#pause(retryAfterMs);
      await turn.promise;
    } finally {
      signal.removeEventListener("abort", onAbort);
      this.#refused.delete(turn);
    }
  }

  /** Records a successful rollout: resets the back-off, and raises the concurrency after enough of them. */
  succeeded(): void {
    if (this.#isPaused()) return;
    this.#inARow = 0;
    if (this.#current === this.#full) return;
    if (++this.#successes < this.#current) return;
    this.#successes = 0;
    this.#set(Math.min(this.#full, this.#current + Math.max(1, Math.ceil(this.#full * RECOVERY))));
    this.#onChange({ type: "speed-up", concurrency: this.#current });
  }

  /** Holds nothing back any more: what waits in the queue of an aborted run must come to its end. */
  dispose(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#queue.start();
  }

  #pause(retryAfterMs: number | null): void {
    const nowMs = performance.now();
    // Requests that were under way when the first was refused are refused for the same reason: one episode, one decrease.
    const isNew = !this.#isPaused();
    const waitMs = Math.min(MAX_WAIT_MS, Math.max(retryAfterMs ?? 0, backoffMs(isNew ? this.#inARow : 0)));
    if (!isNew && nowMs + waitMs <= this.#pausedUntilMs) return;
    this.#pausedUntilMs = nowMs + waitMs;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#resume(), waitMs);
    if (!isNew) return;
    this.#queue.pause();
    this.#inARow++;
    this.#successes = 0;
    this.#set(Math.max(1, Math.floor(Math.min(this.#current, this.#queue.pending) * DECREASE)));
    this.#onChange({ type: "slow-down", concurrency: this.#current, waitMs });
  }

  #resume(): void {
    this.#timer = undefined;
    this.#release();
    this.#queue.start();
  }

  /** Lets the refused go on, oldest first, as far as the concurrency allows. */
  #release(): void {
    if (this.#isPaused()) return;
    for (const turn of this.#refused) {
      if (this.#queue.pending - this.#refused.size >= this.#current) return;
      this.#refused.delete(turn);
      turn.resolve();
    }
  }

  #isPaused(): boolean {
    return this.#timer !== undefined;
  }

  #set(concurrency: number): void {
    this.#current = concurrency;
    this.#queue.concurrency = concurrency;
    this.#release();
  }
}
