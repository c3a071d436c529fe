/**
 * Translates regular expressions in JavaScript's syntax to regular languages over code points.
 *
 * An expression is translated from its end to its beginning. Each part receives the language of the text that may follow it (`rest`), and
 * returns the language of the part with this text, so that a lookahead is an intersection with `rest`. Greedy and lazy quantifiers are
 * equivalent.
 */
import { RegExpParser, type AST } from "@eslint-community/regexpp";
import type { CodePointRange, Expression, GrammarBuilder } from "../expression.ts";
import { ArgumentError, UnsupportedError } from "../../../base/errors.ts";
import { shown } from "../../../base/util/shown.ts";
import { CharacterReader } from "./regex-characters.ts";
import { checkGroups } from "./nesting.ts";
import { Languages } from "./regular/language.ts";
import type { Term, Terms } from "./regular/term.ts";
import { first, getOrInsert, messageOf } from "../../../base/util/values.ts";

/** Options of {@link regexLanguage}. */
export interface RegexOptions {
  /**
   * Texts of the language: `whole` = texts that the expression matches from beginning to end, `part` = texts that it matches somewhere. `^`
   * and `$` match the ends of the text in both cases.
   */
  readonly of: "whole" | "part";
  /** Name of the expression in error messages. @default The regular expression */
  readonly name?: string | undefined;
}

/** Regular language of an expression. */
export interface RegexLanguage {
  /** Language of the expression, or a superset if {@link loose} is not null. */
  readonly term: Term;
  /** First construct that is not translated exactly: its name and its source text. Null if the term is exact. */
  readonly loose: { readonly what: string; readonly source: string } | null;
}

/** Maximum iterations of a bounded loop around an assertion; the loop is unrolled. */
const MAX_UNROLLED = 32;

/** Whether a position in the expression is the beginning of the text; null if it depends on the match. */
type IsStart = boolean | null;

/** Alternatives of an expression or group, each a sequence. */
type Alternatives = readonly { readonly elements: readonly AST.Element[] }[];

/** Parses an expression, with the flag `u` if possible: without it, more spellings are valid, such as `\-`. */
function parse(source: string, name: string): AST.Pattern {
  checkGroups(source, name);
  const parser = new RegExpParser({ ecmaVersion: 2024 });
  try {
    return parser.parsePattern(source, 0, source.length, { unicode: true });
  } catch (cause) {
    if (!/[\u{10000}-\u{10ffff}]/u.test(source) && !source.includes("\\u{")) {
      try {
        return parser.parsePattern(source, 0, source.length, { unicode: false });
      } catch {
        // The message of the stricter rules is more specific.
      }
    }
    const problem = messageOf(cause);
    throw new ArgumentError(`${name} does not parse: ${problem.slice(0, 200)}`, { cause });
  }
}

/** Returns the alternatives of a group; none for other nodes. */
function alternativesOf(node: AST.Node): Alternatives {
  return "alternatives" in node ? (node.alternatives as Alternatives) : [];
}

/** Returns a function that computes a property of a node once: callers ask at every level of nested groups. */
function oncePerNode<T>(compute: (node: AST.Element | AST.QuantifiableElement) => T): typeof compute {
  const known = new WeakMap<AST.Node, { readonly value: T }>();
  return (node) => getOrInsert(known, node, () => ({ value: compute(node) })).value;
}

/** Whether a node contains an assertion at any depth. */
const hasAssertion = oncePerNode((node): boolean => {
  if (node.type === "Assertion") return true;
  if (node.type === "Quantifier") return hasAssertion(node.element);
  return alternativesOf(node).some(({ elements }) => elements.some(hasAssertion));
});

/** Whether a node matches one character or more: true for always, false for never, null for sometimes. */
const consumes = oncePerNode((node): boolean | null => {
  switch (node.type) {
    case "Assertion":
      return false;
    case "Backreference":
      return null;
    case "Quantifier": {
      if (node.max === 0) return false;
      const isElementConsuming = consumes(node.element);
      return node.min === 0 && isElementConsuming === true ? null : isElementConsuming;
    }
    case "Group":
    case "CapturingGroup": {
      const perAlternative = alternativesOf(node).map(({ elements }): boolean | null => {
        const perElement = elements.map(consumes);
        if (perElement.includes(true)) return true;
        return perElement.includes(null) ? null : false;
      });
      return perAlternative.every((isConsuming) => isConsuming === perAlternative[0]) ? first(perAlternative) : null;
    }
    default:
      return true;
  }
});

