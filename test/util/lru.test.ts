import { describe, expect, it } from "vitest";
import { Lru, remember } from "../../src/base/util/lru.ts";

const kept = (cache: Lru<string, number>, keys: string) => [...keys].filter((key) => cache.get(key) !== undefined).join("");

describe("Lru", () => {
  it("evicts the least recently used values, by number and by weight, and returns them", () => {
    const cache = new Lru<string, number>({ maxEntries: 3, maxWeight: 10 });
    for (const key of "abc") cache.set(key, 1, 2);
    expect(cache.get("a")).toBe(1);
    expect(cache.set("d", 4, 2)).toEqual([1]);
    expect(kept(cache, "abcd")).toBe("acd");
    expect(cache.set("e", 5, 7)).toEqual([1, 1]);
    expect(kept(cache, "acde")).toBe("de");
    expect([cache.size, cache.weight]).toEqual([2, 9]);
    expect(cache.clear()).toEqual([4, 5]);
    expect([cache.size, cache.weight]).toEqual([0, 0]);
  });

  it("does not keep a value heavier than the maximum, and counts the weight of a replaced key once", () => {
    const cache = new Lru<string, number>({ maxEntries: 3, maxWeight: 10 });
    cache.set("a", 1, 4);
    cache.set("b", 1, 11);
    expect(kept(cache, "ab")).toBe("a");
    for (let turn = 0; turn < 5; turn++) cache.set("a", turn, 6);
    cache.set("c", 1, 4);
    expect([kept(cache, "ac"), cache.get("a")]).toEqual(["ac", 4]);
  });

  it("does not count a peek as a use", () => {
    const cache = new Lru<string, number>({ maxEntries: 2 });
    cache.set("a", 1);
    cache.set("b", 2);
    expect(cache.peek("a")).toBe(1);
    expect(cache.set("c", 3)).toEqual([1]);
  });
});

describe("remember", () => {
  it("makes each value once while it is cached", async () => {
    const cache = new Lru<string, Promise<string>>({ maxEntries: 2 });
    const made: string[] = [];
    const get = (key: string) =>
      remember(cache, key, async () => {
        made.push(key);
        return key;
      });
    for (const key of ["a", "b", "a", "c", "a", "b"]) expect(await get(key)).toBe(key);
    expect(made).toEqual(["a", "b", "c", "b"]);
  });

  it("does not cache a failure, which does not remove a later value either", async () => {
    const cache = new Lru<string, Promise<number>>({ maxEntries: 1 });
    const failing = remember(cache, "a", () => Promise.reject(new Error("no")));
    void remember(cache, "b", async () => 1);
    const again = remember(cache, "a", async () => 2);
    await expect(failing).rejects.toThrow("no");
    expect(remember(cache, "a", async () => 3)).toBe(again);
  });
});
