/** Long polls of clients that wait for the end of a session. */
import { onceAborted } from "../../base/util/abort.ts";
import { deferred } from "../../base/util/deferred.ts";
import { getOrInsert } from "../../base/util/values.ts";

/** Waits for the end of sessions. */
export class OverWaits {
  /** Callbacks that end the waits, by session. */
  readonly #listeners = new Map<string, Set<() => void>>();
  #isClosed = false;

  /** Waits until {@link notify} is called for a session, `ms` milliseconds have passed, the signal aborts, or {@link close} is called. */
  async wait(sessionId: string, ms: number, signal: AbortSignal): Promise<void> {
    if (this.#isClosed) return;
    const over = deferred<void>();
    const onOver = () => over.resolve();
    const listeners = getOrInsert(this.#listeners, sessionId, () => new Set<() => void>());
    listeners.add(onOver);
    const timer = setTimeout(onOver, ms).unref();
    const removeListener = onceAborted(signal, onOver);
    await over.promise;
    clearTimeout(timer);
    removeListener();
    listeners.delete(onOver);
    if (listeners.size === 0) this.#listeners.delete(sessionId);
  }

  /** Ends the waits for a session. */
  notify(sessionId: string): void {
    for (const onOver of this.#listeners.get(sessionId) ?? []) onOver();
  }

  /** Ends all waits. Later waits end at once. */
  close(): void {
    this.#isClosed = true;
    for (const id of this.#listeners.keys()) this.notify(id);
  }
}
