import type PQueue from "p-queue";
import { backoffMs } from "../../base/util/backoff.ts";
import { deferred, type Deferred } from "../../base/util/deferred.ts";
import type { SlowDownEvent, SpeedUpEvent } from "./events.ts";
import { onceAborted } from "../../base/util/abort.ts";

/** Factor by which a 429 reduces the concurrency. */
const DECREASE = 0.5;
/** Fraction of the full concurrency (at least one rollout) that is added after as many successful rollouts as run concurrently. */
const RECOVERY = 0.1;
/** Maximum wait in milliseconds for one `Retry-After`. */
const MAX_WAIT_MS = 10 * 60_000;

/**
 * Adaptive rate limiter of a run. Halves the queue's concurrency when a service responds 429 and raises it by a tenth of the full
 * concurrency for each round of rollouts without a 429. A `Retry-After` pauses everything; rejected requests then continue first.
 *
 * Rejected requests keep their queue slots while they wait, so that no other rollout starts in their place.
 */
export class RateLimiter {
  readonly #queue: PQueue;
  readonly #full: number;
  readonly #onChange: (event: SlowDownEvent | SpeedUpEvent) => void;
  readonly #refused = new Set<Deferred<void>>();
  #current: number;
  #pausedUntilMs = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Number of slow-downs since a rollout last succeeded. */
  #inARow = 0;
  #successes = 0;

  constructor(queue: PQueue, onChange: (event: SlowDownEvent | SpeedUpEvent) => void) {
    this.#queue = queue;
    this.#full = this.#current = queue.concurrency;
    this.#onChange = onChange;
    queue.on("next", () => this.#release());
  }

  /**
   * Waits as long as a service that responded 429 requires.
   *
   * @throws The signal's reason if it aborts first.
   */
  async slowDown(retryAfterMs: number | null, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const turn = deferred<void>();
    const removeListener = onceAborted(signal, () => turn.reject(signal.reason));
    this.#refused.add(turn);
    try {
      this.#pause(retryAfterMs);
      await turn.promise;
    } finally {
      removeListener();
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

  /** Removes all limits: the queued tasks of an aborted run must still settle. */
  dispose(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#queue.start();
  }

  #pause(retryAfterMs: number | null): void {
    const nowMs = performance.now();
    // Requests rejected during a pause belong to the same episode, which reduces the concurrency only once.
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

  /** Resumes rejected requests, oldest first, as far as the concurrency allows. */
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
