import { deferred, type Deferred } from "./deferred.ts";

/** An AsyncIterable fed from outside. One reader; unread items wait in memory. */
export interface PushIterator<T> extends AsyncIterableIterator<T> {
  push(value: T): void;
  /** Ends the iteration after the items already pushed. */
  end(): void;
  /** Fails the iteration after the items already pushed. */
  fail(error: unknown): void;
}

/** Makes a {@link PushIterator}. `onLeave` runs once, when the reader leaves early, and is awaited. */
export function pushIterator<T>(onLeave: () => void | Promise<void>): PushIterator<T> {
  const items: T[] = [];
  let ended = false;
  let failure: { readonly error: unknown } | undefined;
  let waiting: Deferred<void> | undefined;
  const wake = () => {
    waiting?.resolve();
    waiting = undefined;
  };
  const iterator: PushIterator<T> = {
    push(value) {
      if (ended) return;
      items.push(value);
      wake();
    },
    end() {
      ended = true;
      wake();
    },
    fail(error) {
      if (ended) return;
      ended = true;
      failure = { error };
      wake();
    },
    async next() {
      for (;;) {
        if (items.length > 0) return { done: false, value: items.shift() as T };
        if (failure !== undefined) {
          const { error } = failure;
          failure = undefined;
          throw error;
        }
        if (ended) return { done: true, value: undefined };
        waiting ??= deferred<void>();
        await waiting.promise;
      }
    },
    async return() {
      const isLeaving = !ended;
      ended = true;
      items.length = 0;
      failure = undefined;
      wake();
      if (isLeaving) await onLeave();
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]() {
      return iterator;
    },
  };
  return iterator;
}
