/** Notifies waiting requests that events or the status of some job changed. Waiters read the change itself from the store. */
export interface Changes {
  /** Number of {@link notify} calls so far. Read it before reading the store. */
  readonly revision: number;
  notify(): void;
  /** Resolves when `revision` differs from `since`, after `timeoutMs`, or when the signal aborts. Never rejects. */
  wait(since: number, options: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined }): Promise<void>;
}

/** Creates a {@link Changes} object. */
export function createChanges(): Changes {
  const waiting = new Set<() => void>();
  let revision = 0;
  return {
    get revision() {
      return revision;
    },
    notify() {
      revision++;
      for (const wake of waiting) wake();
    },
    wait(since, { timeoutMs, signal }) {
      if (revision !== since || timeoutMs <= 0 || signal?.aborted) return Promise.resolve();
      return new Promise((resolve) => {
        const done = () => {
          clearTimeout(timer);
          waiting.delete(done);
          signal?.removeEventListener("abort", done);
          resolve();
        };
        const timer = setTimeout(done, timeoutMs);
        waiting.add(done);
        signal?.addEventListener("abort", done, { once: true });
      });
    },
  };
}
