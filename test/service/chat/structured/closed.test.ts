/** Objects that a request closes by default: their grammar, and the schema that their texts are validated against. */
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { compileOutput } from "../../../../src/service/chat/generate/output-grammar.ts";
import { violationOf } from "../../../../src/service/chat/answer/output-validation.ts";
import { withClosedObjects } from "../../../../src/text/grammar/compile/schema/closed.ts";
import { compileSchema, languageOf, languageOfSchema } from "../../../grammar/compile/support.ts";
import { randomCases } from "../../../support/random-cases.ts";

const CLOSED = { closesObjects: true };
const properties = { a: { type: "integer" }, b: { type: "integer" } };

/** Whether a grammar, and then the validation, accept the arguments of a tool. */
function accepts(parameters: object, text: string): [grammar: boolean, validation: boolean] {
  const tool = { type: "function" as const, function: { name: "f", parameters: parameters as Record<string, any> } };
  const request = { form: { kind: "arguments" as const, tool }, whitespacePattern: null, closesObjects: false };
  const { grammar, check } = compileOutput(request, { reasoningEnd: null });
  const isValid = check?.kind !== "json" || violationOf(check.schema, text) === null;
  return [languageOf(grammar).accepts(text), isValid];
}

describe("a closed object", () => {
  it.each([
    ["beside alternatives", { type: "object", properties, additionalProperties: true, anyOf: [{ required: ["a"] }, { required: ["b"] }] }],
    ["in one of the alternatives", { properties, anyOf: [{ required: ["a"], additionalProperties: true }, { required: ["a", "b"] }] }],
    ["in an allOf", { allOf: [{ properties, required: ["a"] }, { additionalProperties: true }] }],
  ])("stays open with an explicit `additionalProperties: true` %s", (_name, schema) => {
    const language = languageOfSchema({ type: "object", ...schema }, CLOSED);
    expect(['{"a":1,"x":"y"}', '{"x":1}'].map((text) => language.accepts(text))).toEqual([true, false]);
  });

  it("has only members that one of its alternatives declares", () => {
    const language = languageOfSchema({ type: "object", anyOf: [{ properties }, { properties: { c: {} }, required: ["c"] }] }, CLOSED);
    expect(['{"a":1}', '{"c":1}', '{"a":1,"c":1}', '{"x":1}'].map((text) => language.accepts(text))).toEqual([true, true, false, false]);
  });

  it("allows only names that match its patterns, for any number of patterns", () => {
    const names = ["p", "q", "r", "s", "t"];
    const patternProperties = Object.fromEntries(names.map((name) => [`^${name}\\d$`, { type: "integer" }]));
    const schema = { type: "object", properties, patternProperties };
    expect(accepts(schema, '{"a":1,"q1":2}')).toEqual([true, true]);
    expect(accepts(schema, '{"a":1,"x":2}')).toEqual([false, false]);
    expect(accepts(schema, '{"q1":"text"}')).toEqual([true, false]);
    expect(accepts({ ...schema, additionalProperties: true }, '{"a":1,"x":2}')).toEqual([true, true]);
  });

  it("rejects names in the validation if the grammar cannot exclude them", () => {
    const schema = { type: "object", properties, patternProperties: { "\\bx": { type: "integer" } } };
    expect(accepts(schema, '{"x":1}')).toEqual([true, true]);
    expect(accepts(schema, '{"ax":1}')).toEqual([true, false]);
    expect(accepts(schema, '{"y":1}')).toEqual([false, false]);
    expect(accepts({ type: "object", properties: { o: { anyOf: [schema, { type: "null" }] } } }, '{"o":{"ax":1}}')).toEqual([true, false]);
    const referred = { type: "object", properties: { o: { $ref: "#/$defs/o" } }, $defs: { o: schema } };
    expect(accepts(referred, '{"o":{"ax":1}}')).toEqual([true, false]);
  });

  it("allows no members if propertyNames is its only keyword", () => {
    const { language, loose } = compileSchema({ type: "object", propertyNames: { pattern: "\\bx" } }, CLOSED);
    expect([language.accepts("{}"), language.accepts('{"x":1}')]).toEqual([true, false]);
    expect(loose).toEqual(["pattern"]);
  });
});

it("validates patterns with alternatives, for which ajv's unevaluatedProperties throws", () => {
  const open = { patternProperties: { "^p": { type: "integer" } }, anyOf: [{ additionalProperties: false }, {}] };
  for (const each of [open, { ...open, unevaluatedProperties: false }]) {
    expect(violationOf(JSON.stringify(each), '{"p":1}')).toBe(null);
    expect(violationOf(JSON.stringify(each), '{"p":"x"}')).toMatch(/must be integer/);
  }
});

const name = fc.constantFrom("a", "b", "c", "d");
const { schema } = fc.letrec<{ schema: object; object: object; combined: object }>((tie) => ({
  schema: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constantFrom<object>({ type: "integer" }, { type: "boolean" }, { type: "array", items: { type: "object", properties } }),
    tie("object"),
    tie("combined"),
  ),
  object: fc
    .record(
      {
        properties: fc.dictionary(name, tie("schema"), { maxKeys: 3 }),
        patternProperties: fc.constantFrom({ "^p": { type: "integer" } }, { "^[ab]": true }),
        additionalProperties: fc.oneof(fc.boolean(), tie("schema")),
      },
      { requiredKeys: [] },
    )
    .map((each) => ({ type: "object", ...each })),
  combined: fc.oneof(
    fc.array(tie("schema"), { minLength: 1, maxLength: 3 }).map((anyOf) => ({ anyOf })),
    fc.tuple(tie("object"), tie("object")).map((allOf) => ({ allOf })),
    fc.tuple(tie("object"), tie("object")).map(([base, more]) => ({ ...base, anyOf: [more, {}] })),
    fc.constant({ $ref: "#/$defs/shared" }),
    tie("object").map((more) => ({ allOf: [{ $ref: "#/$defs/shared" }, more] })),
  ),
}));
const document = fc
  .tuple(schema, schema)
  .map(([given, shared]) => ({ allOf: [given], $defs: { shared: { anyOf: [shared, { type: "null" }] } } }));
const draws = fc.infiniteStream(fc.nat(0xffff)).map((stream) => (below: number) => (stream.next().value ?? 0) % below);

test.prop([document, draws], { numRuns: randomCases(60) })(
  "the validation accepts every text of a grammar with closed objects",
  (given, draw) => {
    let compiled: ReturnType<typeof compileSchema>;
    try {
      compiled = compileSchema(given, CLOSED);
    } catch (error) {
      expect(String(error)).toMatch(/No text matches|left-recursive|call stack/);
      return;
    }
    if (compiled.loose.length > 0) return;
    const closed = JSON.stringify(withClosedObjects(given));
    for (let turn = 0; turn < 3; turn++) {
      const text = compiled.language.walk(draw);
      if (text !== null) expect([text, violationOf(closed, text)]).toEqual([text, null]);
    }
  },
);
