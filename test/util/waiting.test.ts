import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { linkAbort } from "../../src/base/util/abort.ts";
import { backoffMs } from "../../src/base/util/backoff.ts";
import { delay } from "../../src/base/util/delay.ts";
import { pushIterator } from "../../src/base/util/push-iterator.ts";
import { startedByReader } from "../../src/base/util/started-by-reader.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A controller that counts the listeners on its signal. */
function counted() {
  const controller = new AbortController();
  let listeners = 0;
  const { signal } = controller;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = ((...args: Parameters<typeof add>) => (listeners++, add(...args))) as typeof add;
  signal.removeEventListener = ((...args: Parameters<typeof remove>) => (listeners--, remove(...args))) as typeof remove;
  return { controller, signal, listeners: () => listeners };
}

describe("delay", () => {
  it("resolves after its time and removes its listener", async () => {
    const { signal, listeners } = counted();
    const waiting = delay(100, { signal });
    expect(listeners()).toBe(1);
    await vi.advanceTimersByTimeAsync(100);
    await waiting;
    expect(listeners()).toBe(0);
  });

  it("rejects with the signal's reason and clears its timer, if aborted before or during the wait", async () => {
    const { controller, signal } = counted();
    const reason = new Error("enough");
    const waiting = delay(100, { signal });
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    await expect(delay(100, { signal })).rejects.toBe(reason);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("linkAbort", () => {
  it("aborts with the parent's reason, also if the parent is already aborted", () => {
    const { controller, signal } = counted();
    const link = linkAbort(signal);
    const reason = new Error("enough");
    controller.abort(reason);
    expect(link.signal.reason).toBe(reason);
    expect(linkAbort(signal).signal.reason).toBe(reason);
  });

  it("aborts with a TimeoutError that names the operation", async () => {
    const link = linkAbort(undefined, { timeoutMs: 50, label: "the upload" });
    await vi.advanceTimersByTimeAsync(50);
    expect(link.signal.reason).toMatchObject({ name: "TimeoutError", message: "the upload took longer than 50 ms" });
  });

  it("removes timer and listener when disposed", () => {
    const { signal, listeners } = counted();
    const link = linkAbort(signal, { timeoutMs: 50 });
    expect([listeners(), vi.getTimerCount()]).toEqual([1, 1]);
    link.dispose();
    expect([listeners(), vi.getTimerCount()]).toEqual([0, 0]);
  });
});

describe("backoffMs", () => {
  it("doubles up to its limit, with jitter in the upper half", () => {
    expect([0, 1, 2, 10, 1e6].map((attempt) => backoffMs(attempt, { random: () => 0.999999 })).map(Math.round)).toEqual([
      250, 500, 1000, 8000, 8000,
    ]);
    expect(backoffMs(1, { random: () => 0 })).toBe(250);
  });
});

describe("pushIterator", () => {
  it("yields the values pushed before a failure, then fails once", async () => {
    const iterator = pushIterator<number>(() => {});
    iterator.push(1);
    iterator.fail(new Error("no"));
    iterator.push(2);
    await expect(iterator.next()).resolves.toEqual({ done: false, value: 1 });
    await expect(iterator.next()).rejects.toThrow("no");
    await expect(iterator.next()).resolves.toEqual({ done: true, value: undefined });
  });

  it("wakes a waiting reader, and awaits cleanup once when the reader leaves", async () => {
    const onLeave = vi.fn(async () => {});
    const iterator = pushIterator<number>(onLeave);
    const waiting = iterator.next();
    iterator.push(3);
    await expect(waiting).resolves.toEqual({ done: false, value: 3 });
    await iterator.return?.();
    await iterator.return?.();
    expect(onLeave).toHaveBeenCalledTimes(1);
    const ended = pushIterator<number>(onLeave);
    ended.end();
    await ended.return?.();
    expect(onLeave).toHaveBeenCalledTimes(1);
  });

  it("answers readers that wait at the same time in order", async () => {
    const iterator = pushIterator<number>(() => {});
    const waiting = [iterator.next(), iterator.next(), iterator.next()];
    iterator.push(1);
    iterator.push(2);
    iterator.end();
    expect((await Promise.all(waiting)).map(({ value }) => value as unknown)).toEqual([1, 2, undefined]);
  });
});

describe("startedByReader", () => {
  const countTo = (last: number, onLeave: () => void) =>
    (async function* () {
      try {
        for (let i = 1; i <= last; i++) yield i;
      } finally {
        onLeave();
      }
    })();

  it("starts at the first read, once, and gives all items", async () => {
    const start = vi.fn(async () => countTo(3, () => {}));
    const items = startedByReader(start);
    expect(start).not.toHaveBeenCalled();
    const read: number[] = [];
    for await (const item of items) read.push(item);
    expect(read).toEqual([1, 2, 3]);
    expect(start).toHaveBeenCalledTimes(1);
  });

  it("never starts for a reader that left before, and ends the items of a reader that leaves", async () => {
    const start = vi.fn(async () => countTo(3, () => {}));
    const unread = startedByReader(start);
    await unread.return?.();
    await expect(unread.next()).resolves.toEqual({ done: true, value: undefined });
    expect(start).not.toHaveBeenCalled();
    const onLeave = vi.fn();
    for await (const item of startedByReader(async () => countTo(3, onLeave))) if (item === 2) break;
    expect(onLeave).toHaveBeenCalledTimes(1);
  });

  it("rejects the first read with the error of the start", async () => {
    const items = startedByReader<number>(() => Promise.reject(new Error("no weights")));
    await expect(items.next()).rejects.toThrow("no weights");
  });
});
