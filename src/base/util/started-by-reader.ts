/**
 * Returns an async iterator over the items of another one, which `start` creates when the first item is read. Unlike a generator with
 * `yield*`, it adds no wait to the further items.
 */
export function startedByReader<T>(start: () => Promise<AsyncIterableIterator<T>>): AsyncIterableIterator<T> {
  let items: AsyncIterator<T> | undefined;
  let starting: Promise<AsyncIterator<T>> | undefined;
  let hasLeft = false;
  return {
    next() {
      if (items !== undefined) return items.next();
      if (hasLeft) return Promise.resolve({ done: true, value: undefined });
      starting ??= start();
      return starting.then((started) => {
        items = started;
        return items.next();
      });
    },
    async return() {
      hasLeft = true;
      const started = items ?? (await starting?.catch(() => undefined));
      await started?.return?.();
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}
