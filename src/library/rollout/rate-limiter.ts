/** Rate limiter of a run: slows its rollouts down after responses 429, and speeds them up again. */
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
 * Adaptive rate limiter of a run.
 *
 * After a 429, it pauses the queue for the back-off or the service's `Retry-After`, and halves the queue's concurrency. Requests that were
 * answered 429 are repeated first. Then the concurrency rises by a tenth of the full one for each round of successful rollouts, i.e. as
 * many as run concurrently.
 *
 * A rollout whose request waits keeps its slot in the queue, so that no other rollout starts in its place.
 */
export class RateLimiter {
  readonly #queue: PQueue;
  /** Concurrency without a rate limit. */
  readonly #fullConcurrency: number;
  readonly #onChange: (event: SlowDownEvent | SpeedUpEvent) => void;
  /** Requests that wait after a 429, oldest first; each resolves when its request may be repeated. */
  readonly #waiting = new Set<Deferred<void>>();
  /** Concurrency now. */
  #concurrency: number;
  /** End of the pause, by `performance.now()`. */
  #pausedUntilMs = 0;
  /** Timer of the end of the pause; undefined without a pause. */
  #timer: NodeJS.Timeout | undefined;
  /** Number of slow-downs since a rollout last succeeded. */
  #slowDowns = 0;
  /** Number of successful rollouts since the concurrency last changed. */
  #successes = 0;

  constructor(queue: PQueue, onChange: (event: SlowDownEvent | SpeedUpEvent) => void) {
    this.#queue = queue;
    this.#fullConcurrency = queue.concurrency;
    this.#concurrency = queue.concurrency;
    this.#onChange = onChange;
    // Emitted when a rollout ends, which may leave room for a waiting request.
    queue.on("next", () => this.#release());
  }

  /**
   * Slows the run down after a response 429, and waits until its request may be repeated.
   *
   * @param retryAfterMs - Wait that the service requested; null if unspecified.
   * @throws The signal's reason if it aborts first.
   */
  async slowDown(retryAfterMs: number | null, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const turn = deferred<void>();
    const removeListener = onceAborted(signal, () => turn.reject(signal.reason));
    this.#waiting.add(turn);
    try {
      this.#pause(retryAfterMs);
      await turn.promise;
    } finally {
      removeListener();
      this.#waiting.delete(turn);
    }
  }

  /** Records a successful rollout: resets the back-off, and raises the concurrency after enough of them. */
  succeeded(): void {
    if (this.#isPaused()) return;
    this.#slowDowns = 0;
    if (this.#concurrency === this.#fullConcurrency) return;
    this.#successes++;
    if (this.#successes < this.#concurrency) return;
    this.#successes = 0;
    const increase = Math.max(1, Math.ceil(this.#fullConcurrency * RECOVERY));
    this.#setConcurrency(Math.min(this.#fullConcurrency, this.#concurrency + increase));
    this.#onChange({ type: "speed-up", concurrency: this.#concurrency });
  }

  /** Ends a pause, because the queued tasks of an aborted run must still settle. */
  dispose(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#queue.start();
  }

  /** Starts a pause, or extends the current one. */
  #pause(retryAfterMs: number | null): void {
    const nowMs = performance.now();
    // Only the first 429 of a pause reduces the concurrency. The others show the load before the pause, not the reduced one.
    const isNew = !this.#isPaused();
    const waitMs = Math.min(MAX_WAIT_MS, Math.max(retryAfterMs ?? 0, backoffMs(isNew ? this.#slowDowns : 0)));
    if (!isNew && nowMs + waitMs <= this.#pausedUntilMs) return;
    this.#pausedUntilMs = nowMs + waitMs;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#resume(), waitMs);
    if (!isNew) return;
    this.#queue.pause();
    this.#slowDowns++;
    this.#successes = 0;
    // With fewer rollouts than allowed, the limit that the service reached is their number.
    const reachedConcurrency = Math.min(this.#concurrency, this.#queue.pending);
    this.#setConcurrency(Math.max(1, Math.floor(reachedConcurrency * DECREASE)));
    this.#onChange({ type: "slow-down", concurrency: this.#concurrency, waitMs });
  }

  /** Ends a pause: waiting requests first, then new rollouts. */
  #resume(): void {
    this.#timer = undefined;
    this.#release();
    this.#queue.start();
  }

  /** Lets waiting requests be repeated, oldest first, as far as the concurrency allows. */
  #release(): void {
    if (this.#isPaused()) return;
    for (const turn of this.#waiting) {
      // `pending` counts all running rollouts, also those whose requests wait.
      if (this.#queue.pending - this.#waiting.size >= this.#concurrency) return;
      this.#waiting.delete(turn);
      turn.resolve();
    }
  }

  #isPaused(): boolean {
    return this.#timer !== undefined;
  }

  /** Changes the number of rollouts that the queue runs at a time. */
  #setConcurrency(concurrency: number): void {
    this.#concurrency = concurrency;
    this.#queue.concurrency = concurrency;
    this.#release();
  }
}
