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
  /** Reader that waits for an item; while it waits, no item is unread. */
  let reader: Deferred<IteratorResult<T>> | undefined;
  const takeReader = () => {
    const waiting = reader;
    reader = undefined;
    return waiting;
  };
  const writers = new Set<() => void>();
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
      const waiting = takeReader();
      if (waiting === undefined) items.push(value);
      else waiting.resolve({ done: false, value });
    },
    end() {
      ended = true;
      takeReader()?.resolve({ done: true, value: undefined });
    },
    fail(error) {
      if (ended) return;
      ended = true;
      const waiting = takeReader();
      if (waiting === undefined) failure = { error };
      else waiting.reject(error);
    },
    next() {
      if (items.length > 0) {
        const value = items.shift() as T;
        if (writers.size > 0) writers.values().next().value!();
        return Promise.resolve({ done: false, value });
      }
      const failed = failure;
      failure = undefined;
      if (failed !== undefined) return Promise.reject(failed.error as Error);
      if (ended) return Promise.resolve({ done: true, value: undefined });
      if (reader !== undefined) return reader.promise.then(() => iterator.next());
      reader = deferred();
      return reader.promise;
    },
    async return() {
      const isLeaving = !ended;
      ended = true;
      items.length = 0;
      failure = undefined;
      takeReader()?.resolve({ done: true, value: undefined });
      for (const writer of writers) writer();
      if (isLeaving) await onLeave();
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]() {
      return iterator;
    },
  };
  return iterator;
}
