/** Conversion of regular languages (terms) to grammar expressions, and back for expressions without rules. */
import { choiceOf, repeat, sequenceOf, type CodePointRange, type Expression, type GrammarBuilder } from "../../expression.ts";
import { Derivatives, TooLarge } from "./derivative.ts";
import { dfaExpression, dfaOf, type Dfa } from "./dfa.ts";
import { Terms, type Term } from "./term.ts";

/** Returns the expression of one character of the ranges: the character itself, or its spelling in a JSON string. */
export type Spell = (ranges: readonly CodePointRange[]) => Expression;

/** Regular languages of one grammar. */
export class Languages {
  readonly terms = new Terms();
  readonly #derivatives = new Derivatives(this.terms);
  readonly #builder: GrammarBuilder;

  constructor(builder: GrammarBuilder) {
    this.#builder = builder;
  }

  /** Whether a text belongs to the language of a term. */
  matches(term: Term, text: string): boolean {
    return this.#derivatives.matches(term, text);
  }

  /**
   * Returns the automaton of a term.
   *
   * @throws {@link TooLarge} if it is too large.
   */
  dfa(term: Term): Dfa {
    return dfaOf(term, this.#derivatives, () => this.terms.size);
  }

  /** Returns the language of an expression without rules. */
  termOf(expression: Expression): Term {
    const { terms } = this;
    switch (expression.kind) {
      case "text":
        return terms.text(expression.text);
      case "set":
        return terms.set(expression.ranges);
      case "sequence":
        return expression.parts.reduceRight((tail, part) => terms.concat(this.termOf(part), tail), terms.empty);
      case "choice":
        return terms.or(expression.options.map((option) => this.termOf(option)));
      case "repeat":
        return terms.repeat(this.termOf(expression.body), expression.min, expression.max ?? Infinity);
      case "rule":
        throw new TypeError("Expected an expression without rules");
    }
  }

  /**
   * Returns the expression of a term; null if its automaton would be too large. Only terms with intersections and complements need one:
   * other terms (`isPlain`) have the same structure as expressions.
   */
  expression(term: Term, spell: Spell): Expression | null {
    if (term.isPlain) return this.#plain(term, spell);
    // A plain prefix is converted directly, so that the automaton covers only the rest.
    if (term.kind === "concat" && term.head.isPlain) {
      const plainHeads: Expression[] = [];
      let remainder: Term = term;
      for (; remainder.kind === "concat" && remainder.head.isPlain; remainder = remainder.tail)
        plainHeads.push(this.#plain(remainder.head, spell));
      const tail = this.expression(remainder, spell);
      return tail === null ? null : sequenceOf([...plainHeads, tail]);
    }
    try {
      return dfaExpression(this.dfa(term), this.#builder, spell);
    } catch (error) {
      if (error instanceof TooLarge) return null;
      throw error;
    }
  }

  /** Returns the expression of a plain term. */
  #plain(term: Term, spell: Spell): Expression {
    switch (term.kind) {
      case "empty":
        return sequenceOf([]);
      case "set":
        return spell(term.ranges);
      case "concat": {
        // By a loop, because texts are concatenations nested as deeply as they are long.
        const parts: Expression[] = [];
        let remainder: Term = term;
        for (; remainder.kind === "concat"; remainder = remainder.tail) parts.push(this.#plain(remainder.head, spell));
        return sequenceOf([...parts, this.#plain(remainder, spell)]);
      }
      case "or":
        return choiceOf(term.parts.map((part) => this.#plain(part, spell)));
      case "repeat":
        return repeat(this.#plain(term.body, spell), term.minCount, term.maxCount === Infinity ? null : term.maxCount);
      case "and":
      case "not":
        throw new TypeError(`Expected a plain term, got ${term.kind}`);
    }
  }
}
