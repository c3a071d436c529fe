/** JSON schemas as grammars, held to ajv: what a grammar makes is valid, and what is valid is accepted. */
import { fc, test } from "@fast-check/vitest";
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, it } from "vitest";
import { integersBetween } from "../../../../src/service/chat/structured/schema/number-range.ts";
import { languageOfExpression, languageOfSchema } from "./support.ts";

function validatorOf(schema: unknown): (value: unknown) => boolean {
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  return ajv.compile(schema as object) as (value: unknown) => boolean;
}

const draws = fc.infiniteStream(fc.nat(0xffff)).map((stream) => (below: number) => (stream.next().value ?? 0) % below);

/** Schemas with texts that should fit and texts that should not. */
const CASES: readonly (readonly [name: string, schema: unknown, fits: readonly unknown[], fitsNot: readonly unknown[]])[] = [
  ["true", true, [1, "a", null, [{}], { a: [1.5e3, true] }], []],
  ["types", { type: ["string", "null"] }, ["", null], [1, [], {}]],
  ["an integer", { type: "integer" }, [0, -12, 123456789], [1.5, "1"]],
  ["a range of integers", { type: "integer", minimum: 0, maximum: 120 }, [0, 9, 99, 120], [-1, 121, 129, 1000]],
  ["a range around zero", { type: "integer", minimum: -15, exclusiveMaximum: 4 }, [-15, -9, 0, 3], [-16, 4, 10]],
  ["a half-open range", { type: "integer", exclusiveMinimum: 99 }, [100, 1000, 987654], [99, 9, -100]],
  [
    "the integers that a double holds",
    { type: "integer", minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER },
    [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, 9007199254740000, -1000000000000000, 999999999999999, 0, -7],
    [2 ** 53, -(2 ** 53), 1e16, 1.5],
  ],
  ["bounds between integers", { type: "integer", minimum: -0.5, maximum: 2.5 }, [0, 1, 2], [-1, 3]],
  ["a range of numbers", { type: "number", minimum: 0, maximum: 1 }, [0, 0.25, 1, 0.999], [-0.1, 1.01, 2, 10]],
  ["open bounds", { type: "number", exclusiveMinimum: 0, exclusiveMaximum: 0.1 }, [0.05, 0.0999, 0.00001], [0, 0.1, 0.2]],
  ["numbers below", { type: "number", maximum: -1.25 }, [-1.25, -1.3, -100], [-1.2, -1, 0, 5]],
  ["characters, not units", { type: "string", minLength: 2, maxLength: 3 }, ["ab", "😀é", "\n\u2028\\"], ["a", "abcd", "😀"]],
  [
    "many characters",
    { type: "string", minLength: 90, maxLength: 200 },
    ["x".repeat(90), "é".repeat(200)],
    ["x".repeat(89), "x".repeat(201)],
  ],
  ["a pattern", { type: "string", pattern: "^[a-z]+-\\d{2,}$" }, ["ab-12", "z-999"], ["ab-1", "AB-12", "xab-12 "]],
  ["a pattern inside", { type: "string", pattern: '"x|\\n' }, ['a"x', "\n"], ["x", ""]],
  ["an enum", { enum: ["a", 1, null, { b: [1, 2] }, "😀\n"] }, ["a", 1, null, { b: [1, 2] }, "😀\n"], ["b", 2, { b: [1] }]],
  ["an enum of a type", { type: "string", enum: ["a", 1] }, ["a"], [1]],
  ["a constant", { const: "x" }, ["x"], ["y", 1]],
  [
    "an object",
    { type: "object", properties: { a: { type: "integer" }, b: { type: "string" } }, required: ["b"] },
    [{ b: "" }, { a: 1, b: "x" }, { b: "x", c: [1] }],
    [{}, { a: 1 }, { a: "1", b: "" }, { b: 5 }, []],
  ],
  [
    "a closed object",
    { type: "object", properties: { a: { type: "integer" }, b: {} }, additionalProperties: false },
    [{}, { a: 1 }, { b: 1 }, { a: 1, b: 2 }],
    [{ c: 1 }, { a: 1, c: 1 }, { ab: 1 }],
  ],
  [
    "other members",
    { type: "object", properties: { ab: {} }, additionalProperties: { type: "integer" } },
    [{ ab: "x", abc: 1, a: 2 }],
    [{ a: "x" }],
  ],
  ["a required member without schema", { type: "object", required: ["x"] }, [{ x: 1 }, { x: 1, y: 2 }], [{}, { y: 1 }]],
  [
    "members of a pattern",
    { type: "object", patternProperties: { "^x": { type: "integer" } }, additionalProperties: false },
    [{}, { x1: 1, x: 2 }],
    [{ y: 1 }, { x: "a" }],
  ],
  ["names of a pattern", { type: "object", propertyNames: { pattern: "^[a-z]{2}$" } }, [{ ab: 1 }, {}], [{ a: 1 }, { abc: 1 }]],
  [
    "names of strings",
    { type: "object", propertyNames: { type: "string" }, additionalProperties: { type: "boolean" } },
    [{ x: true }],
    [{ x: 1 }],
  ],
  ["few members", { type: "object", minProperties: 1, maxProperties: 2 }, [{ a: 1 }, { a: 1, b: 2 }], [{}, { a: 1, b: 2, c: 3 }]],
  ["an array", { type: "array", items: { type: "integer" }, minItems: 1, maxItems: 3 }, [[1], [1, 2, 3]], [[], [1, 2, 3, 4], ["a"]]],
  [
    "a tuple",
    { type: "array", prefixItems: [{ type: "integer" }, { type: "string" }], items: false, minItems: 1 },
    [[1], [1, "a"]],
    [[], ["a"], [1, "a", 2]],
  ],
  [
    "a tuple and more",
    { type: "array", prefixItems: [{ type: "integer" }], items: { type: "boolean" }, maxItems: 3 },
    [[], [1], [1, true, false]],
    [[true], [1, 1], [1, true, true, true]],
  ],
  ["anyOf", { anyOf: [{ type: "integer" }, { type: "string", maxLength: 1 }] }, [1, "a"], ["ab", 1.5]],
  ["anyOf beside keywords", { type: "integer", anyOf: [{ minimum: 10 }, { maximum: 0 }] }, [10, 0, -3], [5]],
  ["oneOf of types", { oneOf: [{ type: "integer" }, { type: "string" }] }, [1, "a"], [null]],
  [
    "oneOf by a member",
    {
      oneOf: [
        { type: "object", properties: { kind: { const: "a" }, x: { type: "integer" } }, required: ["kind"] },
        { type: "object", properties: { kind: { const: "b" } }, required: ["kind"] },
      ],
    },
    [
      { kind: "a", x: 1 },
      { kind: "b", x: "any" },
    ],
    [{ kind: "a", x: "any" }, { kind: "c" }, {}],
  ],
  [
    "allOf",
    {
      allOf: [
        { type: "object", properties: { a: { type: "integer" } } },
        { properties: { a: { minimum: 3 }, b: { type: "string" } }, required: ["a"] },
      ],
    },
    [{ a: 3 }, { a: 4, b: "x" }],
    [{ a: 2 }, {}, { a: 3, b: 1 }],
  ],
  [
    "allOf with a closed object",
    { type: "object", allOf: [{ properties: { a: {} }, additionalProperties: false }, { properties: { b: {} } }] },
    [{ a: 1 }, {}],
    [{ b: 1 }],
  ],
  [
    "references that recurse",
    {
      $ref: "#/$defs/node",
      $defs: {
        node: {
          type: "object",
          properties: { v: { type: "integer" }, next: { anyOf: [{ type: "null" }, { $ref: "#/$defs/node" }] } },
          required: ["v"],
          additionalProperties: false,
        },
      },
    },
    [{ v: 1 }, { v: 1, next: { v: 2, next: null } }],
    [{ next: null }, { v: 1, next: { next: null } }],
  ],
  [
    "a reference beside keywords",
    {
      type: "object",
      properties: { a: { $ref: "#/definitions/n", maximum: 5, description: "few" } },
      required: ["a"],
      definitions: { n: { type: "integer", minimum: 1, description: "many" } },
    },
    [{ a: 1 }, { a: 5 }],
    [{ a: 0 }, { a: 6 }],
  ],
  [
    "a reference to schemas that must hold together",
    { type: "array", items: { $ref: "#/$defs/few" }, $defs: { few: { allOf: [{ type: "integer" }, { minimum: 3 }] } } },
    [[3, 4], []],
    [[2], ["3"]],
  ],
  [
    "a schema beside others that contains itself",
    {
      $ref: "#/$defs/tree",
      $defs: {
        tree: {
          allOf: [{ type: "object", required: ["next"] }, { properties: { next: { type: ["array"], items: { $ref: "#/$defs/tree" } } } }],
        },
      },
    },
    [{ next: [] }, { next: [{ next: [] }, { next: [{ next: [] }] }] }],
    [{}, { next: [{}] }],
  ],
  ["a reference with escapes", { $ref: "#/$defs/a~1b%25/c", $defs: { "a/b%": { c: { type: "integer" } } } }, [1], ["a"]],
  [
    "constants, whatever the order of their members",
    {
      allOf: [{ enum: [{ a: 1, b: [{ c: 2, d: 3 }] }, 7] }, { const: { b: [{ d: 3, c: 2 }], a: 1 } }],
    },
    [{ a: 1, b: [{ c: 2, d: 3 }] }],
    [7, { a: 1 }],
  ],
  ["keywords without a type", { minLength: 2 }, ["ab", 1, null, {}], ["a"]],
  ["remarks", { type: "string", title: "t", description: "d", examples: [1], "x-own": true, $comment: "c" }, ["a"], [1]],
];

