/** Schemas at the limits of grammars: large counts, negated patterns, closed objects. */
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, it } from "vitest";
import { compileSchema } from "./support.ts";

const properties = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`p${at}`, { type: "null" }]));
const membersText = (count: number) => JSON.stringify(Object.fromEntries(Array.from({ length: count }, (_, at) => [`p${at}`, null])));

describe("bounds on the number of members", () => {
  it.each([
    [1, { maxProperties: 1e9 }],
    [1, { maxProperties: 2 ** 32 }],
    [1, { maxProperties: Number.MAX_SAFE_INTEGER, minProperties: 1e15 }],
    [20, { maxProperties: 3000 }],
    [2000, { maxProperties: 10, additionalProperties: false }],
  ])("with %i properties are left to the validation if counting needs too many states: %j", (count, bounds) => {
    const { language, loose } = compileSchema({ type: "object", properties: properties(count), ...bounds });
    expect(loose).toContain("maxProperties");
    expect(language.accepts(membersText(count))).toBe(true);
  });

  it("enforces a lower bound even if the upper bound is too large to count", () => {
    const { language, loose } = compileSchema({ type: "object", properties: properties(1), minProperties: 1, maxProperties: 1e9 });
    expect(loose).toEqual(["maxProperties"]);
    expect([language.accepts("{}"), language.accepts('{"x":1}')]).toEqual([false, true]);
  });

  it("need no counting if an object cannot have more members than its upper bound", () => {
    const closed = { type: "object", properties: properties(20), additionalProperties: false };
    for (const maxProperties of [20, 3000, 1e9, 2 ** 53]) {
      const { language, loose } = compileSchema({ ...closed, maxProperties });
      expect(loose).toEqual([]);
      expect(language.accepts(membersText(20))).toBe(true);
    }
    const { language, loose } = compileSchema({ ...closed, maxProperties: 19 });
    expect(loose).toEqual([]);
    expect([19, 20].map((count) => language.accepts(membersText(count)))).toEqual([true, false]);
  });

  it("allow no member with an upper bound of 0, also of an object with many optional members", () => {
    for (const count of [1, 64, 200]) {
      const { language, loose } = compileSchema({ type: "object", properties: properties(count), maxProperties: 0 });
      expect(loose).toEqual([]);
      expect(["{}", '{"p0":null}', '{"x":1}'].map((text) => language.accepts(text))).toEqual([true, false, false]);
    }
  });

  it.each([
    ["a lower bound above the upper one", { minProperties: 1e9, maxProperties: 1e8 }],
    ["a lower bound above the number of members of a closed object", { minProperties: 1e9, additionalProperties: false }],
  ])("match no text with %s", (_name, bounds) => {
    expect(() => compileSchema({ type: "object", properties: properties(2), ...bounds })).toThrow(/No text matches/);
  });

  it("limits the total number of rules for many objects", () => {
    const counted = { type: "object", properties: properties(1), maxProperties: 2400 };
    const many = Object.fromEntries(Array.from({ length: 4000 }, (_, at) => [`o${at}`, counted]));
    expect(() => compileSchema({ type: "object", properties: many })).toThrow(/at most \d+ rules/);
  });
});

describe("a negated pattern", () => {
  const values = ["a", "b", "", null, 5, true, [], {}, ["a"], { a: "a" }];
  const member = (schema: object) => ({ type: "object", properties: { x: schema }, required: ["x"], additionalProperties: false });

  it.each([
    { not: { pattern: "^a" } },
    { type: "string", not: { pattern: "^a" } },
    { type: ["string"], not: { pattern: "^a" } },
    { type: ["string", "null"], not: { pattern: "^a" } },
    { type: ["integer", "string"], not: { pattern: "^a" } },
    { not: { not: { pattern: "^a" } } },
    { if: { pattern: "^a" }, else: { minLength: 1 } },
    JSON.parse('{"if":{"pattern":"^a"},"then":{"type":"string"},"else":false}') as object,
    { if: { type: "string", pattern: "^a" }, else: { type: ["null", "string"] } },
    { anyOf: [{ not: { pattern: "^a" } }, { type: "null" }] },
    { allOf: [{ type: ["string", "null"] }, { not: { pattern: "^a" } }] },
    { propertyNames: { not: { pattern: "^a" } } },
  ])("rejects the values that JSON Schema rejects: %j", (schema) => {
    for (const given of [schema, member(schema)]) {
      const isValid = new Ajv2020({ strict: false }).compile(given);
      const { language, loose } = compileSchema(given);
      expect(loose).toEqual([]);
      for (const value of given === schema ? values : values.map((x) => ({ x })))
        expect([language.accepts(JSON.stringify(value)), value]).toEqual([isValid(value), value]);
    }
  });

  it("rejects a pattern that is not a string", () => {
    expect(() => compileSchema({ type: "string", not: { pattern: 5 } })).toThrow(/`pattern`.*a string/);
  });
});

describe("the format int64", () => {
  const [min, max] = [-(2n ** 63n), 2n ** 63n - 1n];

  it.each([
    { type: "integer", format: "int64" },
    { type: "number", format: "int64" },
    { allOf: [{ type: "integer" }, { format: "int64" }] },
  ])("accepts exactly the 64-bit integers: %j", (schema) => {
    const { language, loose } = compileSchema({ type: "array", items: schema });
    expect(loose).toEqual([]);
    expect([min, max, 0n, max - 1n, 10n ** 18n].filter((value) => !language.accepts(`[${value}]`))).toEqual([]);
    expect([min - 1n, max + 1n, 10n ** 200n - 1n, "0.5"].filter((value) => language.accepts(`[${value}]`))).toEqual([]);
  });

  it("can be combined with bounds, multiples and int32", () => {
    const accepted = (schema: object, texts: readonly unknown[]) =>
      texts.map(String).filter((text) => compileSchema(schema).language.accepts(text));
    const integer = { type: "integer", format: "int64" };
    expect(accepted({ ...integer, minimum: 2 ** 62 }, [2n ** 62n - 1n, 2n ** 62n, max, max + 1n])).toEqual([
      String(2n ** 62n),
      String(max),
    ]);
    expect(accepted({ ...integer, maximum: -1e18, exclusiveMinimum: -1e20 }, [min - 1n, min, -(10n ** 18n), 0])).toEqual([
      String(min),
      String(-(10n ** 18n)),
    ]);
    expect(accepted({ ...integer, multipleOf: 5 }, [5, 7, -10])).toEqual(["5", "-10"]);
    expect(accepted({ allOf: [integer, { format: "int32" }] }, [2 ** 31 - 1, 2 ** 31])).toEqual([String(2 ** 31 - 1)]);
    expect(accepted({ type: "integer", format: "int32", multipleOf: 2 }, [2 ** 31 - 2, 2 ** 31])).toEqual([String(2 ** 31 - 2)]);
  });
});

describe("multipleOf", () => {
  it.each([
    [97, true],
    [9.7, true],
    [97e-12, true],
    [1000, true],
    [997, false],
    [2000, false],
    [1e-13, false],
  ])("of %d is enforced by the grammar: %s", (multipleOf, isEnforced) => {
    expect(compileSchema({ type: "number", multipleOf }).loose).toEqual(isEnforced ? [] : ["multipleOf"]);
  });
});