/** Translates the nodes of one expression. Methods with `rest` return the language of the node followed by `rest`. */
class Translator {
  readonly #terms: Terms;
  readonly #name: string;
  readonly #characters = new CharacterReader((node, what) => this.#unsupported(node, what));
  /** See {@link RegexLanguage.loose}. */
  loose: RegexLanguage["loose"] = null;

  constructor(terms: Terms, name: string) {
    this.#terms = terms;
    this.#name = name;
  }

  /** Returns the language of some alternatives, each followed by `rest`. */
  alternatives(given: Alternatives, rest: Term, isStart: IsStart): Term {
    return this.#terms.or(given.map(({ elements }) => this.#sequence(elements, rest, isStart)));
  }

  #sequence(elements: readonly AST.Element[], rest: Term, isStart: IsStart): Term {
    /** Whether the next element is at the start of the text. */
    let isStartHere = isStart;
    const placed = elements.map((element) => {
      const isElementAtStart = isStartHere;
      const isConsuming = consumes(element);
      if (isConsuming === true) isStartHere = false;
      else if (isConsuming === null && isStartHere === true) isStartHere = null;
      return { element, isElementAtStart };
    });
    return placed.reduceRight((following, { element, isElementAtStart }) => this.#element(element, following, isElementAtStart), rest);
  }

