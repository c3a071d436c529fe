import { setMaxListeners } from "node:events";

/** A signal with an owner: `dispose` removes the listener and the timer behind it. */
export interface LinkedAbort {
  /** Aborts with the parent's reason, with a `TimeoutError` after `timeoutMs`, or with what `abort` was given. */
  readonly signal: AbortSignal;
  /** Aborts by hand. */
  abort(reason: unknown): void;
  /** Call it when the work has settled. */
  dispose(): void;
}

/**
 * A child of `parent` that also ends after `timeoutMs`.
 *
 * `AbortSignal.any` with `AbortSignal.timeout` would do the same, but leaves its timer and its link to a long-lived
 * parent behind; a training script makes one of these per request.
 *
 * @param options.timeoutMs Milliseconds; absent = no limit.
 * @param options.label Named in the `TimeoutError`.
 */
export function linkAbort(
  parent: AbortSignal | undefined,
  { timeoutMs, label = "the operation" }: { readonly timeoutMs?: number | undefined; readonly label?: string | undefined } = {},
): LinkedAbort {
  const controller = new AbortController();
  // Hundreds of requests may share one signal; each removes its listener, so the count says nothing about a leak.
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