describe("a schema", () => {
  it.each(CASES)("%s", (_name, schema, fits, fitsNot) => {
    const language = languageOfSchema(schema);
    const isValid = validatorOf(schema);
    for (const value of fits) {
      expect(isValid(value), JSON.stringify(value)).toBe(true);
      for (const indent of [0, 2]) expect(language.accepts(JSON.stringify(value, null, indent)), JSON.stringify(value)).toBe(true);
    }
    for (const value of fitsNot) {
      expect(isValid(value), JSON.stringify(value)).toBe(false);
      expect(language.accepts(JSON.stringify(value)), JSON.stringify(value)).toBe(false);
    }
  });

  const natural = fc.bigInt({ min: 0n, max: 10n ** 24n });
  test.prop([natural, fc.oneof(natural, fc.bigInt({ min: 0n, max: 2000n }))], { numRuns: 200 })(
    "has exactly the whole numbers between two bounds of any length",
    (low, more) => {
      const high = low + more;
      const language = languageOfExpression(() => integersBetween(low, high));
      const inside = [low, high, (low + high) / 2n, low + more / 3n];
      const outside = [low - 1n, high + 1n, -1n, high * 10n + 10n];
      expect(inside.filter((each) => !language.accepts(String(each)))).toEqual([]);
      expect(outside.filter((each) => language.accepts(String(each)))).toEqual([]);
      expect(language.accepts(`0${low}`)).toBe(false);
    },
  );

  it("may have long names and lists", () => {
    const long = "x".repeat(400);
    const open = languageOfSchema({ type: "object", properties: { [long]: { type: "integer" }, [`${long}😀`]: { type: "null" } } });
    const texts = [`{"${long}":1}`, `{"${long}😀":null}`, `{"${long}y":"any"}`, `{"${long.slice(1)}":"any"}`];
    expect(texts.filter((text) => !open.accepts(text))).toEqual([]);
    expect([`{"${long}":"any"}`, `{"${long}😀":1}`].filter((text) => open.accepts(text))).toEqual([]);
    const name = "y".repeat(20_000);
    const closed = languageOfSchema({ type: "object", properties: { [name]: { type: "integer" } }, additionalProperties: false });
    expect([closed.accepts(`{"${name}":1}`), closed.accepts(`{"${name}":""}`)]).toEqual([true, false]);
    const numbers = Array.from({ length: 1500 }, (_, at) => at);
    const places = languageOfSchema({
      type: "array",
      prefixItems: numbers.map((value) => ({ const: value })),
      items: false,
      minItems: 1499,
    });
    expect([1498, 1499, 1500].map((length) => places.accepts(JSON.stringify(numbers.slice(0, length))))).toEqual([false, true, true]);
    const members = languageOfSchema({
      type: "object",
      properties: Object.fromEntries(numbers.slice(0, 300).map((at) => [`member ${at}\n`, { const: at }])),
    });
    expect(['{"member 7\\n":7,"member 8":0}', '{"member 7\\n":8}'].map((text) => members.accepts(text))).toEqual([true, false]);
    const both = Array.from({ length: 20_000 }, (_, at) => at);
    const shared = languageOfSchema({ allOf: [{ enum: both }, { enum: both.map((each) => each * 2) }] });
    expect(["0", "2", "19998", "3", "20000"].map((text) => shared.accepts(text))).toEqual([true, true, true, false, false]);
    const constants = languageOfSchema({ oneOf: both.slice(0, 5000).map((value) => ({ const: value })) });
    expect(["4999", "5000"].map((text) => constants.accepts(text))).toEqual([true, false]);
  });

  it("may have bounds of hundreds of digits", () => {
    const bound = BigInt(1e300);
    const language = languageOfSchema({ type: "integer", minimum: -1e300, maximum: 1e300 });
    expect([bound, bound - 1n, 10n ** 299n, 0n, -bound].filter((each) => !language.accepts(String(each)))).toEqual([]);
    expect([bound + 1n, bound * 10n, -bound - 1n].filter((each) => language.accepts(String(each)))).toEqual([]);
    const numbers = languageOfSchema({ type: "number", exclusiveMinimum: 0, maximum: 1e300 });
    expect([`${10n ** 300n}.0`, "0.5", "1"].filter((each) => !numbers.accepts(each))).toEqual([]);
    expect(["0", "0.0", `${10n ** 300n}.1`].filter((each) => numbers.accepts(each))).toEqual([]);
  });

  it("is no member in disguise: neither an escaped name nor a name twice", () => {
    const language = languageOfSchema({ type: "object", properties: { a: { type: "integer" } } });
    expect(language.accepts('{"a":1,"b":"x"}')).toBe(true);
    expect(language.accepts('{"a":1,"\\u0061":"x"}')).toBe(false);
    expect(language.accepts('{"a":1,"a":"x"}')).toBe(false);
    expect(language.accepts('{"b":1,"a":"x"}')).toBe(false);
  });

  it("is a whole text: nothing before it, nothing after it, and no number that is infinite", () => {
    const language = languageOfSchema({});
    expect(
      ["1 ", " 1", "{}x", "", "01", "1.", "'a'", "{a:1}", "[1,]", "NaN", "1e999", "9".repeat(400)].filter((text) => language.accepts(text)),
    ).toEqual([]);
    expect(["1e300", "9.5e307", "1E-9", "-0.5e+10", '"\\u00e9\\ud83d\\ude00"'].filter((text) => !language.accepts(text))).toEqual([]);
    expect(language.accepts('"\\ud83d"')).toBe(false);
  });

  it.each([
    ["date", ["2024-02-29", "2000-02-29", "1999-12-31"], ["2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "2024-1-01"]],
    ["time", ["23:59:59Z", "00:00:00.125+05:30"], ["24:00:00Z", "12:00:00", "12:60:00Z"]],
    ["date-time", ["2024-02-29T12:00:00Z"], ["2024-02-29 12:00:00Z", "2024-02-30T12:00:00Z"]],
    ["uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000"]],
    ["ipv4", ["255.0.10.1"], ["256.0.0.1", "1.2.3", "01.2.3.4"]],
  ])("the format %s", (format, fits, fitsNot) => {
    const language = languageOfSchema({ type: "string", format });
    expect(fits.filter((value) => !language.accepts(JSON.stringify(value)))).toEqual([]);
    expect(fitsNot.filter((value) => language.accepts(JSON.stringify(value)))).toEqual([]);
  });

  it.each([
    ["not", { not: { type: "string" } }],
    ["if", { if: {}, else: {} }],
    ["multipleOf", { type: "number", multipleOf: 0.1 }],
    ["uniqueItems", { type: "array", uniqueItems: true }],
    ["contains", { type: "array", contains: {} }],
    ["dependentRequired", { dependentRequired: { a: ["b"] } }],
    ["unevaluatedProperties", { unevaluatedProperties: false }],
    ["minProperties", { type: "object", minProperties: 2 }],
    ["maxProperties", { type: "object", properties: { a: {} }, maxProperties: 1 }],
    ["patternProperties", { type: "object", patternProperties: { "^x": {} } }],
    ["propertyNames", { type: "object", propertyNames: { minLength: 2 } }],
    ["oneOf", { oneOf: [{ type: "integer" }, { minimum: 2 }] }],
    ["oneOf", { oneOf: [{ const: { a: 1, b: 2 } }, { enum: [{ b: 2, a: 1 }] }] }],
    ["format", { type: "string", format: "email" }],
    ["pattern", { type: "string", pattern: "a", minLength: 3 }],
    ["pattern", { allOf: [{ pattern: "a" }, { pattern: "b" }] }],
    ["minLength", { enum: ["a"], minLength: 2 }],
    ["$ref", { $ref: "https://example.com/schema" }],
  ])("%s is refused by name", (keyword, schema) => {
    expect(() => languageOfSchema(schema)).toThrow(`\`${keyword}\``);
  });

  it.each([
    ["a lookahead", { type: "string", pattern: "^(?=a)" }, /lookahead/],
    ["a pattern that does not parse", { type: "string", pattern: "[" }, /does not parse/],
    ["a type that is none", { type: "text" }, /`type`/],
    ["a reference to nowhere", { $ref: "#/$defs/none" }, /`\$ref`/],
    ["a reference that is no URI", { $ref: "#/%" }, /`\$ref`.*percent/],
    ["a bound that is none", { type: "integer", minimum: "1" }, /`minimum`/],
    ["a count that is none", { type: "string", minLength: -1 }, /`minLength`/],
    ["nothing fits", { type: "integer", minimum: 3, maximum: 2 }, /No text matches/],
    ["a schema that is its own part", { $ref: "#" }, /No text matches|left-recursive/],
    ["many names", { type: "object", required: Array.from({ length: 40_000 }, (_, at) => `name ${at}`) }, /characters|states/],
    [
      "many names of a closed object",
      { required: Array.from({ length: 40_000 }, (_, at) => `name ${at}`), type: "object", additionalProperties: false },
      /states|No text/,
    ],
    ["a long name", { type: "object", properties: { ["x".repeat(20_000)]: {} } }, /`additionalProperties`.*500 characters/],
    [
      "two schemas that contain themselves and must hold together",
      {
        allOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/b" }],
        $defs: {
          a: { type: "object", properties: { next: { $ref: "#/$defs/a" } } },
          b: { type: "object", properties: { next: { $ref: "#/$defs/b" }, x: {} } },
        },
      },
      /`allOf`.*refer to themselves/,
    ],
    [
      "alternatives that are many to compare",
      { oneOf: Array.from({ length: 1200 }, (_, at) => ({ type: "object", properties: { kind: { const: at } }, required: ["kind"] })) },
      /`oneOf`.*too many/,
    ],
    ["too many states", { type: "string", pattern: "^(a?){0,300000}$" }, /states/],
  ])("%s is an error", (_name, schema, message) => {
    expect(() => languageOfSchema(schema)).toThrow(message);
  });
});

const name = fc.constantFrom("a", "b", "ab", "c d", "é", 'q"', "");
const small = fc.integer({ min: -150, max: 150 });
const bounded = (low: string, high: string, value: fc.Arbitrary<number>) =>
  fc.record({ [low]: value, [high]: value }, { requiredKeys: [] }).map((each) => each as Record<string, number>);
const scalarSchema = fc.oneof(
  fc
    .tuple(
      fc.constantFrom("integer", "number"),
      bounded("minimum", "maximum", small),
      bounded(
        "exclusiveMinimum",
        "exclusiveMaximum",
        small.map((n) => n / 4),
      ),
    )
    .map(([type, a, b]) => ({ type, ...a, ...b })),
  bounded("minLength", "maxLength", fc.nat(4)).map((bounds) => ({ type: "string", ...bounds })),
  fc.constantFrom("^a+b?$", "x|y$", "^[^a-z]{1,2}$", "^\\w\\s?", '["\\\\/]').map((pattern) => ({ type: "string", pattern })),
  fc
    .uniqueArray(fc.oneof(small, name, fc.constant(null), fc.boolean()), { minLength: 1, maxLength: 3 })
    .map((values) => ({ enum: values })),
  fc.constantFrom<unknown>(true, { type: "null" }, { type: "boolean" }, { type: ["integer", "null"] }),
);
const { schema: nested } = fc.letrec<{ schema: unknown; object: unknown; array: unknown; combined: unknown }>((tie) => ({
  schema: fc.oneof({ depthSize: "small", withCrossShrink: true }, scalarSchema, tie("object"), tie("array"), tie("combined")),
  object: fc
    .record(
      {
        properties: fc.dictionary(name, tie("schema"), { maxKeys: 3 }),
        // Not the empty name: ajv takes its absence for its presence.
        required: fc.uniqueArray(
          name.filter((each) => each !== ""),
          { maxLength: 2 },
        ),
        additionalProperties: fc.oneof(fc.boolean(), tie("schema")),
      },
      { requiredKeys: [] },
    )
    .map((each) => ({ type: "object", ...each })),
  array: fc
    .tuple(
      fc.record({ items: tie("schema"), prefixItems: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }) }, { requiredKeys: [] }),
      bounded("minItems", "maxItems", fc.nat(3)),
    )
    .map(([each, bounds]) => ({ type: "array", ...each, ...bounds })),
  combined: fc.oneof(
    fc.array(tie("schema"), { minLength: 1, maxLength: 3 }).map((anyOf) => ({ anyOf })),
    fc.tuple(tie("schema"), tie("schema")).map((allOf) => ({ allOf })),
    tie("schema").map((referred) => ({ referred })),
  ),
}));

