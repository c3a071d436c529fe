/** JSON schemas as grammars, compared with ajv: generated values are valid, and valid values are accepted. */
import { fc, test } from "@fast-check/vitest";
import { Ajv2020 } from "ajv/dist/2020.js";
import ajvFormats from "ajv-formats";
import { describe, expect, it } from "vitest";
import { integersBetween } from "../../../src/text/grammar/compile/schema/number-range.ts";
import { violationOf } from "../../../src/service/chat/answer/output-validation.ts";
import { CASES } from "./schema-cases.ts";
import { compileSchema, languageOfExpression, languageOfSchema } from "./support.ts";
import { randomCases } from "../../support/random-cases.ts";

// Each instance compiles the schema of schemas anew.
const ajv = new Ajv2020({ strict: false, logger: false });
ajvFormats.default(ajv);

function validatorOf(schema: unknown): (value: unknown) => boolean {
  const validator = ajv.compile(schema as object) as (value: unknown) => boolean;
  if (typeof schema === "object") ajv.removeSchema(schema as object);
  return validator;
}

const draws = fc.infiniteStream(fc.nat(0xffff)).map((stream) => (below: number) => (stream.next().value ?? 0) % below);

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
  test.prop([natural, fc.oneof(natural, fc.bigInt({ min: 0n, max: 2000n }))], { numRuns: randomCases(80) })(
    "accepts exactly the integers between two bounds of any length",
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

  it("supports long names and long lists", () => {
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

  it("supports bounds with hundreds of digits", () => {
    const bound = BigInt(1e300);
    const language = languageOfSchema({ type: "integer", minimum: -1e300, maximum: 1e300 });
    expect([bound, bound - 1n, 10n ** 299n, 0n, -bound].filter((each) => !language.accepts(String(each)))).toEqual([]);
    expect([bound + 1n, bound * 10n, -bound - 1n].filter((each) => language.accepts(String(each)))).toEqual([]);
    const numbers = languageOfSchema({ type: "number", exclusiveMinimum: 0, maximum: 1e300 });
    expect([`${10n ** 300n}.0`, "0.5", "1"].filter((each) => !numbers.accepts(each))).toEqual([]);
    expect(["0", "0.0", `${10n ** 300n}.1`].filter((each) => numbers.accepts(each))).toEqual([]);
  });

  it("rejects an escaped spelling of a declared name, and duplicate names", () => {
    const language = languageOfSchema({ type: "object", properties: { a: { type: "integer" } } });
    expect(language.accepts('{"a":1,"b":"x"}')).toBe(true);
    expect(language.accepts('{"a":1,"\\u0061":"x"}')).toBe(false);
    expect(language.accepts('{"a":1,"a":"x"}')).toBe(false);
    expect(language.accepts('{"b":1,"a":"x"}')).toBe(false);
  });

  it("accepts one complete JSON text: no white space around it and no infinite number", () => {
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
    ["duration", ["P1DT2H", "PT5M", "P3W", "P1Y2M3D"], ["P", "PT", "1D", "P1W2D", "P1.5D", "P1Y2D", "PT1H2S"]],
    ["email", ["a.b+c@example.org"], ["a@", "@b.c", "a b@c.d", "a@b", "a..b@c.de"]],
    ["hostname", ["a-b.example.org", "localhost", "a--b", `${"x".repeat(63)}.de`], ["-a.b", "a..b", "xn--x", `${"x".repeat(64)}.de`]],
    ["ipv6", ["::1", "2001:db8::ff00:42:8329", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8"], ["1::2::3", "12345::", ":1", "1:2:3:4:5:6:7"]],
    ["uri", ["https://u@example.org:80/a%20b?q=1#f", "mailto:a@b.c", "urn:x:y", "http://[::1]/"], ["//a/b", "a b:c", "x", "http://a b"]],
    ["uri-reference", ["/a/b?c", "a/b", "", "#x", "//host/x"], ["a b", "%zz"]],
    ["uri-template", ["/a/{b,c}", "é"], ["{", "a b", "a\u007fb"]],
    ["json-pointer", ["", "/a~1b/0"], ["a", "/~2"]],
    ["uuid4", ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]],
    ["ipv4", ["255.0.10.1"], ["256.0.0.1", "1.2.3", "01.2.3.4"]],
  ])("supports the format %s", (format, fits, fitsNot) => {
    const language = languageOfSchema({ type: "string", format });
    expect(fits.filter((value) => !language.accepts(JSON.stringify(value)))).toEqual([]);
    expect(fitsNot.filter((value) => language.accepts(JSON.stringify(value)))).toEqual([]);
  });

  it.each([
    ["uniqueItems", { type: "array", uniqueItems: true }, "[1,1]"],
    ["uniqueItems", { type: "array", uniqueItems: true, items: { enum: Array.from({ length: 20 }, (_, at) => at) } }, "[1,2,1]"],
    ["contains", { type: "array", contains: { const: 1 }, maxContains: 1 }, "[1,1]"],
    ["minProperties", { type: "object", minProperties: 2 }, '{"a":1,"a":2}'],
    ["multipleOf", { type: "integer", multipleOf: 100_003 }, "5"],
    ["not", { type: "integer", not: { const: 5 } }, "5"],
    ["not", { not: { items: { type: "string" } } }, "[]"],
    [
      "oneOf",
      {
        oneOf: [
          { type: "string", format: "regex" },
          { type: "string", minLength: 2 },
        ],
      },
      '"ab"',
    ],
    [
      "oneOf",
      { oneOf: ["a", "b", "c"].map((x) => ({ properties: Object.fromEntries([0, 1, 2, 3, 4].map((at) => [x + at, { type: "null" }])) })) },
      "{}",
    ],
    ["oneOf", { oneOf: Array.from({ length: 20 }, (_, at) => ({ type: "string", minLength: at })) }, '"ab"'],
    ["format", { type: "string", format: "regex" }, String.raw`"\\a"`],
    ["format", { type: "string", format: "regex" }, '"("'],
    ["format", { type: "string", format: "hostname" }, `"${"a".repeat(60)}${`.${"b".repeat(60)}`.repeat(4)}"`],
    ["pattern", { type: "string", pattern: "\\ba" }, '"ba"'],
    ["pattern", { type: "string", pattern: "^(a|b)\\1$" }, '"ab"'],
    ["maxLength", { type: "string", format: "uri", maxLength: 2083 }, `"x:${"y".repeat(2100)}"`],
    ["patternProperties", { type: "object", patternProperties: { "^(.)\\1": { type: "integer" } } }, '{"aa":"x"}'],
    ["format", { type: "object", propertyNames: { format: "regex" } }, '{"(":1}'],
    [
      "unevaluatedProperties",
      { allOf: [{ properties: { a: {} } }], anyOf: [{ properties: { b: {} } }, {}], unevaluatedProperties: false },
      null,
    ],
    [
      "allOf",
      { allOf: Array.from({ length: 12 }, (_, at) => ({ anyOf: [0, 1, 2].map((x) => ({ properties: { [`p${at}`]: { const: x } } })) })) },
      null,
    ],
  ])("leaves %s to the validation if the grammar cannot enforce it: %j", (keyword, schema, text) => {
    const { language, loose } = compileSchema(schema);
    expect(loose).toContain(keyword);
    if (text === null) return;
    expect(language.accepts(text)).toBe(true);
    expect(violationOf(JSON.stringify(schema), text)).toEqual(expect.any(String));
  });

  it.each([
    ["a reference elsewhere", "$ref", { $ref: "https://example.com/schema" }],
    ["a dynamic reference elsewhere", "$dynamicRef", { $dynamicRef: "https://example.com/schema#node" }],
    ["a reference to an unknown anchor", "$ref", { $ref: "#node" }],
    ["a dynamic reference to an unknown anchor", "$dynamicRef", { $dynamicRef: "#node" }],
  ])("rejects %s and names the keyword", (_name, keyword, schema) => {
    expect(() => languageOfSchema(schema)).toThrow(`\`${keyword}\``);
  });

  it("supports older drafts and the OpenAPI dialect", () => {
    const accepts = (schema: object, texts: readonly string[]) => texts.filter((text) => languageOfSchema(schema).accepts(text));
    const tuple = { type: "array", items: [{ type: "integer" }, { type: "string" }], additionalItems: false, minItems: 2 };
    expect(accepts(tuple, ['[1,"a"]', "[1,2]", '[1,"a",2]'])).toEqual(['[1,"a"]']);
    const above = { type: "integer", minimum: 3, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: false };
    expect(accepts(above, ["3", "4", "9", "10"])).toEqual(["4", "9"]);
    const nullable = { type: "object", properties: { a: { type: "string", nullable: true } }, required: ["a"], nullable: true };
    expect(accepts(nullable, ["null", '{"a":null}', '{"a":"x"}', '{"a":1}'])).toEqual(["null", '{"a":null}', '{"a":"x"}']);
    const linked = { type: "object", properties: { next: { allOf: [{ $ref: "#" }], nullable: true } }, required: ["next"] };
    expect(accepts(linked, ['{"next":null}', '{"next":{"next":null}}', '{"next":1}'])).toEqual(['{"next":null}', '{"next":{"next":null}}']);
    const dependent = { type: "object", properties: { a: {}, b: {} }, dependencies: { a: ["b"] } };
    expect(accepts(dependent, ['{"a":1}', '{"a":1,"b":1}'])).toEqual(['{"a":1,"b":1}']);
  });

  it("requires the tags of a union, even if they have defaults, so that a value matches exactly one schema", () => {
    const tagged = (kind: string) => ({ type: "object", properties: { kind: { const: kind, default: kind }, x: { type: "integer" } } });
    const { language, loose } = compileSchema({ oneOf: [tagged("a"), tagged("b")], discriminator: { propertyName: "kind" } });
    expect(loose).toEqual([]);
    expect(['{"kind":"b","x":1}', '{"x":1}', "{}"].map((text) => language.accepts(text))).toEqual([true, false, false]);
  });

  it("restricts items that a branch does not evaluate, which ajv does not", () => {
    const language = languageOfSchema({ unevaluatedItems: { type: "boolean" }, anyOf: [{ items: { type: "string" } }, true] });
    expect(['["a","b"]', "[true]", "5", '["a",true]', "[1]"].map((text) => language.accepts(text))).toEqual([
      true,
      true,
      true,
      false,
      false,
    ]);
  });

  it("supports thousands of optional members", () => {
    const properties = Object.fromEntries(Array.from({ length: 2000 }, (_, at) => [`field_${at}`, { type: "integer" }]));
    for (const additionalProperties of [true, false]) {
      const language = languageOfSchema({ type: "object", properties, additionalProperties });
      expect(language.accepts('{"field_3":1,"field_1999":2}')).toBe(true);
      expect(language.accepts('{"field_3":1,"field_2":2}')).toBe(false);
      expect(language.accepts('{"field_2000":"x"}')).toBe(additionalProperties);
    }
  });

  it.each([
    ["flags inside a pattern", { type: "string", pattern: "(?i:a)" }, /does not parse/],
    ["a format that is no name", { type: "string", format: 3 }, /`format`/],
    ["a pattern that does not parse", { type: "string", pattern: "[" }, /does not parse/],
    ["an unknown type", { type: "text" }, /`type`/],
    ["a reference to nowhere", { $ref: "#/$defs/none" }, /`\$ref`/],
    ["a reference that is no URI", { $ref: "#/%" }, /`\$ref`.*percent/],
    ["a bound that is not a number", { type: "integer", minimum: "1" }, /`minimum`/],
    ["a count that is none", { type: "string", minLength: -1 }, /`minLength`/],
    ["schemas of which each value matches two", { oneOf: [{ const: { a: 1, b: 2 } }, { enum: [{ b: 2, a: 1 }] }] }, /No text matches/],
    ["nothing fits", { type: "integer", minimum: 3, maximum: 2 }, /No text matches/],
    ["a schema that is its own part", { $ref: "#" }, /No text matches|left-recursive/],
    ["many names", { type: "object", required: Array.from({ length: 40_000 }, (_, at) => `name ${at}`) }, /characters|states/],
    [
      "many names of a closed object",
      { required: Array.from({ length: 40_000 }, (_, at) => `name ${at}`), type: "object", additionalProperties: false },
      /states|No text/,
    ],
    ["a long name", { type: "object", properties: { ["x".repeat(20_000)]: {} } }, /`additionalProperties`.*500 characters/],
    ["too many states", { type: "string", pattern: "^(a?){0,300000}$" }, /states/],
  ])("rejects %s", (_name, schema, message) => {
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
  fc
    .tuple(fc.constantFrom("^a+b?$", "a", "^(?=.*a)[a-z]+$", "\\d|x"), bounded("minLength", "maxLength", fc.nat(4)))
    .map(([pattern, bounds]) => ({ type: "string", pattern, ...bounds })),
  fc
    .tuple(fc.constantFrom("integer", "number"), fc.constantFrom(2, 5, 0.5, 0.25), bounded("minimum", "maximum", small))
    .map(([type, multipleOf, bounds]) => ({ type, multipleOf, ...bounds })),
  fc.uniqueArray(name, { minLength: 1, maxLength: 2 }).map((values) => ({ type: "string", not: { enum: values } })),
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
        // Without the empty name, which ajv treats as always present.
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

/** Returns a document with definitions for all references. */
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

/** Returns a grammar that enforces the whole schema; null if keywords are left to the validation, or no value is valid. */
function languageOrNull(given: unknown): ReturnType<typeof languageOfSchema> | null {
  try {
    const { language, loose } = compileSchema(given);
    return loose.length === 0 ? language : null;
  } catch (error) {
    if (/No text matches/.test(String(error))) return null;
    throw error;
  }
}

/** Returns a value that is valid or nearly valid for a part of a schema, with members in the schema's order. */
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

/** Returns permutations of a list, at most `most`. */
function permutations<T>(items: readonly T[], most: number): T[][] {
  if (items.length === 0) return [[]];
  const result: T[][] = [];
  for (const [at, first] of items.entries())
    for (const rest of permutations([...items.slice(0, at), ...items.slice(at + 1)], most))
      if (result.push([first, ...rest]) >= most) return result;
  return result;
}

/** Returns the Cartesian product of lists, at most `most` combinations. */
function combinations<T>(lists: readonly (readonly T[])[], most: number): T[][] {
  return lists.reduce<T[][]>((all, list) => all.flatMap((each) => list.map((one) => [...each, one])).slice(0, most), [[]]);
}

/** Returns JSON texts of a value with other orders of members: declared members come first, in the order of one of the schemas. */
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

describe("any JSON Schema", () => {
  test.prop([schema, draws], { numRuns: randomCases(40) })("produces only valid values", (given, draw) => {
    const language = languageOrNull(given);
    if (language === null) return;
    const isValid = validatorOf(given);
    for (let turn = 0; turn < 3; turn++) {
      const text = language.walk(draw);
      if (text === null) continue;
      expect(isValid(JSON.parse(text)), text).toBe(true);
    }
  });

  test.prop([schema, draws], { numRuns: randomCases(40) })(
    "accepts a value, in some order of its members, exactly if it is valid",
    (given, draw) => {
      const language = languageOrNull(given);
      if (language === null) return;
      const isValid = validatorOf(given);
      for (let turn = 0; turn < 10; turn++) {
        const value = near(given, given, draw);
        const text = JSON.stringify(value);
        const isAccepted = language.accepts(text) || orderings(value).some((each) => language.accepts(each));
        expect([isAccepted, text]).toEqual([isValid(value), text]);
      }
    },
  );
});
