/** Regular expressions, EBNF, Lark and structural tags as grammars. */
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { GrammarBuilder, type Expression } from "../../../src/text/grammar/expression.ts";
import { ebnfExpression } from "../../../src/text/grammar/compile/ebnf.ts";
import { textWithout } from "../../../src/text/grammar/compile/free-text.ts";
import { larkExpression } from "../../../src/text/grammar/compile/lark.ts";
import { regexExpression, regexLanguage } from "../../../src/text/grammar/compile/regex.ts";
import { Languages } from "../../../src/text/grammar/compile/regular/language.ts";
import { SchemaCompiler } from "../../../src/text/grammar/compile/schema/compiler.ts";
import { structuralTagExpression } from "../../../src/text/grammar/compile/structural-tag.ts";
import { languageOfExpression } from "./support.ts";
import { randomCases } from "../../support/random-cases.ts";

const regex = (source: string) => languageOfExpression((builder) => regexExpression(source, builder));
/** Returns the language of texts in which an expression finds a match. */
const search = (source: string) =>
  languageOfExpression((builder) => {
    const languages = new Languages(builder);
    const { term, loose } = regexLanguage(source, languages.terms, { of: "part" });
    expect(loose).toBe(null);
    return languages.expression(term, (ranges) => ({ kind: "set", ranges }))!;
  });
const ebnf = (source: string) => languageOfExpression((builder) => ebnfExpression(source, builder));
const lark = (source: string) => languageOfExpression((builder) => larkExpression(source, builder));
const tag = (value: unknown) => languageOfExpression((builder) => structuralTagExpression(value, new SchemaCompiler(builder)));

/** Returns the texts that a language accepts. */
const accepted = (language: { accepts(text: string): boolean }, texts: readonly string[]) => texts.filter((text) => language.accepts(text));

