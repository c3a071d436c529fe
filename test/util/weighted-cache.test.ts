import { expect, it } from "vitest";
import { WeightedCache } from "../../src/util/weighted-cache.ts";

const kept = (cache: WeightedCache<number>, keys: string) => [...keys].filter((key) => cache.get(key) !== undefined).join("");

it("forgets what was not asked for longest, by number and by weight", () => {
  const cache = new WeightedCache<number>({ maxEntries: 3, maxWeight: 10 });
  for (const key of "abc") cache.set(key, 1, 2);
  expect(cache.get("a")).toBe(1);
  cache.set("d", 1, 2);
  expect(kept(cache, "abcd")).toBe("acd");
  cache.set("e", 1, 7);
  expect(kept(cache, "acde")).toBe("de");
});

it("keeps nothing that is heavier than all may be, and weighs a key that is set again once", () => {
  const cache = new WeightedCache<number>({ maxEntries: 3, maxWeight: 10 });
  cache.set("a", 1, 4);
  cache.set("b", 1, 11);
  expect(kept(cache, "ab")).toBe("a");
  for (let turn = 0; turn < 5; turn++) cache.set("a", turn, 6);
  cache.set("c", 1, 4);
  expect([kept(cache, "ac"), cache.get("a")]).toEqual(["ac", 4]);
});
