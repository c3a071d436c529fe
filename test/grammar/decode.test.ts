/** Grammars over tokens: masks compared with a separate walk for every token, and constrained sampling. */
import { fc, test } from "@fast-check/vitest";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { choice, optional, repeat, sequence, set, text, type Expression, type Grammar } from "../../src/text/grammar/expression.ts";
import { compileGrammar } from "../../src/text/grammar/decode/automaton.ts";
import type { Configuration } from "../../src/text/grammar/decode/configuration.ts";
import { Configurations } from "../../src/text/grammar/decode/configurations.ts";
import { GrammarConstraint } from "../../src/text/grammar/decode/constraint.ts";
import { Grammars, grammarText, textVocabulary } from "../../src/engine/onnx/sample/grammar-cache.ts";
import { maskOf, type TokenMask } from "../../src/text/grammar/decode/mask.ts";
import { utf8Ranges } from "../../src/text/grammar/decode/utf8-ranges.ts";
import { Vocabulary } from "../../src/text/grammar/decode/vocabulary.ts";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";

const TINY = fileURLToPath(new URL("../../models/whetstone-tiny", import.meta.url));
const DIGIT = set([0x30, 0x39]);
const STRING = sequence(text('"'), repeat(choice(set([0x20, 0x21], [0x23, 0x5b], [0x5d, 0x10ffff]), text("\\n"))), text('"'));

/** All bytes, pairs, and typical pieces of vocabularies; token 0 is the end, token 1 a padding row. */
const vocabulary = new Vocabulary([
  null,
  new Uint8Array(0),
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  ...[
    '"]',
    "12}",
    "]}",
    "12]}",
    "ab",
    "abc",
    "aa",
    "aaaa",
    "bb",
    "12",
    "123",
    '":',
    '","',
    '"}',
    "é",
    "😀a",
    " the",
    "the",
    "\\n",
    "hello world",
  ].map((piece) => Buffer.from(piece)),
  Buffer.from("😀").subarray(0, 2),
  Buffer.from("😀").subarray(2),
]);

const after = (configurations: Configurations, bytes: Uint8Array, from: Configuration | null = configurations.start()) => {
  let at = from;
  for (const byte of bytes) at = at && configurations.step(at, byte);
  return at;
};

/** Returns the tokens that can follow, each walked separately from the exact configuration. */
function followersOf(configurations: Configurations, at: Configuration): number[] {
  return Array.from({ length: vocabulary.size }, (_, id) => id).filter((id) => {
    const bytes = vocabulary.bytesOf(id);
    return bytes !== null && after(configurations, bytes, at) !== null;
  });
}
const idsIn = ({ words }: TokenMask) =>
  Array.from({ length: vocabulary.size }, (_, id) => id).filter((id) => (words[id >>> 5]! >>> (id & 31)) & 1);

/** A rule that calls itself and other rules, with tokens that may end several calls and the text. */
const CALLS: Grammar = {
  rules: [
    sequence(text("{"), optional({ kind: "rule", index: 1 }), text("}")),
    sequence(text('"'), choice(text("abc"), text("hello"), repeat(set([0x61, 0x7a]), 0)), text('":'), { kind: "rule", index: 2 }),
    choice(STRING, repeat(DIGIT, 1), sequence(text("["), { kind: "rule", index: 2 }, text("]"))),
  ],
};

const GRAMMARS: Readonly<Record<string, Grammar>> = {
  string: { rules: [STRING] },
  object: {
    rules: [sequence(text('{"a":'), choice(STRING, repeat(DIGIT, 1, 3)), optional(sequence(text(',"b":'), STRING)), text("}"))],
  },
  "a few": { rules: [repeat(choice(text("a"), text("bb")), 2, 5)] },
  many: { rules: [sequence(text("x"), repeat(choice(set([0x61, 0x62]), set([0xe9, 0xe9], [0x1f600, 0x1f600])), 70, 200), text("1"))] },
  "at least many": { rules: [repeat(set([0x61, 0x7a]), 90)] },
  "many of many": { rules: [repeat(sequence(repeat(set([0x61, 0x61]), 65, 80), text("b")), 66, 70)] },
  calls: CALLS,
  // After n letters a, a text has n stacks.
  ambiguous: {
    rules: [choice(sequence(text("a"), { kind: "rule", index: 0 }, text("b")), repeat(set([0x61, 0x7a]), 0))],
  },
  nested: {
    rules: [choice(text(""), sequence(text("("), { kind: "rule", index: 0 }, text(")")), sequence(text("a"), { kind: "rule", index: 0 }))],
  },
};

