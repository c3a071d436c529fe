import { join } from "node:path";
import { describe, expect, it, test } from "vitest";
import { codePointAt, first, getOrThrow, isRecord, itemAt, last, messageOf, parseJson, zip } from "../../src/base/util/values.ts";
import { pathExists } from "../../src/base/util/file-system-error.ts";

describe("isRecord", () => {
  it.each([{}, { a: 1 }, Object.create(null), new Date(0)])("accepts the object %o", (value) => {
    expect(isRecord(value)).toBe(true);
  });

  it.each([null, undefined, [], [1], "a", 1, true, () => 1])("rejects %o", (value) => {
    expect(isRecord(value)).toBe(false);
  });
});

describe("messageOf", () => {
  it("returns the message of an error and the text of any other value", () => {
    expect(messageOf(new RangeError("too large", { cause: new Error("why") }))).toBe("too large");
    expect(["text", undefined, null, 7].map(messageOf)).toEqual(["text", "undefined", "null", "7"]);
  });
});

describe("parseJson", () => {
  it("returns the value, also null, and undefined for a text that is not JSON", () => {
    expect(['{"a":[1]}', "null", " 1 "].map(parseJson)).toEqual([{ a: [1] }, null, 1]);
    expect(["", "{", "undefined", "[1] 2"].map(parseJson)).toEqual([undefined, undefined, undefined, undefined]);
  });
});

describe("pathExists", () => {
  it("is true for files and directories only", async () => {
    const here = import.meta.dirname;
    expect(await Promise.all([here, import.meta.filename, join(here, "missing")].map(pathExists))).toEqual([true, true, false]);
  });
});

describe("getOrThrow", () => {
  it("returns the value of a key, also a falsy one, and names a missing key", () => {
    const map = new Map([["a", 0]]);
    expect(getOrThrow(map, "a")).toBe(0);
    expect(() => getOrThrow(map, "b")).toThrow('Expected an entry of the map for the key "b", got none');
  });
});

test("items that exist are returned", () => {
  expect([first([3, 4]), last([3, 4]), itemAt(Int32Array.of(5, 6), 1)]).toEqual([3, 4, 6]);
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
  expect(() => itemAt([1], [1].indexOf(2))).toThrow("index -1, got 1 items");
  expect(() => codePointAt("a", 1)).toThrow("index 1, got 1 code units");
  expect(() => zip([1], [])).toThrow("as many items as 1, got 0");
});
