/** Common parser of the grammar notations EBNF (`ebnf.ts`) and Lark (`lark.ts`): named rules, made of alternatives, made of items. */
import { checkNesting } from "./nesting.ts";
import { EMPTY, choiceOf, optional, repeat, sequenceOf, type Expression, type GrammarBuilder } from "../expression.ts";
import { ArgumentError, UnsupportedError } from "../../../base/errors.ts";
import { shown } from "../../../base/util/shown.ts";
import { codePointAt, getOrInsert, last } from "../../../base/util/values.ts";

/** Characters of the escapes of one character: `\n` is a line feed. */
const SIMPLE_ESCAPES: ReadonlyMap<string, string> = new Map([
  ["n", "\n"],
  ["r", "\r"],
  ["t", "\t"],
  ["f", "\f"],
  ["v", "\v"],
  ["b", "\b"],
  ["a", "\u0007"],
  ["e", "\u001b"],
  ["0", "\0"],
]);

/** Rule of the grammar text. */
interface Rule {
  readonly declared: ReturnType<GrammarBuilder["declare"]>;
  /** End of its name at its first use or definition; for messages. */
  readonly firstSeenEnd: number;
  isDefined: boolean;
}

/** Recursive-descent parser of one grammar text. A subclass provides the parts in which its notation differs. */
export abstract class RuleReader {
  readonly source: string;
  readonly builder: GrammarBuilder;
  /** Current position in `source`, in UTF-16 units. */
  position = 0;
  /** Rules by name, from their first use or definition on. */
  readonly #rules = new Map<string, Rule>();
  /** Number of groups around the current position. */
  #depth = 0;

  constructor(source: string, builder: GrammarBuilder) {
    this.source = source;
    this.builder = builder;
  }

  /** Name of the start rule. */
  protected abstract readonly root: string;
  /** White space and comments, as a sticky expression. */
  protected abstract readonly blank: RegExp;
  /** Beginning of a rule, as a sticky expression; group 1 is the rule's name. */
  protected abstract readonly head: RegExp;
  /** Parses one item without its quantifier. Returns undefined if no item begins here. */
  protected abstract item(): Expression | undefined;
  /**
   * Parses a quantifier with counts, such as EBNF's `{2,3}`, and returns the repeated item ({@link repeatBetween}). Returns undefined at
   * any other text.
   */
  protected abstract countedRepeat(item: Expression): Expression | undefined;
  /** Skips notation at the end of an alternative that does not affect its texts, such as Lark's `-> alias`. */
  protected abstract trailer(): void;

  /**
   * Parses the whole text.
   *
   * @returns The start rule.
   * @throws ArgumentError `E_ARGUMENT` with line and column if it does not parse.
   * @throws UnsupportedError `E_UNSUPPORTED` with line and column for a construct that is not supported.
   */
  read(): Expression {
    for (this.skip(); this.position < this.source.length; this.skip()) {
      const [, name] = this.match(this.head) ?? [];
      if (name === undefined) throw this.syntaxError("expected a rule");
      const rule = this.#rule(name);
      if (rule.isDefined) throw this.syntaxError(`the rule \`${name}\` is defined twice`);
      rule.isDefined = true;
      rule.declared.define(this.alternatives());
      if (this.position < this.source.length && !this.#isHead()) throw this.syntaxError("expected a rule, an item or `|`");
    }
    const root = this.#rules.get(this.root);
    if (root === undefined || !root.isDefined)
      throw new ArgumentError(`The grammar has no rule \`${this.root}\`, which is what the whole text must be`);
    for (const [name, rule] of this.#rules) {
      this.position = rule.firstSeenEnd;
      if (!rule.isDefined) throw this.syntaxError(`the rule \`${name}\` is not defined`);
    }
    return root.declared.rule;
  }

  /** Returns the entry of a rule, added at its first use or definition. The current position is at the end of its name. */
  #rule(name: string): Rule {
    return getOrInsert(this.#rules, name, () => ({ declared: this.builder.declare(), firstSeenEnd: this.position, isDefined: false }));
  }

  /** Whether a rule begins at the current position. */
  #isHead(): boolean {
    this.head.lastIndex = this.position;
    return this.head.test(this.source);
  }

