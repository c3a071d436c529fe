/**
 * Derivatives of regular terms. The derivative of a term by a character is the language of the rest of its texts that begin with the
 * character.
 *
 * @source Brzozowski, "Derivatives of regular expressions", 1964; Owens, Reppy and Turon, "Regular-expression derivatives re-examined",
 *   2009 (character classes).
 */
import { complement, intersection } from "../../code-points.ts";
import type { CodePointRange } from "../../expression.ts";
import type { Term, Terms } from "./term.ts";
import { codePointAt, getOrInsert } from "../../../../base/util/values.ts";

/** Disjoint sets of characters that together contain every character. */
type Partition = readonly (readonly CodePointRange[])[];

/** Maximum number of character classes of one term. */
const MAX_CLASSES = 512;

/** Error for a term with an automaton that is too large. */
export class TooLarge extends Error {}

/** Derivatives of the terms of one {@link Terms}, cached. */
export class Derivatives {
  readonly #terms: Terms;
  readonly #partitions = new Map<Term, Partition>();
  readonly #derived = new Map<string, Term>();

  constructor(terms: Terms) {
    this.#terms = terms;
  }

  /** Returns a partition of all characters, such that the derivatives by all characters of one set are the same. */
  partition(term: Term): Partition {
    return getOrInsert(this.#partitions, term, () => this.#partition(term));
  }

  /** Computes {@link partition} for a term that is not cached. */
  #partition(term: Term): Partition {
    switch (term.kind) {
      case "empty":
        return [complement([])];
      case "set":
        return [term.ranges, complement(term.ranges)].filter((ranges) => ranges.length > 0);
      case "concat":
        return term.head.isNullable ? this.#meet([term.head, term.tail]) : this.partition(term.head);
      case "or":
      case "and":
        return this.#meet(term.parts);
      case "not":
      case "repeat":
        return this.partition(term.body);
    }
  }

  /** Returns the coarsest common refinement of the partitions of terms. */
  #meet(terms: readonly Term[]): Partition {
    let refined: Partition = [complement([])];
    for (const partition of new Set(terms.map((term) => this.partition(term)))) {
      if (partition.length === 1) continue;
      // Limits the number of intersections, before they are computed.
      if (refined.length * partition.length > MAX_CLASSES * 4) throw new TooLarge();
      refined = refined.flatMap((a) => partition.map((b) => intersection(a, b)).filter((both) => both.length > 0));
      if (refined.length > MAX_CLASSES) throw new TooLarge();
    }
    return refined;
  }

  /** Returns the derivative of a term by the code point `point`. */
  derive(term: Term, point: number): Term {
    return getOrInsert(this.#derived, `${term.id},${point}`, () => this.#derive(term, point));
  }

  /** Computes {@link derive} for a term and code point that are not cached. */
  #derive(term: Term, point: number): Term {
    const terms = this.#terms;
    switch (term.kind) {
      case "empty":
        return terms.nothing;
      case "set":
        return term.ranges.some(([first, last]) => first <= point && point <= last) ? terms.empty : terms.nothing;
      case "concat": {
        const fromHead = terms.concat(this.derive(term.head, point), term.tail);
        return term.head.isNullable ? terms.or([fromHead, this.derive(term.tail, point)]) : fromHead;
      }
      case "or":
        return terms.or(term.parts.map((part) => this.derive(part, point)));
      case "and":
        return terms.and(term.parts.map((part) => this.derive(part, point)));
      case "not":
        return terms.not(this.derive(term.body, point));
      case "repeat":
        return terms.concat(this.derive(term.body, point), terms.repeat(term.body, Math.max(0, term.minCount - 1), term.maxCount - 1));
    }
  }

  /** Whether a text belongs to the language of a term. */
  matches(term: Term, text: string): boolean {
    let derivative = term;
    for (const character of text) derivative = this.derive(derivative, codePointAt(character, 0));
    return derivative.isNullable;
  }
}
