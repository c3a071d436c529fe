/** Regular expressions as grammars: what is regular about them, and a refusal by name of what is not. */
import { RegExpParser, type AST } from "@eslint-community/regexpp";
import { complement } from "../../../engine/grammar/code-points.ts";
import { choiceOf, repeat, sequenceOf, type CodePointRange, type Expression, LAST_CODE_POINT } from "../../../engine/grammar/expression.ts";
import { ArgumentError, UnsupportedError } from "../../../errors.ts";
import { shown } from "../coercion.ts";

/** How {@link regexExpression} reads. */
export interface RegexOptions {
  /** Whether the expression describes a whole text, or a part of it that `^` and `$` tie to its ends. */
  readonly of: "whole" | "part";
  /** How one character of the ranges is written. @default as itself */
  readonly spell?: ((ranges: readonly CodePointRange[]) => Expression) | undefined;
  /** Whether escapes must be those of JavaScript's flag `u`. @default escapes that need not be are taken as well */
  readonly isStrict?: boolean | undefined;
  /** What messages call it. @default The regular expression */
  readonly name?: string | undefined;
}

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
/** Different properties that one expression may have: each is looked for among all characters. */
const MAX_PROPERTIES = 16;

/** Every character, in order; made when it is first needed. */
let characters: string | null = null;
const properties = new Map<string, readonly CodePointRange[]>();

function everyCharacter(): string {
  const units: number[] = [];
  for (let unit = 0; unit < 0xd800; unit++) units.push(unit);
  for (let unit = 0xe000; unit <= 0xffff; unit++) units.push(unit);
  for (let high = 0xd800; high <= 0xdbff; high++) for (let low = 0xdc00; low <= 0xdfff; low++) units.push(high, low);
  return Buffer.from(Uint16Array.from(units).buffer).toString("utf16le");
}

/** The code points of a property such as `\p{L}`, which has its own spelling; there are few, so that all are kept. */
function propertyRanges(source: string): readonly CodePointRange[] {
  const known = properties.get(source);
  if (known !== undefined) return known;
  characters ??= everyCharacter();
  // A run of matches is a range, but for the gap where the surrogates would be.
  const ranges = [...characters.matchAll(new RegExp(`${source}+`, "gu"))].flatMap(({ 0: run, index }): CodePointRange[] => {
    const [first, last] = [run.codePointAt(0)!, index + run.length];
    const end = characters!.charCodeAt(last - 1);
    const lastPoint = end >= 0xdc00 && end <= 0xdfff ? characters!.codePointAt(last - 2)! : end;
    return first < 0xd800 && lastPoint > 0xdfff
      ? [
          [first, 0xd7ff],
          [0xe000, lastPoint],
        ]
      : [[first, lastPoint]];
  });
  properties.set(source, ranges);
  return ranges;
}

function parse(source: string, isStrict: boolean, name: string): AST.Pattern {
  const parser = new RegExpParser({ ecmaVersion: 2024 });
  try {
    return parser.parsePattern(source, 0, source.length, { unicode: true });
  } catch (cause) {
    if (!isStrict && !/[\u{10000}-\u{10ffff}]/u.test(source) && !source.includes("\\u{")) {
      try {
        return parser.parsePattern(source, 0, source.length, { unicode: false });
      } catch {
        // What is wrong with it by the stricter rules says more.
      }
    }
    const problem = cause instanceof Error ? cause.message : String(cause);
    throw new ArgumentError(`${name} does not parse: ${problem.slice(0, 200)}`, { cause });
  }
}

class Converter {
  readonly #spell: (ranges: readonly CodePointRange[]) => Expression;
  readonly #name: string;
  readonly #isPart: boolean;
  readonly #properties = new Set<string>();

  constructor({ of, spell = (ranges) => ({ kind: "set", ranges }), name = "The regular expression" }: RegexOptions) {
    this.#spell = spell;
    this.#name = name;
    this.#isPart = of === "part";
  }

  pattern({ alternatives }: AST.Pattern): Expression {
    const anything = repeat(this.#spell([[0, LAST_CODE_POINT]]));
    return choiceOf(
      alternatives.map(({ elements }) => {
        const isEdge = (element: AST.Element | undefined, kind: "start" | "end") => element?.type === "Assertion" && element.kind === kind;
        const [first, last] = [
          elements.findIndex((each) => !isEdge(each, "start")),
          elements.findLastIndex((each) => !isEdge(each, "end")),
        ];
        const inner = elements.slice(first === -1 ? elements.length : first, last + 1);
        return sequenceOf([
          ...(this.#isPart && !isEdge(elements[0], "start") ? [anything] : []),
          ...inner.map((element) => this.#element(element)),
          ...(this.#isPart && !isEdge(elements.at(-1), "end") ? [anything] : []),
        ]);
      }),
    );
  }

  #refuse(node: AST.Node, what: string): UnsupportedError {
    return new UnsupportedError(
      `${this.#name} has ${what} (\`${shown(node.raw).slice(1, -1)}\`), which cannot be enforced; write it without`,
    );
  }

  #element(node: AST.QuantifiableElement | AST.Element): Expression {
    switch (node.type) {
      case "Character":
      case "CharacterSet":
      case "CharacterClass":
        return this.#spell(this.#ranges(node));
      case "Group":
        if (node.modifiers !== null) throw this.#refuse(node, "flags inside a group");
        return choiceOf(node.alternatives.map((each) => this.#alternative(each)));
      case "CapturingGroup":
        return choiceOf(node.alternatives.map((each) => this.#alternative(each)));
      case "Quantifier":
        return repeat(this.#element(node.element), node.min, node.max === Infinity ? null : node.max);
      case "Assertion":
        if (node.kind === "word") throw this.#refuse(node, "a word boundary");
        if (node.kind === "start" || node.kind === "end") throw this.#refuse(node, "an anchor that is not at an end of the expression");
        throw this.#refuse(node, node.kind === "lookahead" ? "a lookahead" : "a lookbehind");
      case "Backreference":
        throw this.#refuse(node, "a back reference");
      default:
        throw this.#refuse(node, "an operation on classes");
    }
  }

  #alternative({ elements }: AST.Alternative): Expression {
    return sequenceOf(elements.map((element) => this.#element(element)));
  }

  #ranges(node: AST.Character | AST.CharacterSet | AST.CharacterClass | AST.CharacterClassElement): readonly CodePointRange[] {
    switch (node.type) {
      case "Character":
        return [[node.value, node.value]];
      case "CharacterClassRange":
        return [[node.min.value, node.max.value]];
      case "CharacterClass": {
        const ranges = (node.elements as readonly AST.CharacterClassElement[]).flatMap((element) => this.#ranges(element));
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

/**
 * The texts that a regular expression in JavaScript's syntax describes; it is read by code points. Greedy and lazy mean the same.
 *
 * @throws ArgumentError `E_ARGUMENT` where it does not parse.
 * @throws UnsupportedError `E_UNSUPPORTED` for lookarounds, back references, word boundaries, flags, and anchors inside.
 */
export function regexExpression(source: string, options: RegexOptions): Expression {
  return new Converter(options).pattern(parse(source, options.isStrict === true, options.name ?? "The regular expression"));
}
