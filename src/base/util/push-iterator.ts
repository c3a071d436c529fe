/** Queue between a writer that pushes items and one reader that iterates over them. */

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

/** Creates a {@link PushIterator}. `onLeave` runs once and is awaited if the reader leaves before the end. */
export function pushIterator<T>(onLeave: () => void | Promise<void>): PushIterator<T> {
  const items: T[] = [];
  let hasEnded = false;
  let failure: { readonly error: unknown } | undefined;
  /** Reader that waits for an item; while it waits, no item is unread. */
  let reader: Deferred<IteratorResult<T>> | undefined;
  /** Returns the waiting reader, if any, which the caller must settle. */
  const takeReader = () => {
    const waiting = reader;
    reader = undefined;
    return waiting;
  };
  /** Callbacks that wake the writers waiting in `room`. */
  const writers = new Set<() => void>();
  const iterator: PushIterator<T> = {
    async room(limit, signal) {
      while (items.length >= limit && !hasEnded && !signal.aborted) {
        await new Promise<void>((resolve) => {
          const wake = () => {
            writers.delete(wake);
            removeListener();
            resolve();
          };
          writers.add(wake);
          const removeListener = onceAborted(signal, wake);
        });
      }
    },
    push(value) {
      if (hasEnded) return;
      const waiting = takeReader();
      if (waiting === undefined) items.push(value);
      else waiting.resolve({ done: false, value });
    },
    end() {
      hasEnded = true;
      takeReader()?.resolve({ done: true, value: undefined });
    },
    fail(error) {
      if (hasEnded) return;
      hasEnded = true;
      const waiting = takeReader();
      if (waiting === undefined) failure = { error };
      else waiting.reject(error);
    },
    next() {
      if (items.length > 0) {
        const value = items.shift() as T;
        // One item was removed, so one writer has room.
        const [wakeWriter] = writers;
        wakeWriter?.();
        return Promise.resolve({ done: false, value });
      }
      if (failure !== undefined) {
        // Thrown once: the iteration then ends.
        const { error } = failure;
        failure = undefined;
        return Promise.reject(error as Error);
      }
      if (hasEnded) return Promise.resolve({ done: true, value: undefined });
      if (reader !== undefined) return reader.promise.then(() => iterator.next());
      reader = deferred();
      return reader.promise;
    },
    async return() {
      const isLeaving = !hasEnded;
      hasEnded = true;
      items.length = 0;
      failure = undefined;
      takeReader()?.resolve({ done: true, value: undefined });
      for (const wakeWriter of writers) wakeWriter();
      if (isLeaving) await onLeave();
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]() {
      return iterator;
    },
  };
  return iterator;
}
