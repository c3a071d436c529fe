/** Long polls of jobs and rollout tasks. */
import { onceAborted } from "../../base/util/abort.ts";

/**
 * Wakes long polls when the events or the status of any job change, or for rollout plans, when a task does; the poll reads the change
 * itself from the store.
 *
 * A poll reads {@link revision}, then the store, then calls {@link wait} with this revision, so that a change between reading and waiting
 * ends the wait at once.
 */
export class Changes {
  readonly #waiting = new Set<() => void>();
  #revision = 0;

  /** Number of {@link notify} calls so far. Read it before reading the store. */
  get revision(): number {
    return this.#revision;
  }

  /** Ends all waits. Call it after the commit of a change. */
  notify(): void {
    this.#revision++;
    for (const finish of this.#waiting) finish();
  }

  /** Resolves when `revision` differs from `since`, after `timeoutMs`, or when the signal aborts. Never rejects. */
  wait(since: number, { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined }): Promise<void> {
    if (this.#revision !== since || timeoutMs <= 0 || signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const finish = () => {
        clearTimeout(timer);
        this.#waiting.delete(finish);
        removeListener();
        resolve();
      };
      const timer = setTimeout(finish, timeoutMs);
      this.#waiting.add(finish);
      // The signal has not aborted yet, so `finish` runs only after this assignment.
      const removeListener = onceAborted(signal, finish);
    });
  }
}
