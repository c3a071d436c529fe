/** Conversion between promises, Observables and AsyncIterables, and polling with retries. RxJS is used in this folder alone. */
import type { Observable } from "rxjs";
import { WhetstoneError } from "../../base/errors.ts";
import { pushIterator } from "../../base/util/push-iterator.ts";
import { rxjs } from "./rxjs.ts";
import { onceAborted } from "../../base/util/abort.ts";
import { backoffMs } from "../../base/util/backoff.ts";
import { delay } from "../../base/util/delay.ts";

/**
 * Returns an Observable that runs `work` for each subscription, and completes or errors when `work` resolves or rejects. Unsubscribing
 * aborts the signal `stop` of `work`.
 *
 * @param limits - An abort of `signal` errors with the signal's own reason; after `timeout.ms`, the Observable errors with `timeout.error()`.
 */
export function observe<T>(
  work: (emit: (value: T) => void, stop: AbortSignal) => Promise<void>,
  limits: {
    readonly signal?: AbortSignal | undefined;
    readonly timeout?: { readonly ms: number | undefined; readonly error: () => Error };
  },
): Observable<T> {
  const { signal, timeout } = limits;
  return new (rxjs().Observable)((subscriber) => {
    const controller = new AbortController();
    const fail = (error: unknown) => subscriber.error(error);
    subscriber.add(() => controller.abort());
    subscriber.add(onceAborted(signal, () => fail(signal?.reason)));
    const timer = timeout?.ms === undefined ? undefined : setTimeout(() => fail(timeout.error()), timeout.ms);
    subscriber.add(() => clearTimeout(timer));
    // A signal that is already aborted has closed the subscriber; the work must then not start.
    if (subscriber.closed) return;
    const emit = (value: T) => subscriber.next(value);
    work(emit, controller.signal).then(() => subscriber.complete(), fail);
  });
}

/**
 * Calls `poll` until it succeeds, and returns its result. Retryable errors are retried after a growing pause, at most `maxFailures` times.
 *
 * @throws the first other error of `poll`, the last error after `maxFailures` retries, or the signal's reason.
 */
export async function pollWithRetries<T>(
  poll: () => Promise<T>,
  signal: AbortSignal,
  { maxFailures, onRetry }: { readonly maxFailures: number; readonly onRetry?: (error: WhetstoneError) => void },
): Promise<T> {
  for (let failures = 0; ; failures++) {
    signal.throwIfAborted();
    try {
      return await poll();
    } catch (error) {
      if (failures >= maxFailures || !WhetstoneError.isInstance(error) || !error.retryable) throw error;
      onRetry?.(error);
      await delay(backoffMs(failures, { maxMs: 30_000 }), { signal });
    }
  }
}

/** Converts an Observable to an AsyncIterable: each iteration subscribes anew, and leaving the loop unsubscribes. */
export function iterate<T>(source: Observable<T>): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator]() {
      const subscription = new (rxjs().Subscription)();
      const iterator = pushIterator<T>(() => subscription.unsubscribe());
      subscription.add(
        source.subscribe({
          next: (value) => iterator.push(value),
          error: (error: unknown) => iterator.fail(error),
          complete: () => iterator.end(),
        }),
      );
      return iterator;
    },
  };
}