describe("the token mask", () => {
  const steps = fc.array(fc.nat(0xffff), { minLength: 0, maxLength: 260 });
  test.prop([fc.constantFrom(...Object.keys(GRAMMARS)), steps], { numRuns: 250 })(
    "contains exactly the tokens that can follow",
    (name, draws) => {
      const configurations = new Configurations(compileGrammar(GRAMMARS[name]!), vocabulary.maxTokenBytes);
      let at = configurations.start();
      for (const draw of draws) {
        const followers = followersOf(configurations, at);
        if (followers.length === 0) break;
        // Mostly single bytes, so that texts become long.
        const from = draw % 4 > 0 ? followers.slice(0, 3) : followers;
        at = after(configurations, vocabulary.bytesOf(from[draw % from.length]!)!, at)!;
      }
      expect(idsIn(maskOf(at, configurations, vocabulary))).toEqual(followersOf(configurations, at));
    },
  );

  it("contains exactly the tokens that can follow more stacks than are walked apart", () => {
    const configurations = new Configurations(compileGrammar(GRAMMARS["ambiguous"]!), vocabulary.maxTokenBytes);
    for (const count of [1, 60, 70, 200]) {
      const at = after(configurations, Buffer.from("a".repeat(count)))!;
      expect(idsIn(maskOf(at, configurations, vocabulary))).toEqual(followersOf(configurations, at));
    }
  });

  it("is shared by positions that no token can distinguish", () => {
    const configurations = new Configurations(compileGrammar(GRAMMARS["many"]!), vocabulary.maxTokenBytes);
    const mask = (count: number) => maskOf(after(configurations, Buffer.from(`x${"a".repeat(count)}`))!, configurations, vocabulary);
    expect(mask(100)).toBe(mask(120));
    expect(mask(20)).toBe(mask(40));
    expect(idsIn(mask(100))).not.toEqual(idsIn(mask(20)));
    expect(idsIn(mask(200))).toEqual(
      [2 + 0x31, vocabulary.size - 8, vocabulary.size - 9].filter((id) => id === 2 + 0x31).concat(idsIn(mask(200)).slice(1)),
    );
  });
});

describe("a compiled choice of strings", () => {
  const texts = fc.array(fc.string({ unit: fc.constantFrom("a", "b", "é", "è"), maxLength: 5 }), { minLength: 1, maxLength: 12 });
  const accepts = (configurations: Configurations, given: string) => after(configurations, Buffer.from(given))?.canEnd === true;
  test.prop([texts, texts], { numRuns: 300 })("accepts exactly those strings, with common prefixes and duplicates", (options, others) => {
    const grammar: Grammar = { rules: [sequence(text("<"), choice(text("b"), ...options.map(text)), text(">"))] };
    const configurations = new Configurations(compileGrammar(grammar), 8);
    for (const each of [...options, ...others])
      expect(accepts(configurations, `<${each}>`), each).toBe(each === "b" || options.includes(each));
  });

  it("supports common prefixes of thousands of bytes, and thousands of duplicates", () => {
    const long = "a".repeat(20_000);
    const alike = new Configurations(compileGrammar({ rules: [choice(text(`${long}b`), text(`${long}c`))] }), 8);
    expect([`${long}b`, `${long}c`, long, `${long}d`].map((each) => accepts(alike, each))).toEqual([true, true, false, false]);
    const same = { rules: [choice(...Array.from({ length: 20_000 }, () => text("aa")), text("ab"))] };
    expect(compileGrammar(same).states.length).toBeLessThan(10);
  });
});

