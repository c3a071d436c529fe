/**
 * Resolves after `ms` milliseconds.
 *
 * An abort rejects with the signal's reason. Timer and listener are removed when the call settles.
 *
 * @throws the signal's reason if the signal aborts first.
 */
export function delay(ms: number, { signal }: { readonly signal?: AbortSignal | undefined } = {}): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason as Error);
      return;
    }
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
