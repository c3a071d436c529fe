import { setMaxListeners } from "node:events";

/** An abort signal with an owner. `dispose` removes its listener and timer. */
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
 * @param options.timeoutMs Milliseconds; absent = no limit.
 * @param options.label Name of the operation in the `TimeoutError`.
 */
export function linkAbort(
  parent: AbortSignal | undefined,
  { timeoutMs, label = "the operation" }: { readonly timeoutMs?: number | undefined; readonly label?: string | undefined } = {},
): LinkedAbort {
  const controller = new AbortController();
  // Hundreds of requests may share one signal, and each removes its listener, so the listener count does not indicate a leak.
  setMaxListeners(0, controller.signal, ...(parent === undefined ? [] : [parent]));
  const onAbort = () => controller.abort(parent?.reason);
  if (parent?.aborted) onAbort();
  else parent?.addEventListener("abort", onAbort, { once: true });
  const timer =
    timeoutMs === undefined
      ? undefined
      : setTimeout(() => controller.abort(new DOMException(`${label} took longer than ${timeoutMs} ms`, "TimeoutError")), timeoutMs);
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    dispose: () => {
      clearTimeout(timer);
      parent?.removeEventListener("abort", onAbort);
    },
  };
}

/** Resolves like `promise`, or rejects with the signal's reason if the signal aborts first. Always removes the abort listener. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const onAbort = () => reject(signal.reason as Error);
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
