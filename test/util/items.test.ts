import { expect, test } from "vitest";
import { codePointAt, first, itemAt, last, zip } from "../../src/base/util/items.ts";

test("items that exist are returned", () => {
  expect([first([3, 4]), last([3, 4]), itemAt(Int32Array.of(5, 6), 1), itemAt([7, 8], -2)]).toEqual([3, 4, 6, 7]);
  expect(codePointAt("a👍", 1)).toBe(0x1f44d);
  expect(zip([1, 2], ["a", "b"])).toEqual([
    [1, "a"],
    [2, "b"],
  ]);
});

test("a missing item is an error that names it", () => {
  expect(() => first([])).toThrow(new RangeError("Expected an item at index 0, got 0 items"));
  expect(() => last([])).toThrow("index -1");
  expect(() => itemAt([1], 1)).toThrow("index 1, got 1 items");
  expect(() => codePointAt("a", 1)).toThrow("index 1, got 1 code units");
  expect(() => zip([1], [])).toThrow("as many items as 1, got 0");
});
