import { expect, test } from "vitest";
import { remember } from "../../src/util/remember.ts";

test("keeps as many values as it may, those asked for last", async () => {
  const cache = new Map<string, Promise<string>>();
  const made: string[] = [];
  const ask = (key: string) =>
    remember(
      cache,
      key,
      async () => {
        made.push(key);
        return key;
      },
      2,
    );
  for (const key of ["a", "b", "a", "c", "a", "b"]) expect(await ask(key)).toBe(key);
  expect(made).toEqual(["a", "b", "c", "b"]);
});

test("a failure is not remembered, and does not take away what was made after it", async () => {
  const cache = new Map<string, Promise<number>>();
  const failing = remember(cache, "a", () => Promise.reject(new Error("no")), 1);
  void remember(cache, "b", async () => 1, 1);
  const again = remember(cache, "a", async () => 2, 1);
  await expect(failing).rejects.toThrow("no");
  expect(remember(cache, "a", async () => 3, 1)).toBe(again);
});
