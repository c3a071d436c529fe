/** Code points that characters, classes (`[a-z]`) and escapes (`\d`, `\p{L}`) of a regular expression match. */
import type { AST } from "@eslint-community/regexpp";
import { complement } from "../code-points.ts";
import type { CodePointRange } from "../expression.ts";
import { codePointAt, getOrInsert } from "../../../base/util/values.ts";

const DIGITS: readonly CodePointRange[] = [[0x30, 0x39]];
/** `\w`. */
const WORD_CHARACTERS: readonly CodePointRange[] = [
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
];
/** Characters that `.` does not match. */
const LINE_ENDS: readonly CodePointRange[] = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
];
/** Maximum number of different Unicode properties in one expression; each one's first use takes a scan over all characters. */
const MAX_PROPERTIES = 16;

/** All characters in order, created at the first use. */
let characters: string | null = null;
/** Code points of properties by their spelling. */
const properties = new Map<string, readonly CodePointRange[]>();

/** Returns all characters except surrogates, in order. */
function everyCharacter(): string {
  const units: number[] = [];
  for (let unit = 0; unit < 0xd800; unit++) units.push(unit);
  for (let unit = 0xe000; unit <= 0xffff; unit++) units.push(unit);
  for (let high = 0xd800; high <= 0xdbff; high++) for (let low = 0xdc00; low <= 0xdfff; low++) units.push(high, low);
  return Buffer.from(Uint16Array.from(units).buffer).toString("utf16le");
}

/** Returns the code points of a property such as `\p{L}`, cached by its spelling; there are few properties. */
function propertyRanges(source: string): readonly CodePointRange[] {
  return getOrInsert(properties, source, () => scannedRanges(source));
}

/** Finds the code points of a property or class by matching all characters. */
function scannedRanges(source: string): readonly CodePointRange[] {
  characters ??= everyCharacter();
  return Array.from(characters.matchAll(new RegExp(`${source}+`, "gu")), ({ 0: run }) => rangesOfRun(run)).flat();
}

/** Returns the ranges of a run of consecutive characters: one, or two if it includes the characters around the surrogates. */
function rangesOfRun(run: string): CodePointRange[] {
  const first = codePointAt(run, 0);
  const lastUnit = run.charCodeAt(run.length - 1);
  const isLowSurrogate = lastUnit >= 0xdc00 && lastUnit <= 0xdfff;
  const last = isLowSurrogate ? codePointAt(run, run.length - 2) : lastUnit;
  if (first >= 0xd800 || last <= 0xdfff) return [[first, last]];
  return [
    [first, 0xd7ff],
    [0xe000, last],
  ];
}

/** Part of an expression that matches one character. */
export type CharacterNode = AST.Character | AST.CharacterSet | AST.CharacterClass | AST.CharacterClassElement;

/** Finds the code points of the character nodes of one expression. */
export class CharacterReader {
  readonly #unsupported: (node: AST.Node, what: string) => Error;
  /** Properties of the expression so far, by their spelling. */
  readonly #properties = new Set<string>();

  /** @param unsupported - Returns the error for a node that is not supported; `what` names the construct. */
  constructor(unsupported: (node: AST.Node, what: string) => Error) {
    this.#unsupported = unsupported;
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
        throw this.#unsupported(node, "an operation on classes");
    }
  }

  /** Returns the code points of `.`, `\d`, `\w`, `\s`, `\p{…}` and their negations. */
  #namedSet(node: AST.CharacterSet): readonly CodePointRange[] {
    if (node.kind === "any") return complement(LINE_ENDS);
    if (node.kind === "property") {
      // The spelling of the property without its negation: `\P{L}` negates `\p{L}`.
      const source = `\\p${node.raw.slice(2)}`;
      if (this.#properties.add(source).size > MAX_PROPERTIES)
        throw this.#unsupported(node, `more than ${MAX_PROPERTIES} properties of characters`);
      return node.negate ? complement(propertyRanges(source)) : propertyRanges(source);
    }
    const ranges = rangesOfKind(node.kind);
    return node.negate ? complement(ranges) : ranges;
  }
}

/** Returns the code points of `\d`, `\w` or `\s`. */
function rangesOfKind(kind: "digit" | "word" | "space"): readonly CodePointRange[] {
  if (kind === "digit") return DIGITS;
  return kind === "word" ? WORD_CHARACTERS : propertyRanges("\\s");
}