/** A document: what is `referred` to anywhere in it stands among its definitions. */
function withReferences(given: unknown): unknown {
  const definitions: Record<string, unknown> = {};
  const document = JSON.parse(JSON.stringify(given), (_, value: unknown) => {
    if (typeof value !== "object" || value === null || !("referred" in value)) return value;
    const place = `part${Object.keys(definitions).length}`;
    definitions[place] = value.referred;
    return { $ref: `#/$defs/${place}` };
  }) as unknown;
  return typeof document === "object" ? { ...document, $defs: definitions } : document;
}
const schema = nested.map(withReferences);

/** A grammar, or null where the schema is refused or fits nothing. */
function languageOrNull(given: unknown): ReturnType<typeof languageOfSchema> | null {
  try {
    return languageOfSchema(given);
  } catch (error) {
    if (/cannot be enforced|No text matches/.test(String(error))) return null;
    throw error;
  }
}

/** Values near what a part of a schema may want, members in its order. */
function near(given: unknown, root: unknown, draw: (below: number) => number, depth = 0): unknown {
  const any = [null, true, 0, -7, 12.25, "", "ab", "xé", 'a"b', [], [1], {}, { a: 1 }, { zz: "x" }];
  if (depth > 4 || typeof given !== "object" || given === null || draw(12) === 0) return any[draw(any.length)];
  const own = given as Record<string, any>;
  if (own["enum"]) return own["enum"][draw(own["enum"].length)];
  if (own["$ref"]) return near((root as Record<string, any>)["$defs"][own["$ref"].split("/").at(-1)], root, draw, depth + 1);
  const options = own["anyOf"] ?? own["allOf"];
  if (options) return near(options[draw(options.length)], root, draw, depth + 1);
  const type: string = Array.isArray(own["type"]) ? own["type"][draw(own["type"].length)] : own["type"];
  switch (type) {
    case "object": {
      const names = [...new Set([...Object.keys(own["properties"] ?? {}), ...(own["required"] ?? [])])];
      const kept = names.filter((each) => own["required"]?.includes(each) || draw(2) === 0);
      const more = draw(3) === 0 ? ["zz"] : [];
      const value = (each: string) =>
        near(Object.hasOwn(own["properties"] ?? {}, each) ? own["properties"][each] : own["additionalProperties"], root, draw, depth + 1);
      return Object.fromEntries([...kept, ...more].map((each) => [each, value(each)]));
    }
    case "array":
      return Array.from({ length: draw(4) }, (_, at) => near(own["prefixItems"]?.[at] ?? own["items"], root, draw, depth + 1));
    case "integer":
      return draw(300) - 150;
    case "number":
      return draw(30_000) / 100 - 150;
    case "boolean":
      return draw(2) === 0;
    case "null":
      return null;
    default:
      return ["", "a", "ab", "aab", "x", "ay", "😀", "é😀", "0_", "a b", '"', "abcde"][draw(12)];
  }
}

