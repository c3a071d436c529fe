import { onceAborted } from "../../base/util/abort.ts";

/** Notifies waiting requests that events or the status of some job changed. Waiters read the change itself from the store. */
export class Changes {
  readonly #waiting = new Set<() => void>();
  #revision = 0;

  /** Number of {@link notify} calls so far. Read it before reading the store. */
  get revision(): number {
    return this.#revision;
  }

  notify(): void {
    this.#revision++;
    for (const wake of this.#waiting) wake();
  }

  /** Resolves when `revision` differs from `since`, after `timeoutMs`, or when the signal aborts. Never rejects. */
  wait(since: number, { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined }): Promise<void> {
    if (this.#revision !== since || timeoutMs <= 0 || signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        removeListener();
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      this.#waiting.add(done);
      const removeListener = onceAborted(signal, done);
    });
  }
}
