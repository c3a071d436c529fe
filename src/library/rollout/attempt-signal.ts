/** Timeout of one attempt of a rollout, which pauses while requests of the attempt wait after a 429. */
import { setMaxListeners } from "node:events";

/** Signal of one attempt; aborts with a `TimeoutError` after `timeoutMs` of active time. Time spent waiting after a 429 does not count. */
export class AttemptSignal {
  readonly #controller = new AbortController();
  readonly #timeoutMs: number | undefined;
  readonly #label: string;
  /** Active time that remained when the timer last started, or when it was paused. */
  #remainingMs: number;
  /** Time at which the timer last started. */
  #startedAtMs = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Number of the attempt's requests that wait after a 429. */
  #halts = 0;
  #isDisposed = false;

  /** @param label - Name of the attempt in the timeout's message. */
  constructor(timeoutMs: number | undefined, label: string) {
    // A rollout may have hundreds of concurrent requests, each with a listener.
    setMaxListeners(0, this.#controller.signal);
    this.#timeoutMs = timeoutMs;
    this.#remainingMs = timeoutMs ?? 0;
    this.#label = label;
    this.#start();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#controller.abort(reason);
  }

  /** Pauses the timeout until `go` has been called as often as `halt`: several requests may wait at a time. */
  halt(): void {
    this.#halts++;
    if (this.#halts > 1 || this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#remainingMs = Math.max(1, this.#remainingMs - (performance.now() - this.#startedAtMs));
  }

  /** Ends one pause; the timeout resumes after the last one. */
  go(): void {
    this.#halts--;
    if (this.#halts === 0) this.#start();
  }

  /** Cancels the timeout. Pauses that end later do not restart it. */
  dispose(): void {
    clearTimeout(this.#timer);
    this.#isDisposed = true;
  }

  /** Starts the timer with the remaining time. */
  #start(): void {
    if (this.#timeoutMs === undefined || this.#isDisposed) return;
    this.#startedAtMs = performance.now();
    this.#timer = setTimeout(() => this.#timeOut(), this.#remainingMs);
  }

  #timeOut(): void {
    this.abort(new DOMException(`${this.#label} took longer than ${this.#timeoutMs} ms`, "TimeoutError"));
  }
}
