import { deferred, type Deferred } from "./deferred.ts";
import { onceAborted } from "./abort.ts";

/**
 * An async iterator with a `push` method and one reader. Unread items are buffered in memory without a limit, unless the writer waits for
 * `room`.
 */
export interface PushIterator<T> extends AsyncIterableIterator<T> {
  /** Resolves when fewer than `limit` items are unread, when the reader has left, or when `signal` aborts. */
  room(limit: number, signal: AbortSignal): Promise<void>;
  /** Adds an item; ignored after the end. */
  push(value: T): void;
  /** Ends the iteration after the items already pushed. */
  end(): void;
  /** Fails the iteration after the items already pushed. */
  fail(error: unknown): void;
}

/** Creates a {@link PushIterator}. `onLeave` runs once, if the reader leaves early, and is awaited. */
export function pushIterator<T>(onLeave: () => void | Promise<void>): PushIterator<T> {
  const items: T[] = [];
  let ended = false;
  let failure: { readonly error: unknown } | undefined;
  let waiting: Deferred<void> | undefined;
  const wake = () => {
    waiting?.resolve();
    waiting = undefined;
  };
  const writers = new Set<() => void>();
  const wakeWriters = () => writers.forEach((writer) => writer());
  const iterator: PushIterator<T> = {
    async room(limit, signal) {
      while (items.length >= limit && !ended && !signal.aborted) {
        await new Promise<void>((resolve) => {
          const go = () => {
            writers.delete(go);
            removeListener();
            resolve();
          };
          writers.add(go);
          const removeListener = onceAborted(signal, go);
        });
      }
    },
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
        if (items.length > 0) {
          const value = items.shift() as T;
          writers.values().next().value?.();
          return { done: false, value };
        }
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
      wakeWriters();
      if (isLeaving) await onLeave();
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]() {
      return iterator;
    },
  };
  return iterator;
}
