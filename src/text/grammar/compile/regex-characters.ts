/** Code points that the classes and escapes of a regular expression match. */
import type { AST } from "@eslint-community/regexpp";
import { complement } from "../code-points.ts";
import type { CodePointRange } from "../expression.ts";
import { codePointAt, getOrInsert } from "../../../base/util/values.ts";

const DIGITS: readonly CodePointRange[] = [[0x30, 0x39]];
const WORDS: readonly CodePointRange[] = [
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
];
const LINE_ENDS: readonly CodePointRange[] = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
];
/** Maximum number of different Unicode properties in one expression; each takes a scan over all characters. */
const MAX_PROPERTIES = 16;

/** All characters in order, created on first use. */
let characters: string | null = null;
const properties = new Map<string, readonly CodePointRange[]>();

function everyCharacter(): string {
  const units: number[] = [];
  for (let unit = 0; unit < 0xd800; unit++) units.push(unit);
  for (let unit = 0xe000; unit <= 0xffff; unit++) units.push(unit);
  for (let high = 0xd800; high <= 0xdbff; high++) for (let low = 0xdc00; low <= 0xdfff; low++) units.push(high, low);
  return Buffer.from(Uint16Array.from(units).buffer).toString("utf16le");
}

/** Returns the code points of a property such as `\p{L}`, by its spelling; all results are cached, since there are few properties. */
function propertyRanges(source: string): readonly CodePointRange[] {
  return getOrInsert(properties, source, () => scannedRanges(source));
}

function scannedRanges(source: string): readonly CodePointRange[] {
  const all = (characters ??= everyCharacter());
  // Each sequence of matches is a range, except across the gap of the surrogates.
  return [...all.matchAll(new RegExp(`${source}+`, "gu"))].flatMap(({ 0: run, index }): CodePointRange[] => {
    const [first, last] = [codePointAt(run, 0), index + run.length];
    const end = all.charCodeAt(last - 1);
    const lastPoint = end >= 0xdc00 && end <= 0xdfff ? codePointAt(all, last - 2) : end;
    return first < 0xd800 && lastPoint > 0xdfff
      ? [
          [first, 0xd7ff],
          [0xe000, lastPoint],
        ]
      : [[first, lastPoint]];
  });
}

/** Part of an expression that matches one character. */
export type CharacterNode = AST.Character | AST.CharacterSet | AST.CharacterClass | AST.CharacterClassElement;

/** Resolves the character classes of one expression. */
export class CharacterReader {
  readonly #refuse: (node: AST.Node, what: string) => Error;
  readonly #properties = new Set<string>();

  /** @param refuse - Creates the error for an unsupported node. */
  constructor(refuse: (node: AST.Node, what: string) => Error) {
    this.#refuse = refuse;
  }

  /** Returns the code points that a node matches. */
  ranges(node: CharacterNode): readonly CodePointRange[] {
    switch (node.type) {
      case "Character":
        return [[node.value, node.value]];
      case "CharacterClassRange":
        return [[node.min.value, node.max.value]];
      case "CharacterClass": {
        const ranges = (node.elements as readonly AST.CharacterClassElement[]).flatMap((element) => this.ranges(element));
        return node.negate ? complement(ranges) : ranges;
      }
      case "CharacterSet":
        return this.#namedSet(node);
      default:
        throw this.#refuse(node, "an operation on classes");
    }
  }

  #namedSet(node: AST.CharacterSet): readonly CodePointRange[] {
    if (node.kind === "any") return complement(LINE_ENDS);
    if (node.kind === "property") {
      const source = `\\p${node.raw.slice(2)}`;
      if (this.#properties.add(source).size > MAX_PROPERTIES)
        throw this.#refuse(node, `more than ${MAX_PROPERTIES} properties of characters`);
      return node.negate ? complement(propertyRanges(source)) : propertyRanges(source);
    }
    const ranges = node.kind === "digit" ? DIGITS : node.kind === "word" ? WORDS : propertyRanges("\\s");
    return node.negate ? complement(ranges) : ranges;
  }
}