/** Ways to put a list in order, at most `most`. */
function permutations<T>(items: readonly T[], most: number): T[][] {
  if (items.length === 0) return [[]];
  const result: T[][] = [];
  for (const [at, first] of items.entries())
    for (const rest of permutations([...items.slice(0, at), ...items.slice(at + 1)], most))
      if (result.push([first, ...rest]) >= most) return result;
  return result;
}

/** One of each list, in all combinations, at most `most`. */
function combinations<T>(lists: readonly (readonly T[])[], most: number): T[][] {
  return lists.reduce<T[][]>((all, list) => all.flatMap((each) => list.map((one) => [...each, one])).slice(0, most), [[]]);
}

/** A value's texts with the members of its objects in other orders: those of a schema come first, and schemas may differ. */
function orderings(value: unknown, most = 2000): string[] {
  if (typeof value !== "object" || value === null) return [JSON.stringify(value)];
  if (Array.isArray(value))
    return combinations(
      value.map((each) => orderings(each, most)),
      most,
    ).map((items) => `[${items.join()}]`);
  const members = Object.entries(value).map(([key, each]) => orderings(each, most).map((text) => `${JSON.stringify(key)}:${text}`));
  return combinations(members, most)
    .flatMap((each) => permutations(each, most))
    .slice(0, most)
    .map((items) => `{${items.join()}}`);
}

describe("any schema", () => {
  test.prop([schema, draws], { numRuns: 120 })("what its grammar makes is valid", (given, draw) => {
    const language = languageOrNull(given);
    if (language === null) return;
    const isValid = validatorOf(given);
    for (let turn = 0; turn < 3; turn++) {
      const text = language.walk(draw);
      if (text === null) continue;
      expect(isValid(JSON.parse(text)), text).toBe(true);
    }
  });

  test.prop([schema, draws], { numRuns: 120 })("a value is accepted exactly if it is valid, its members in some order", (given, draw) => {
    const language = languageOrNull(given);
    if (language === null) return;
    const isValid = validatorOf(given);
    for (let turn = 0; turn < 10; turn++) {
      const value = near(given, given, draw);
      const text = JSON.stringify(value);
      const isAccepted = language.accepts(text) || orderings(value).some((each) => language.accepts(each));
      expect([isAccepted, text]).toEqual([isValid(value), text]);
    }
  });
});
