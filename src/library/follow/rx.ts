import type { MonoTypeOperatorFunction, Observable } from "rxjs";
import { pushIterator } from "../../base/util/push-iterator.ts";
import { rxjs } from "./rxjs.ts";
import { onceAborted } from "../../base/util/abort.ts";

/** Runs `call` once per subscription; unsubscribing aborts it. */
export function fromAbortable<T>(call: (signal: AbortSignal) => Promise<T>): Observable<T> {
  return new (rxjs().Observable)((subscriber) => {
    const controller = new AbortController();
    call(controller.signal).then(
      (value) => {
        subscriber.next(value);
        subscriber.complete();
      },
      (error: unknown) => subscriber.error(error),
    );
    return () => controller.abort();
  });
}

/** Returns an Observable that errors with the signal's own reason when the signal aborts. It never emits and never completes. */
export function abortOf(signal: AbortSignal): Observable<never> {
  return new (rxjs().Observable)((subscriber) => {
    return onceAborted(signal, () => subscriber.error(signal.reason));
  });
}

/** Fails the source as soon as `trigger` fails; unsubscribing leaves both. */
export function failWith<T>(trigger: Observable<never>): MonoTypeOperatorFunction<T> {
  const { Observable, Subscription } = rxjs();
  return (source) =>
    new Observable((subscriber) => {
      const both = new Subscription();
      both.add(trigger.subscribe({ error: (error: unknown) => subscriber.error(error) }));
      // A trigger that fails at once has closed the subscriber; the source must then not start.
      if (!subscriber.closed) both.add(source.subscribe(subscriber));
      return both;
    });
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
