import { setMaxListeners } from "node:events";

/** The signal of one attempt, which ends when the attempt has worked for `timeoutMs`. Waiting that it is made to do does not count. */
export class AttemptSignal {
  readonly #controller = new AbortController();
  readonly #timeoutMs: number | undefined;
  readonly #label: string;
  #leftMs: number;
  #startedAtMs = 0;
  #timer: NodeJS.Timeout | undefined;
  /** Requests of the attempt that are made to wait. */
  #halts = 0;

  constructor(timeoutMs: number | undefined, label: string) {
    // A rollout may have hundreds of requests under way at once.
    setMaxListeners(0, this.#controller.signal);
    this.#timeoutMs = timeoutMs;
    this.#leftMs = timeoutMs ?? 0;
    this.#label = label;
    this.#start();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#controller.abort(reason);
  }

  /** Time stops counting until `go` was called as often as this. */
  halt(): void {
    if (this.#halts++ > 0 || this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#leftMs = Math.max(1, this.#leftMs - (performance.now() - this.#startedAtMs));
  }

  go(): void {
    if (--this.#halts === 0) this.#start();
  }

  dispose(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #start(): void {
    if (this.#timeoutMs === undefined) return;
    this.#startedAtMs = performance.now();
    this.#timer = setTimeout(() => this.#timeOut(), this.#leftMs);
  }

  #timeOut(): void {
    this.abort(new DOMException(`${this.#label} took longer than ${this.#timeoutMs} ms`, "TimeoutError"));
  }
}
