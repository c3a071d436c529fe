/**
 * Grammars that constrain sampled texts, as engines receive them: expressions over code points, with rules that can call each other.
 * Schemas, regular expressions and grammar notations are compiled to this form.
 */
import { first } from "../../base/util/values.ts";

/** Range of code points, including both ends. */
export type CodePointRange = readonly [first: number, last: number];

/** Pattern of a part of a text. Texts are sequences of code points without surrogates, encoded and matched as UTF-8. */
export type Expression =
  | {
      readonly kind: "text";
      /** Matched text. */
      readonly text: string;
    }
  /** Matches a single code point within the ranges. */
  | {
      readonly kind: "set";
      /** Ranges of matched code points. */
      readonly ranges: readonly CodePointRange[];
    }
  | {
      readonly kind: "sequence";
      /** Parts, matched in order. */
      readonly parts: readonly Expression[];
    }
  /** Matches any of the options; without options, it matches no text. */
  | {
      readonly kind: "choice";
      /** Alternatives. */
      readonly options: readonly Expression[];
    }
  /** Matches the body `min` to `max` times; null means no upper bound. */
  | {
      readonly kind: "repeat";
      /** Repeated expression. */
      readonly body: Expression;
      /** Minimum number of repetitions, at least 0. */
      readonly min: number;
      /** Maximum number of repetitions; null = no maximum. */
      readonly max: number | null;
    }
  /** Matches the rule at this index of {@link Grammar.rules}. */
  | {
      readonly kind: "rule";
      /** Index of the rule, from 0. */
      readonly index: number;
    };

/** Grammar of a whole text, which must match rule 0. Plain data: equal grammars have equal JSON. */
export interface Grammar {
  /** Rules; the first one is the root. */
  readonly rules: readonly Expression[];
}

/** The largest code point. */
export const LAST_CODE_POINT = 0x10ffff;

/** Expression that matches no text. */
export const MATCHES_NOTHING: Expression = { kind: "choice", options: [] };

/** Expression that matches the empty text. */
export const EMPTY: Expression = { kind: "text", text: "" };

/** Returns an expression that matches exactly this text. */
export function text(value: string): Expression {
  return { kind: "text", text: value };
}

/** Returns an expression that matches a single code point within the ranges. */
export function set(...ranges: readonly CodePointRange[]): Expression {
  return { kind: "set", ranges };
}

/** Returns an expression that matches all parts in order. */
export function sequence(...parts: readonly Expression[]): Expression {
  return sequenceOf(parts);
}

/** Returns the {@link sequence} of a list, which may be long: a call with spread arguments is limited to some ten thousand. */
export function sequenceOf(parts: readonly Expression[]): Expression {
  return parts.length === 1 ? first(parts) : { kind: "sequence", parts };
}

/** Returns an expression that matches any of the options. */
export function choice(...options: readonly Expression[]): Expression {
  return choiceOf(options);
}

/** Returns the {@link choice} of a list, which may be long, see {@link sequenceOf}. */
export function choiceOf(options: readonly Expression[]): Expression {
  return options.length === 1 ? first(options) : { kind: "choice", options };
}

/** Returns an expression that matches the body `min` to `max` times; null means no upper bound. */
export function repeat(body: Expression, min = 0, max: number | null = null): Expression {
  return { kind: "repeat", body, min, max };
}

/** Returns an expression that matches the body at most once. */
export function optional(body: Expression): Expression {
  return repeat(body, 0, 1);
}

/** Builds the rules of one grammar. */
export class GrammarBuilder {
  /** Rules by index; the place of rule 0, the root, is reserved for {@link build}. */
  readonly #rules: Expression[] = [MATCHES_NOTHING];

  /**
   * Declares a rule that can be used before it is defined: `rule` is an expression that calls it, `define` sets its expression. A rule that
   * is never defined matches no text.
   */
  declare(): { readonly rule: Expression; readonly define: (expression: Expression) => void } {
    const index = this.#rules.push(MATCHES_NOTHING) - 1;
    return { rule: { kind: "rule", index }, define: (expression) => void (this.#rules[index] = expression) };
  }

  /** Adds a rule and returns an expression that calls it. `body` receives this expression too, so that the rule can call itself. */
  rule(body: (self: Expression) => Expression): Expression {
    const declared = this.declare();
    declared.define(body(declared.rule));
    return declared.rule;
  }

  /** Returns the grammar with `root` as rule 0. */
  build(root: Expression): Grammar {
    return { rules: [root, ...this.#rules.slice(1)] };
  }
}
