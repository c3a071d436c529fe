/** Grammars as the Engine port carries them: expressions over code points, with rules that may call each other. */

/** Code points from the first to the last, both included. */
export type CodePointRange = readonly [first: number, last: number];

/** What a part of a text must look like. Texts are sequences of code points, sent and matched as UTF-8; surrogates are none. */
export type Expression =
  | { readonly kind: "text"; readonly text: string }
  /** One code point. */
  | { readonly kind: "set"; readonly ranges: readonly CodePointRange[] }
  | { readonly kind: "sequence"; readonly parts: readonly Expression[] }
  /** Any of them; none at all is what no text matches. */
  | { readonly kind: "choice"; readonly options: readonly Expression[] }
  /** `max` null is without end. */
  | { readonly kind: "repeat"; readonly body: Expression; readonly min: number; readonly max: number | null }
  /** The rule at this place of {@link Grammar.rules}. */
  | { readonly kind: "rule"; readonly index: number };

/** What a whole text must look like: rule 0. Plain data, equal as JSON where equal. */
export interface Grammar {
  readonly rules: readonly Expression[];
}

/** The largest code point. */
export const LAST_CODE_POINT = 0x10ffff;

/** What no text matches. */
export const NOTHING: Expression = { kind: "choice", options: [] };

/** The empty text. */
export const EMPTY: Expression = { kind: "text", text: "" };

/** Exactly this text. */
export function text(value: string): Expression {
  return { kind: "text", text: value };
}

/** One code point of the ranges. */
export function set(...ranges: readonly CodePointRange[]): Expression {
  return { kind: "set", ranges };
}

/** One after the other. */
export function sequence(...parts: readonly Expression[]): Expression {
  return sequenceOf(parts);
}

/** {@link sequence} of a list of any length: arguments are limited to some ten thousands. */
export function sequenceOf(parts: readonly Expression[]): Expression {
  return parts.length === 1 ? parts[0]! : { kind: "sequence", parts };
}

/** Any of them. */
export function choice(...options: readonly Expression[]): Expression {
  return choiceOf(options);
}

/** {@link choice} of a list of any length. */
export function choiceOf(options: readonly Expression[]): Expression {
  return options.length === 1 ? options[0]! : { kind: "choice", options };
}

/** Between `min` and `max` times; without `max`, as often as one likes. */
export function repeat(body: Expression, min = 0, max: number | null = null): Expression {
  return { kind: "repeat", body, min, max };
}

/** At most once. */
export function optional(body: Expression): Expression {
  return repeat(body, 0, 1);
}

/** Makes the rules of one grammar. */
export class GrammarBuilder {
  readonly #rules: Expression[] = [NOTHING];

  /** A rule that is used before it is defined; until then no text matches it. */
  declare(): { readonly rule: Expression; readonly define: (expression: Expression) => void } {
    const index = this.#rules.push(NOTHING) - 1;
    return { rule: { kind: "rule", index }, define: (expression) => void (this.#rules[index] = expression) };
  }

  /** A rule that may call itself: `define` gets its own name. */
  rule(define: (self: Expression) => Expression): Expression {
    const declared = this.declare();
    declared.define(define(declared.rule));
    return declared.rule;
  }

  /** The grammar whose texts are those of `root`. */
  build(root: Expression): Grammar {
    return { rules: [root, ...this.#rules.slice(1)] };
  }
}