describe("a regular expression", () => {
  const SOURCES = [
    "a*b+c?",
    "(ab|ba){1,3}",
    "[^a-c]x",
    "[\\w-]+@\\d{2}",
    "\\s\\S",
    ".b",
    "(?:a|(?<n>b))*?",
    "\\u{1F600}|\\x41|\\u0042",
    "\\p{Lu}\\P{Lu}",
    "",
    "a{0}b",
    "a{70,90}",
    "(?:ab?){65,}",
    "[]|a",
    "[^]",
  ];
  const text = fc.oneof(
    fc.string({ unit: fc.constantFrom("a", "b", "c", "x", "A", "B", "0", "1", "-", "@", " ", "\n", "é", "😀", "\u2028"), maxLength: 6 }),
    fc.constantFrom("a".repeat(70), "a".repeat(69), "a".repeat(91), "ab".repeat(65), "a".repeat(64)),
  );
  test.prop([fc.constantFrom(...SOURCES), text], { numRuns: randomCases(400) })(
    "accepts exactly the texts that JavaScript matches",
    (source, given) => {
      expect(regex(source).accepts(given)).toBe(new RegExp(`^(?:${source})$`, "u").test(given));
    },
  );

  const PARTS = [
    ...["^a", "b$", "^ab$", "a|^b", "a$|b", "x", "", "(^|b)a", "a(b|$)", "(?:^)a", "^$", "(a|$){1,3}"],
    ...[
      "^(?=.*a)(?=.*b).{3,}$",
      "^(?!.*aa)[ab-]+$",
      "(?!a)[ab]$",
      "^[ab](?=b)",
      "a(?!b)",
      "^(?:(?=a)..|b){2}$",
      "(?=(?=a)[ab])",
      "^(?!a(?!b))",
    ],
  ];
  test.prop([fc.constantFrom(...PARTS), text], { numRuns: randomCases(200) })(
    "is anchored only where the expression has an anchor",
    (source, given) => {
      expect(search(source).accepts(given)).toBe(new RegExp(source, "u").test(given));
    },
  );

  it.each(["\\p{L}", "\\P{Lu}", "\\p{Script=Latin}", "\\p{Any}", "\\p{Assigned}", "\\s", "\\p{Co}"])(
    "contains the same characters as JavaScript for %s",
    (source) => {
      const { ranges } = regexExpression(source, new GrammarBuilder()) as Extract<Expression, { kind: "set" }>;
      const pattern = new RegExp(source, "u");
      const wrong = Array.from({ length: 0x110000 / 64 }, (_, at) => at * 64 + (at % 64)).filter(
        (point) =>
          !(point >= 0xd800 && point <= 0xdfff) &&
          ranges.some(([first, last]) => first <= point && point <= last) !== pattern.test(String.fromCodePoint(point)),
      );
      expect(wrong).toEqual([]);
    },
  );
  it("may use at most 16 Unicode properties", () => {
    const some = ["L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc"].map(
      (each) => `\\p{${each}}|\\P{${each}}`,
    );
    expect(regex(some.join("|")).accepts("a")).toBe(true);
    expect(() => regex([...some, "\\p{Pd}"].join("|"))).toThrow(/more than 16 properties/);
  });

  it("accepts unnecessary escapes", () => {
    expect(accepted(regex("[a\\-z]\\_\\'"), ["-_'", "b_'", "a_'"])).toEqual(["-_'", "a_'"]);
    expect(accepted(regex("^a$"), ["a", "aa"])).toEqual(["a"]);
  });

  it.each([
    ["(?=a)b", /No text matches/],
    ["(?:(?!--)[a-z-])*", /assertion inside a loop.*\(\?:/],
    ["(?<!a)b", /lookbehind/],
    ["\\bword", /word boundary/],
    ["(a)\\1", /back reference/],
    ["(?:a?^b)c", /anchor that may stand inside/],
    ["a(^b)", /No text matches/],
    ["(?=.*a.{14}$).*", /automaton/],
    ["[.*", /does not parse/],
    ["(?i)a", /does not parse/],
    ["a{2,1}", /does not parse/],
    ["\\ud800", /No text matches/],
    ["a\\ud800|a\\ud801", /No text matches/],
  ])("rejects %s", (source, message) => {
    expect(() => regex(source)).toThrow(message);
  });

  it("has at most 128 levels of groups, which brackets in classes and escaped brackets are not", () => {
    const nested = (depth: number) => `${"(".repeat(depth)}a${"b)".repeat(depth)}`;
    expect(regex(nested(128)).accepts(`a${"b".repeat(128)}`)).toBe(true);
    for (const depth of [129, 3000, 16_000]) expect(() => regex(nested(depth))).toThrow(/expected at most 128/);
    expect(regex(`${"\\(".repeat(100)}${"[(]".repeat(100)}`).accepts("(".repeat(200))).toBe(true);
  });
});

describe("an EBNF grammar", () => {
  it("that is nested too deeply, or has counts that are too large, is rejected", () => {
    for (const depth of [1500, 100_000]) expect(() => ebnf(`root ::= "a"${"*".repeat(depth)}`)).toThrow(/nested at most/);
    for (const depth of [129, 30_000])
      expect(() => ebnf(`root ::= ${"(".repeat(depth)}"a"${")".repeat(depth)}`)).toThrow(/expected at most 128/);
    for (const digits of [12, 400]) expect(() => ebnf(`root ::= "a"{${"9".repeat(digits)},}`)).toThrow(/counts of at most/);
    expect(ebnf(`root ::= "a"${"*".repeat(800)}`).accepts("aa")).toBe(true);
  });

  it.each([
    ["alternatives and groups", 'root ::= ("a" | "b") "c"?', ["a", "bc"], ["", "ab", "c"]],
    ["rules over lines, with remarks", 'root ::= x # first\n  | y\nx ::= "1"\ny ::= "2"+', ["1", "2", "222"], ["12"]],
    ["classes", "root ::= [a-cé\\u4e00-\\u4e10\\]^-]", ["a", "é", "一", "]", "^", "-"], ["d", "ab", "\u4e11"]],
    ["classes of what is not", "root ::= [^a-z\\n]", ["é", "A", "😀"], ["a", "\n"]],
    ["counts", 'root ::= "a"{2} "b"{1,} "c"{0,1}', ["aab", "aabbc"], ["ab", "aabcc"]],
    ["escapes", 'root ::= "\\"\\\\\\x41\\u00e9\\n"', ['"\\Aé\n'], ["A"]],
    ["recursion", 'root ::= "(" root ")" | ""', ["", "()", "((()))"], ["(", "())"]],
    ["repetitions of rules", 'root ::= item ("," item)*\nitem ::= [0-9]+', ["1", "12,3,4"], [",", "1,"]],
  ])("%s", (_name, source, fits, fitsNot) => {
    expect(accepted(ebnf(source), [...fits, ...fitsNot])).toEqual(fits);
  });

  it.each([
    ["", /no rule `root`/],
    ["root ::= ", /item/],
    ["root ::= y", /`y` is not defined/],
    ['root ::= "a', /expected "/],
    ['rot ::= "a"', /no rule `root`/],
    ["root ::= [z-a]", /range/],
    ["root ::= [a", /\]/],
    ['root ::= "a"{3,1}', /times/],
    ['root ::= "a" )', /expected a rule/],
    ['root ::= "a"\nroot ::= "b"', /twice/],
    ["root ::= root", /No text matches/],
    ['root ::= root "a" | "b"', /left-recursive/],
    ["root ::= []", /No text matches/],
    ['root ::= "a" (="b")', /lookahead/],
    ['root ::= TagDispatch(("a", b))\nb ::= "c"', /macro/],
    ['root ::= "\\ud800"', /character/],
    ['root ::= ""{0,999999999}', /states/],
    ['root ::= "\ud800"', /half of a surrogate pair/],
  ])("rejects %j", (source, message) => {
    expect(() => ebnf(source)).toThrow(message);
  });

  test.prop([fc.string({ unit: fc.constantFrom(...'ab:=()[]{}|*+?"\\#-1,\n rot'.split("")), maxLength: 30 })], {
    numRuns: randomCases(200),
  })("parses any text or rejects it with an error code", (source) => {
    try {
      ebnf(`root ::= ${source}`);
    } catch (error) {
      expect((error as { code?: string }).code).toMatch(/^E_(ARGUMENT|UNSUPPORTED)$/);
    }
  });
});

describe("a Lark grammar", () => {
  it("supports the notation", () => {
    const language = lark(`
      // a sum of numbers
      start: expr
      ?expr: term (("+" | "-") term)* -> sum
      term: NUMBER | "(" expr ")" | [SIGN] WORD~2..3
      NUMBER.2: /[0-9]+(\\.[0-9]+)?/
      SIGN: "+" | "-"
      WORD: "a".."c"
    `);
    expect(accepted(language, ["1", "1.5+(2-abc)", "+ab", "a", "1+", "abca", "()"])).toEqual(["1", "1.5+(2-abc)", "+ab"]);
  });

  it.each([
    ["start: WORD\n%import common.WORD", /%import/],
    ['start: "a"\n%ignore " "', /%ignore/],
    ['start: "a"i', /regard to case/],
    ["start: /a/i", /flags/],
    ["start: x", /`x` is not defined/],
    ['begin: "a"', /no rule `start`/],
    ['start: ""~0..999999999 "a"', /states/],
    ['start: f{"a"}\nf{x}: x', /template/],
  ])("rejects %j", (source, message) => {
    expect(() => lark(source)).toThrow(message);
  });
});

describe("free text", () => {
  const strings = fc.array(fc.string({ unit: fc.constantFrom("a", "b", "<", "é"), minLength: 1, maxLength: 4 }), { maxLength: 3 });
  const given = fc.string({ unit: fc.constantFrom("a", "b", "<", "é", "x", "😀"), maxLength: 12 });
  test.prop([strings, given], { numRuns: randomCases(300) })("accepts any text without the excluded strings", (without, text) => {
    expect(languageOfExpression((builder) => textWithout(without, builder)).accepts(text)).toBe(
      !without.some((each) => text.includes(each)),
    );
  });
});

describe("free text without long strings", () => {
  it("needs one state for each of their characters", () => {
    const language = languageOfExpression((builder) => textWithout(["a".repeat(3000), `${"a".repeat(2000)}b`, "xy"], builder));
    const texts = ["a".repeat(2999), `${"a".repeat(1999)}b`, "x", "a".repeat(3000), `${"a".repeat(2500)}b`, "axy"];
    expect(accepted(language, texts)).toEqual(texts.slice(0, 3));
  });
  it.each([
    ["too long", ["ab".repeat(150_000)]],
    ["with too many beginnings", Array.from({ length: 3000 }, (_, at) => `${String.fromCodePoint(0x4e00 + at)}a`)],
  ])("rejects strings that are %s", (_name, strings) => {
    expect(() => languageOfExpression((builder) => textWithout(strings, builder))).toThrow(/states/);
  });
});

describe("a structural tag", () => {
  const schema = { type: "object", properties: { x: { type: "integer" } }, required: ["x"], additionalProperties: false };
  it("in the older form leaves text unconstrained until a trigger", () => {
    const language = tag({ structures: [{ begin: "<f=a>", schema, end: "</f>" }], triggers: ["<f="] });
    const texts = ["", "hello <f>", 'a<f=a>{"x":1}</f> b <f=a>{"x":2}</f>', "<f=", "<f=b>{}</f>", '<f=a>{"x":"1"}</f>', '<f=a>{"x":1}'];
    expect(accepted(language, texts)).toEqual(texts.slice(0, 3));
  });

  it.each([
    ["const_string", { type: "const_string", value: "a" }, ["a"], ["", "b"]],
    ["any_text", { type: "any_text" }, ["", "anything <é>"], []],
    ["json_schema", { type: "json_schema", json_schema: schema }, ['{"x": 1}'], ["{}"]],
    ["regex", { type: "regex", pattern: "[ab]+" }, ["ab"], ["", "c"]],
    ["grammar", { type: "grammar", grammar: 'root ::= "x" root | "y"' }, ["y", "xxy"], ["x"]],
    [
      "sequence",
      {
        type: "sequence",
        elements: [
          { type: "const_string", value: "a" },
          { type: "regex", pattern: "b*" },
        ],
      },
      ["a", "abb"],
      ["b"],
    ],
    [
      "or",
      {
        type: "or",
        elements: [
          { type: "const_string", value: "a" },
          { type: "const_string", value: "b" },
        ],
      },
      ["a", "b"],
      ["ab"],
    ],
    [
      "tag around text",
      { type: "tag", begin: "<t>", content: { type: "any_text" }, end: "</t>" },
      ["<t></t>", "<t>a <b></t>"],
      ["<t>", "<t></t></t>"],
    ],
    [
      "triggered_tags, at least one",
      {
        type: "triggered_tags",
        triggers: ["<"],
        tags: [{ type: "tag", begin: "<a>", content: { type: "const_string", value: "1" }, end: "</a>" }],
        at_least_one: true,
      },
      ["<a>1</a>", "<a>1</a> and <a>1</a>"],
      ["", "x<a>1</a>", "<a>2</a>", "<a>1</a> <"],
    ],
    [
      "triggered_tags, only one",
      {
        type: "triggered_tags",
        triggers: ["<"],
        tags: [{ type: "tag", begin: "<a>", content: { type: "const_string", value: "1" }, end: "</a>" }],
        stop_after_first: true,
      },
      ["", "text", "text<a>1</a>"],
      ["<a>1</a>x"],
    ],
    [
      "tags_with_separator",
      {
        type: "tags_with_separator",
        separator: ",",
        tags: [{ type: "tag", begin: "a", content: { type: "regex", pattern: "\\d" }, end: "" }],
        at_least_one: true,
      },
      ["a1", "a1,a2"],
      ["", "a1a2", "a1,"],
    ],
  ])("%s", (_name, format, fits, fitsNot) => {
    expect(accepted(tag({ type: "structural_tag", format }), [...fits, ...fitsNot])).toEqual(fits);
  });

  it.each([
    [{}, /`format`/],
    [{ structures: [{ begin: "a", schema: {}, end: "b" }], triggers: [] }, /triggers/],
    [{ structures: [{ begin: "a", schema: {}, end: "b" }], triggers: ["x"] }, /begin with a trigger/],
    [{ format: { type: "qwen_xml_parameter", json_schema: {} } }, /qwen_xml_parameter/],
    [{ format: { type: "other" } }, /type/],
    [{ format: { type: "json_schema", json_schema: { type: "array", uniqueItems: true } } }, /`uniqueItems`/],
    [{ format: { type: "regex" } }, /pattern/],
  ])("rejects %j", (value, message) => {
    expect(() => tag(value)).toThrow(message);
  });
});
