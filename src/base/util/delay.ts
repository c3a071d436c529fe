/** Timers that end with a signal. */

import { onceAborted } from "./abort.ts";

/**
 * Resolves after `ms` milliseconds.
 *
 * An abort rejects with the signal's reason. Timer and listener are removed when the call settles.
 *
 * @throws the signal's reason if the signal aborts first.
 */
export function delay(ms: number, { signal }: { readonly signal?: AbortSignal | undefined } = {}): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      removeListener();
      resolve();
    }, ms);
    const removeListener = onceAborted(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    });
  });
}