  #element(node: AST.Element | AST.QuantifiableElement, rest: Term, isStart: IsStart): Term {
    const terms = this.#terms;
    switch (node.type) {
      case "Character":
      case "CharacterSet":
      case "CharacterClass":
        return terms.concat(terms.set(this.#characters.ranges(node)), rest);
      case "Group":
        if (node.modifiers !== null) throw this.#unsupported(node, "flags inside a group");
        return this.#group(node, rest, isStart);
      case "CapturingGroup":
        return this.#group(node, rest, isStart);
      case "Quantifier":
        return this.#quantifier(node, rest, isStart);
      case "Assertion":
        return this.#assertion(node, rest, isStart);
      case "Backreference":
        return terms.concat(terms.anything, this.#loosen(node, "a back reference", rest));
      default:
        throw this.#unsupported(node, "an operation on classes");
    }
  }

  #group(node: AST.Group | AST.CapturingGroup, rest: Term, isStart: IsStart): Term {
    // Without assertions inside, the group does not depend on `rest` and is translated once.
    if (hasAssertion(node)) return this.alternatives(node.alternatives, rest, isStart);
    return this.#terms.concat(this.alternatives(node.alternatives, this.#terms.empty, null), rest);
  }

  #quantifier(node: AST.Quantifier, rest: Term, isStart: IsStart): Term {
    const { element, min, max } = node;
    const terms = this.#terms;
    if (!hasAssertion(element)) return terms.concat(terms.repeat(this.#element(element, terms.empty, null), min, max), rest);
    if (max > MAX_UNROLLED) {
      const following = this.#loosen(node, "an assertion inside a loop", rest);
      return terms.concat(terms.repeat(this.#withoutAssertions(element), min, max), following);
    }
    // Unrolled from the last iteration to the first. Later iterations are at the start only if earlier ones match nothing.
    const isLaterStart = isStart === true ? null : isStart;
    let following = rest;
    for (let count = max; count > 0; count--) {
      const iteration = this.#element(element, following, count === 1 ? isStart : isLaterStart);
      following = count > min ? terms.or([rest, iteration]) : iteration;
    }
    return following;
  }

  /** Returns a superset of the language of a node: its language without assertions. */
  #withoutAssertions(node: AST.Element | AST.QuantifiableElement): Term {
    const terms = this.#terms;
    if (node.type === "Assertion") return terms.empty;
    if (node.type === "Quantifier") return terms.repeat(this.#withoutAssertions(node.element), node.min, node.max);
    if (node.type !== "Group" && node.type !== "CapturingGroup") return this.#element(node, terms.empty, null);
    return terms.or(
      node.alternatives.map(({ elements }) =>
        elements.reduceRight((following, element) => terms.concat(this.#withoutAssertions(element), following), terms.empty),
      ),
    );
  }

  #assertion(node: AST.Assertion, rest: Term, isStart: IsStart): Term {
    const terms = this.#terms;
    switch (node.kind) {
      case "start":
        if (isStart === null) return this.#loosen(node, "an anchor that may stand inside", rest);
        return isStart ? rest : terms.nothing;
      case "end":
        return terms.and([terms.empty, rest]);
      case "word":
        return this.#loosen(node, "a word boundary", rest);
      case "lookbehind":
        return this.#loosen(node, "a lookbehind", rest);
      case "lookahead": {
        // `loose` keeps only the first construct, so it is cleared to learn whether this lookahead has one.
        const looseBefore = this.loose;
        this.loose = null;
        const ahead = this.alternatives(node.alternatives, terms.anything, isStart);
        const isExact = this.loose === null;
        this.loose = looseBefore ?? this.loose;
        // A negated superset would exclude too many texts, so an inexact negative lookahead is dropped.
        if (node.negate) return isExact ? terms.and([terms.not(ahead), rest]) : rest;
        return terms.and([ahead, rest]);
      }
    }
  }

  /** Records that a node is omitted, so that the language becomes larger; returns `rest`. */
  #loosen(node: AST.Node, what: string, rest: Term): Term {
    this.loose ??= { what, source: shown(node.raw).slice(1, -1) };
    return rest;
  }

  /** Returns the error for a construct that is not supported. */
  #unsupported(node: AST.Node, what: string): UnsupportedError {
    return new UnsupportedError(
      `${this.#name} has ${what} (\`${shown(node.raw).slice(1, -1)}\`), which is not supported; write it without`,
    );
  }
}

/**
 * Translates a regular expression to a regular language.
 *
 * @param source - The regular expression, without delimiters and flags.
 * @param terms - Factory of the terms.
 * @param options - Texts of the language, and the expression's name in error messages.
 * @throws ArgumentError `E_ARGUMENT` if it does not parse, or has more than 128 levels of groups.
 * @throws UnsupportedError `E_UNSUPPORTED` for flags inside a group, and for more than 16 different Unicode properties.
 */
export function regexLanguage(source: string, terms: Terms, { of, name = "The regular expression" }: RegexOptions): RegexLanguage {
  const { alternatives } = parse(source, name);
  const translator = new Translator(terms, name);
  if (of === "whole") return { term: translator.alternatives(alternatives, terms.empty, true), loose: translator.loose };
  // Matches at the beginning of the text, and matches after at least one character.
  const atStart = translator.alternatives(alternatives, terms.anything, true);
  const later = translator.alternatives(alternatives, terms.anything, false);
  const term =
    atStart === later
      ? terms.concat(terms.anything, later)
      : terms.or([atStart, terms.concat(terms.character, terms.concat(terms.anything, later))]);
  return { term, loose: translator.loose };
}

/**
 * Returns the grammar expression of the texts that a regular expression matches as a whole.
 *
 * @param source - The regular expression, without delimiters and flags.
 * @param builder - Builder that receives the rules.
 * @param name - Name of the expression in error messages.
 * @throws ArgumentError `E_ARGUMENT` if it does not parse, or if its automaton is too large.
 * @throws UnsupportedError `E_UNSUPPORTED` for lookbehinds, back references, word boundaries, assertions inside unbounded loops, and flags.
 */
export function regexExpression(source: string, builder: GrammarBuilder, name = "The regular expression"): Expression {
  const languages = new Languages(builder);
  const { term, loose } = regexLanguage(source, languages.terms, { of: "whole", name });
  if (loose !== null)
    throw new UnsupportedError(`${name} has ${loose.what} (\`${loose.source}\`), which cannot be enforced; write it without`);
  const expression = languages.expression(term, (ranges: readonly CodePointRange[]) => ({ kind: "set", ranges }));
  if (expression === null) throw new ArgumentError(`${name} needs an automaton of too many states: simplify its lookaheads`);
  return expression;
}
