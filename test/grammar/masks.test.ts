/** Masks of JSON schemas, compared with a separate walk for every token. */
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { GrammarBuilder } from "../../src/text/grammar/expression.ts";
import { SchemaCompiler } from "../../src/text/grammar/compile/schema/compiler.ts";
import { compileGrammar } from "../../src/text/grammar/decode/automaton.ts";
import type { Configuration } from "../../src/text/grammar/decode/configuration.ts";
import { Configurations } from "../../src/text/grammar/decode/configurations.ts";
import { maskOf } from "../../src/text/grammar/decode/mask.ts";
import { Vocabulary } from "../../src/text/grammar/decode/vocabulary.ts";

const PIECES = [
  ...[
    '"',
    '":',
    '": "',
    '", "',
    '"}',
    '"]',
    '"},',
    "\\",
    "\\n",
    '\\"',
    "\\u00",
    "\\u00e9",
    "\\ud83d",
    "é",
    "éa",
    "日本",
    "😀",
    "}}",
    ", ",
    ": ",
  ],
  ...[
    "na",
    "name",
    "names",
    'name"',
    'name":',
    'names"',
    "nam\\u0065",
    "nameé",
    "id",
    "id2",
    "ids",
    "x-",
    "x-a",
    "x-é",
    "aaaa",
    "aaaaaaaa",
  ],
  ...["12", "1.5", "-1", "true", "null", '{"', '["', "the ", " the", "été", 'été"', "ét", "red", 'red"', "re", "a\n", "a".repeat(40)],
];

/** All bytes, pairs of letters, and pieces that end, continue or contain the names of the schemas. */
const TOKENS: readonly Uint8Array[] = [
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  ...Array.from({ length: 26 * 26 }, (_, at) => Uint8Array.of(0x61 + Math.floor(at / 26), 0x61 + (at % 26))),
  ...PIECES.map((piece) => Buffer.from(piece)),
  Buffer.from("日").subarray(1),
  Buffer.concat([Buffer.from("日").subarray(1), Buffer.from('"')]),
];
const vocabulary = new Vocabulary(TOKENS);

const SCHEMAS: Readonly<Record<string, object>> = {
  "keys other than names": {
    type: "object",
    properties: { name: { type: "string" }, names: { type: "integer" }, été: { type: "null" }, 'a"b': {} },
    additionalProperties: { type: "string" },
  },
  "keys in nested objects": {
    type: "object",
    properties: { id: { type: "object", properties: { id: { type: "number" }, id2: { type: "string" } } }, names: { type: "array" } },
    required: ["id"],
  },
  "keys by pattern": {
    type: "object",
    properties: { id: {} },
    patternProperties: { "^x-": { type: "string" } },
    additionalProperties: false,
  },
  "other strings": {
    type: "array",
    items: {
      anyOf: [{ type: "string", not: { enum: ["red", "name"] } }, { enum: ["red", "name", 12] }, { type: "string", pattern: "^[a-z]+$" }],
    },
  },
  lengths: {
    type: "object",
    properties: {
      name: { type: "string", minLength: 1 },
      id: { type: "string", maxLength: 30 },
      ids: { type: "string", minLength: 300, maxLength: 400 },
    },
    additionalProperties: { type: "array", items: { type: "string", maxLength: 200 }, maxItems: 100 },
  },
  "any value": {},
};

function configurationsOf(schema: object, tokens = vocabulary): Configurations {
  const builder = new GrammarBuilder();
  const { expression } = new SchemaCompiler(builder).document(schema as Readonly<Record<string, unknown>>);
  return new Configurations(compileGrammar(builder.build(expression)), tokens.maxTokenBytes);
}

function after(configurations: Configurations, from: Configuration | null, bytes: Uint8Array): Configuration | null {
  let at = from;
  for (const byte of bytes) at = at && configurations.step(at, byte);
  return at;
}

/** Returns the tokens that can follow, each walked separately. */
const followersOf = (configurations: Configurations, at: Configuration): number[] =>
  [...TOKENS.entries()].flatMap(([id, bytes]) => (after(configurations, at, bytes) === null ? [] : [id]));

function masked(configurations: Configurations, at: Configuration, tokens = vocabulary): number[] {
  const { words } = maskOf(at, configurations, tokens);
  return Array.from({ length: tokens.size }, (_, id) => id).filter((id) => (words[id >>> 5]! >>> (id & 31)) & 1);
}

describe("the mask of a JSON schema", () => {
  const draws = fc.array(fc.nat(0xffff), { minLength: 1, maxLength: 40 });
  test.prop([fc.constantFrom(...Object.keys(SCHEMAS)), draws], { numRuns: 60 })(
    "contains exactly the tokens that can follow",
    (name, given) => {
      const configurations = configurationsOf(SCHEMAS[name]!);
      let at = configurations.start();
      for (const draw of given) {
        const followers = followersOf(configurations, at);
        expect(masked(configurations, at)).toEqual(followers);
        if (followers.length === 0) break;
        // Mostly pieces, which lead along the names.
        const pieces = followers.filter((id) => id >= 256 + 26 * 26);
        const from = draw % 8 > 0 && pieces.length > 0 ? pieces : followers;
        at = after(configurations, at, TOKENS[from[draw % from.length]!]!)!;
      }
    },
  );

  it("is the same after another grammar has cached the masks of its strings", () => {
    const cold = new Vocabulary(TOKENS);
    for (const schema of Object.values(SCHEMAS)) {
      const configurations = configurationsOf(schema);
      for (const text of ['{"', '{"n', '{"name": "', '["', '["re', "{"]) {
        const at = after(configurations, configurations.start(), Buffer.from(text));
        if (at !== null) expect(masked(configurations, at, cold), text).toEqual(followersOf(configurations, at));
      }
    }
  });

  it("of a key other than names takes few steps once the mask of any key is known", () => {
    const letters = Array.from({ length: 26 }, (_, at) => String.fromCharCode(0x61 + at));
    const words = letters.flatMap((a) => letters.flatMap((b) => letters.map((c) => Buffer.from(`${a}${b}${c}é`))));
    const tokens = new Vocabulary([...TOKENS, ...words]);
    const configurations = configurationsOf(SCHEMAS["keys other than names"]!, tokens);
    const at = (text: string) => after(configurations, configurations.start(), Buffer.from(text))!;
    let steps = 0;
    const step = configurations.step.bind(configurations);
    configurations.step = (from, byte) => {
      steps++;
      return step(from, byte);
    };
    maskOf(at('{"x'), configurations, tokens);
    expect(steps).toBeGreaterThan(words.length);
    steps = 0;
    maskOf(at('{"na'), configurations, tokens);
    expect(steps).toBeLessThan(words.length / 10);
  });

  it("may contain tokens of many thousands of bytes", () => {
    const long = Buffer.from("ab".repeat(20_000));
    const tokens = new Vocabulary([...TOKENS, long, Buffer.concat([long, Buffer.from('"')]), Buffer.concat([long, Buffer.from("\n")])]);
    const configurations = configurationsOf({ type: "string", pattern: "^(ab)*$" }, tokens);
    const ids = masked(configurations, after(configurations, configurations.start(), Buffer.from('"'))!, tokens);
    expect(ids.filter((id) => id >= TOKENS.length)).toEqual([TOKENS.length, TOKENS.length + 1]);
  });
});