  /**
   * Parses a reference to a rule. Returns undefined at any other text, or if the name begins the next rule: rules have no terminator,
   * so the next head ends a rule.
   *
   * @param namePattern - Name of a rule, as a sticky expression.
   */
  protected call(namePattern: RegExp): Expression | undefined {
    if (this.#isHead()) return undefined;
    const found = this.match(namePattern);
    return found === null ? undefined : this.#rule(found[0]).declared.rule;
  }

  /** Parses alternatives up to the next rule or a closing bracket. */
  protected alternatives(): Expression {
    const options = [this.#sequence()];
    for (this.skip(); this.take("|"); this.skip()) options.push(this.#sequence());
    return choiceOf(options);
  }

  /** Parses one alternative. */
  #sequence(): Expression {
    const parts: Expression[] = [];
    for (;;) {
      this.skip();
      const item = this.item();
      if (item === undefined) break;
      parts.push(this.#repeated(item));
    }
    this.trailer();
    if (parts.length === 0) throw this.syntaxError("expected an item of a rule");
    return sequenceOf(parts);
  }

  /** Parses the quantifiers after an item, and returns the repeated item. */
  #repeated(item: Expression): Expression {
    let result = item;
    for (;;) {
      if (this.take("*")) result = repeat(result);
      else if (this.take("+")) result = repeat(result, 1);
      else if (this.take("?")) result = optional(result);
      else {
        const counted = this.countedRepeat(result);
        if (counted === undefined) return result;
        result = counted;
      }
    }
  }

  /**
   * Returns an item repeated `min` to `max` times, for {@link countedRepeat}.
   *
   * @param min - Decimal digits.
   * @param max - Decimal digits; undefined = no maximum.
   */
  protected repeatBetween(item: Expression, min: string, max: string | undefined): Expression {
    const [minCount, maxCount] = [Number(min), max === undefined ? null : Number(max)];
    if (maxCount !== null && minCount > maxCount)
      throw this.syntaxError(`expected the least number of times not to be above the most, got ${minCount} and ${maxCount}`);
    return maxCount === 0 ? EMPTY : repeat(item, minCount, maxCount);
  }

  /** Parses the inside of a group and its closing bracket. */
  protected group(close: string): Expression {
    this.#depth++;
    checkNesting(this.#depth, "The grammar");
    const alternatives = this.alternatives();
    this.#depth--;
    this.skip();
    if (!this.take(close)) throw this.syntaxError(`expected \`${close}\``);
    return alternatives;
  }

  /** Parses the rest of a string and its closing quote; resolves escapes. */
  protected quoted(quote: string): string {
    let value = "";
    for (;;) {
      const character = this.source[this.position];
      if (character === undefined || character === "\n") throw this.syntaxError(`expected ${quote}`);
      if (character === quote) break;
      value += this.character();
    }
    this.position++;
    return value;
  }

  /** Parses one code point, possibly escaped. */
  protected character(): string {
    if (!this.take("\\")) {
      const point = String.fromCodePoint(codePointAt(this.source, this.position));
      this.position += point.length;
      return point;
    }
    const hex = this.match(/x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|u\{([0-9a-fA-F]{1,6})\}/y);
    if (hex !== null) {
      const point = parseInt(hex.slice(1).join(""), 16);
      if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) throw this.syntaxError("expected the number of a character");
      return String.fromCodePoint(point);
    }
    const escaped = this.source[this.position];
    this.position++;
    if (escaped === undefined) throw this.syntaxError("expected an escaped character");
    const simple = SIMPLE_ESCAPES.get(escaped);
    if (simple !== undefined) return simple;
    if (/[A-Za-z0-9]/.test(escaped)) throw this.syntaxError(`expected an escape that exists, got \`\\${escaped}\``);
    return escaped;
  }

  /** Skips white space and comments. */
  protected skip(): void {
    this.match(this.blank);
  }

  /** Consumes `wanted` if it is next in the text, and returns whether it is. */
  protected take(wanted: string): boolean {
    if (!this.source.startsWith(wanted, this.position)) return false;
    this.position += wanted.length;
    return true;
  }

  /** Consumes the match of a sticky expression at the current position; null without a match. */
  protected match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.position;
    const found = pattern.exec(this.source);
    if (found !== null) this.position += found[0].length;
    return found;
  }

  /** Returns the current position as line and column, from 1. */
  #location(): string {
    const before = this.source.slice(0, this.position).split("\n");
    return `line ${before.length}, column ${last(before).length + 1}`;
  }

  /** Returns the error for text at the current position that does not parse. */
  protected syntaxError(problem: string): ArgumentError {
    return new ArgumentError(
      `The grammar does not parse at ${this.#location()}: ${problem}, near ${shown(this.source.slice(this.position, this.position + 20))}`,
    );
  }

  /** Returns the error for a construct at the current position that is not supported. */
  protected unsupported(what: string): UnsupportedError {
    return new UnsupportedError(`The grammar has ${what} at ${this.#location()}, which is not supported; write it without`);
  }
}
