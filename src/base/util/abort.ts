/** Abort signals whose listeners and timers are removed when the work has settled. */

import { setMaxListeners } from "node:events";

/**
 * Calls `listener` when `signal` aborts, or at once if it has already aborted. Use it for signals that callers pass. It turns off Node's
 * warning about many listeners: hundreds of operations may share a signal, and each removes its listener.
 *
 * @param signal - Undefined never aborts.
 * @returns a function that removes the listener. Must be called when the operation has settled, unless the signal ends with it.
 */
export function onceAborted(signal: AbortSignal | undefined, listener: () => void): () => void {
  if (signal === undefined) return () => undefined;
  if (signal.aborted) {
    listener();
    return () => undefined;
  }
  setMaxListeners(0, signal);
  signal.addEventListener("abort", listener, { once: true });
  return () => signal.removeEventListener("abort", listener);
}

/** Abort signal made by {@link linkAbort}, with its controls. */
export interface LinkedAbort {
  /** Signal that aborts with the parent's reason, with a `TimeoutError` after `timeoutMs`, or with the reason given to `abort`. */
  readonly signal: AbortSignal;
  /** Aborts the signal with `reason`. */
  abort(reason: unknown): void;
  /** Removes listener and timer. Must be called when the work has settled. */
  dispose(): void;
}

/**
 * Creates a child signal of `parent` that also aborts after `timeoutMs`.
 *
 * `AbortSignal.any` with `AbortSignal.timeout` would be equivalent, but keeps its timer and its link to a long-lived parent alive; a
 * training script creates one such signal per request.
 *
 * @param options.timeoutMs - Milliseconds; absent = no limit.
 * @param options.label - Name of the operation in the `TimeoutError`.
 */
export function linkAbort(
  parent: AbortSignal | undefined,
  { timeoutMs, label = "the operation" }: { readonly timeoutMs?: number | undefined; readonly label?: string | undefined } = {},
): LinkedAbort {
  const controller = new AbortController();
  // Code outside of this package listens to the signal too, which `onceAborted` does not see.
  setMaxListeners(0, controller.signal);
  const removeListener = onceAborted(parent, () => controller.abort(parent?.reason));
  const timer =
    timeoutMs === undefined
      ? undefined
      : setTimeout(() => controller.abort(new DOMException(`${label} took longer than ${timeoutMs} ms`, "TimeoutError")), timeoutMs);
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    dispose: () => {
      clearTimeout(timer);
      removeListener();
    },
  };
}

/** Resolves like `promise`, or rejects with the signal's reason if the signal aborts first. Always removes the abort listener. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const removeListener = onceAborted(signal, () => reject(signal.reason as Error));
    promise.then(resolve, reject).finally(removeListener);
  });
}
