/** Tells those who wait that some job's events or status moved. What moved they read from the store. */
export interface Changes {
  /** Grows with each {@link notify}; read it before reading the store. */
  readonly revision: number;
  notify(): void;
  /** Resolves once `revision` is no longer `since`, after `timeoutMs`, or when the signal aborts; never rejects. */
  wait(since: number, options: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined }): Promise<void>;
}

/** See {@link Changes}. */
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