describe("UTF-8 byte ranges of code points", () => {
  const ranges = fc.array(
    fc
      .tuple(fc.integer({ min: 0, max: 0x10ffff }), fc.constantFrom(0, 1, 63, 64, 4000, 70_000))
      .map(([first, more]) => [first, Math.min(first + more, 0x10ffff)] as const),
    { minLength: 1, maxLength: 3 },
  );
  const edges = [0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff];
  test.prop([ranges], { numRuns: 300 })("cover exactly the given ranges", (given) => {
    const pieces = utf8Ranges(given);
    const points = [...edges, ...given.flatMap(([first, last]) => [first - 1, first, last, last + 1])];
    for (const point of points.filter((each) => each >= 0 && each <= 0x10ffff && !(each >= 0xd800 && each <= 0xdfff))) {
      const bytes = Buffer.from(String.fromCodePoint(point));
      const found = pieces.filter(
        (piece) => piece.length === bytes.length && piece.every(([low, high], at) => bytes[at]! >= low && bytes[at]! <= high),
      );
      expect(found.length, String(point)).toBe(given.some(([first, last]) => point >= first && point <= last) ? 1 : 0);
    }
    const size = pieces.reduce((sum, piece) => sum + piece.reduce((product, [low, high]) => product * (high - low + 1), 1), 0);
    const wanted = new Set<number>();
    for (const [first, last] of given)
      for (let point = first; point <= last; point++) if (point < 0xd800 || point > 0xdfff) wanted.add(point);
    expect(size).toBe(wanted.size);
  });
});

describe("a constrained sample", () => {
  const constrained = (root: Expression, ends: readonly number[] = [0]) =>
    new GrammarConstraint(new Configurations(compileGrammar({ rules: [root] }), vocabulary.maxTokenBytes), vocabulary, ends);
  const logits = Float32Array.from({ length: vocabulary.size }, (_, id) => (id % 7) - 3);
  const allowed = (constraint: GrammarConstraint) =>
    [...constraint.masked(logits).entries()].flatMap(([id, logit]) => (logit > -Infinity ? [id] : []));
  const byte = (character: string) => 2 + character.charCodeAt(0);

  it("allows end tokens only after a complete text, and afterwards only end tokens", () => {
    const constraint = constrained(repeat(text("a"), 1, 2), [0, 1]);
    expect(allowed(constraint)).toEqual([byte("a"), vocabulary.size - 16]);
    constraint.record(byte("a"));
    expect(allowed(constraint)).toEqual([0, 1, byte("a")]);
    constraint.record(byte("a"));
    expect(allowed(constraint)).toEqual([0, 1]);
    constraint.record(1);
    expect(allowed(constraint)).toEqual([0, 1]);
    constraint.record(0);
    expect(() => constraint.record(byte("a"))).toThrow("does not allow");
  });

  it("has log-probabilities normalized over the allowed tokens", () => {
    const logprobs = constrained(choice(text("a"), text("b"))).logprobs(logits);
    const [a, b] = [logits[byte("a")]!, logits[byte("b")]!];
    expect(logprobs[byte("a")]).toBeCloseTo(a - Math.log(Math.exp(a) + Math.exp(b)), 6);
    expect([...logprobs].reduce((sum, each) => sum + Math.exp(each), 0)).toBeCloseTo(1, 6);
    expect(logprobs[byte("c")]).toBe(-Infinity);
    expect(logits[byte("c")]).toBeGreaterThan(-Infinity);
  });

  it("rejects a grammar with too many parallel parses", () => {
    const inner = repeat(set([0x61, 0x7a]), 1, 3000);
    const constraint = constrained(repeat(sequence(inner, repeat(set([0x61, 0x7a]), 1, 3000)), 2, 3000));
    expect(() => {
      for (let turn = 0; turn < 200; turn++) {
        constraint.masked(logits);
        constraint.record(byte("a"));
      }
    }).toThrow("too many ways");
  });
});

describe("the vocabulary of a tokenizer", () => {
  it("has the bytes of text tokens, and null for structural tokens", async () => {
    const tokenizer = await loadTokenizer(TINY);
    const tokens = textVocabulary(tokenizer);
    expect(tokens.size).toBe(tokenizer.vocabularySize);
    for (let id = 0; id < tokens.size; id++) {
      const isText = !tokenizer.specialTokenIds.has(id) && !tokenizer.eosTokenIds.includes(id) && tokenizer.tokenBytes(id).length > 0;
      expect(tokens.bytesOf(id), String(id)).toEqual(isText ? tokenizer.tokenBytes(id) : null);
    }
  });

  it("is cached, and so is a grammar", async () => {
    const grammars = new Grammars();
    const params = () => grammarText({ grammar: structuredClone(GRAMMARS["string"]!), endTokenIds: [500] });
    const [a, b] = [await grammars.constraint(TINY, params()), await grammars.constraint(TINY, params())];
    const logits512 = new Float32Array(512);
    expect(a.masked(logits512)).toEqual(b.masked(logits512));
  });
});
