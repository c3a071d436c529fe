/**
 * Terms: regular languages over code points, with intersection and complement.
 *
 * Equal terms of one {@link Terms} are the same object. Its methods simplify the terms that they make: bounds on the length move into
 * repetitions where possible, so that most intersections disappear and need no automaton.
 */
import { intersection, normalized } from "../../code-points.ts";
import type { CodePointRange } from "../../expression.ts";
import { codePointAt, getOrInsert } from "../../../../base/util/values.ts";

/** Properties of a term. */
interface Facts {
  /** Number of the term, in order of creation. */
  readonly id: number;
  /** Whether the language contains the empty text. */
  readonly isNullable: boolean;
  /** Lower bound of the length of a text, in code points. */
  readonly min: number;
  /** Upper bound of the length of a text, in code points; may be infinite. */
  readonly max: number;
  /** Whether the term contains neither `and` nor `not`. */
  readonly isPlain: boolean;
}

/** Structure of a term. */
type Shape =
  /** Only the empty text. */
  | { readonly kind: "empty" }
  /** Single code point; no text at all if there are no ranges. */
  | { readonly kind: "set"; readonly ranges: readonly CodePointRange[] }
  | { readonly kind: "concat"; readonly head: Term; readonly tail: Term }
  | { readonly kind: "or"; readonly parts: readonly Term[] }
  | { readonly kind: "and"; readonly parts: readonly Term[] }
  | { readonly kind: "not"; readonly body: Term }
  /** Repetition of `body`; `maxCount` may be infinite. */
  | { readonly kind: "repeat"; readonly body: Term; readonly minCount: number; readonly maxCount: number };

/** A regular language. */
export type Term = Shape & Facts;
/** Language of single code points. */
type SetTerm = Extract<Shape, { kind: "set" }> & Facts;

/** Code points that texts may contain: all except surrogates. */
const CHARACTERS: readonly CodePointRange[] = [
  [0, 0xd7ff],
  [0xe000, 0x10ffff],
];

/** Language of the texts with all characters from one set, and with bounds on the length. */
interface Run {
  readonly set: SetTerm;
  readonly minCount: number;
  readonly maxCount: number;
}

/** Returns the run that a term is; null for other terms. */
function runOf(term: Term): Run | null {
  if (term.kind === "set") return { set: term, minCount: 1, maxCount: 1 };
  if (term.kind !== "repeat" || term.body.kind !== "set") return null;
  return { set: term.body, minCount: term.minCount, maxCount: term.maxCount };
}

/** Factory of terms. */
export class Terms {
  readonly #known = new Map<string, Term>();
  /** Language without texts. */
  readonly nothing: Term;
  /** Language of the empty text. */
  readonly empty: Term;
  /** Language of all single characters. */
  readonly character: SetTerm;
  /** Language of all texts. */
  readonly anything: Term;

  constructor() {
    this.nothing = this.set([]);
    this.empty = this.#make("e", { kind: "empty" }, { isNullable: true, min: 0, max: 0, isPlain: true });
    this.character = this.set(CHARACTERS);
    this.anything = this.repeat(this.character, 0, Infinity);
  }

  /** Number of different terms created so far. */
  get size(): number {
    return this.#known.size;
  }

  /** Returns the term of a key, created at its first use. The key states the shape. */
  #make(key: string, shape: Shape, facts: Omit<Facts, "id">): Term {
    return getOrInsert(this.#known, key, () => ({ ...shape, ...facts, id: this.#known.size }));
  }

  /** Returns the language of the single code points of the ranges. */
  set(ranges: readonly CodePointRange[]): SetTerm {
    const characters = intersection(ranges, CHARACTERS);
    return this.#make(
      `s${characters.join(";")}`,
      { kind: "set", ranges: characters },
      { isNullable: false, min: 1, max: 1, isPlain: true },
    ) as SetTerm;
  }

  /** Returns the language of exactly one text. */
  text(value: string): Term {
    const points = Array.from(value, (character) => codePointAt(character, 0));
    return points.reduceRight((tail, point) => this.concat(this.set([[point, point]]), tail), this.empty);
  }

  /** Returns the language of the texts of `head` followed by texts of `tail`. Concatenations are nested to the right. */
  concat(head: Term, tail: Term): Term {
    if (head === this.nothing || tail === this.nothing) return this.nothing;
    if (head === this.empty) return tail;
    if (tail === this.empty) return head;
    if (head.kind === "concat") {
      const heads: Term[] = [];
      let lastHead: Term = head;
      while (lastHead.kind === "concat") {
        heads.push(lastHead.head);
        lastHead = lastHead.tail;
      }
      return heads.reduceRight((following, each) => this.concat(each, following), this.concat(lastHead, tail));
    }
    if (head.kind === "repeat") {
      // `a*a` and `a*a+` become one repetition.
      const [next, afterNext] = tail.kind === "concat" ? [tail.head, tail.tail] : [tail, this.empty];
      const { body, minCount, maxCount } = next.kind === "repeat" ? next : { body: next, minCount: 1, maxCount: 1 };
      if (body === head.body) return this.concat(this.repeat(body, head.minCount + minCount, head.maxCount + maxCount), afterNext);
    }
    return this.#make(
      `c${head.id},${tail.id}`,
      { kind: "concat", head, tail },
      {
        isNullable: head.isNullable && tail.isNullable,
        min: head.min + tail.min,
        max: head.max + tail.max,
        isPlain: head.isPlain && tail.isPlain,
      },
    );
  }

  /** Returns the union of the languages. */
  or(given: readonly Term[]): Term {
    const flat = given.flatMap((part) => (part.kind === "or" ? part.parts : [part]));
    if (flat.includes(this.anything)) return this.anything;
    const ranges = flat.flatMap((part) => (part.kind === "set" ? part.ranges : []));
    const parts = new Set<Term>(flat.filter((part) => part.kind !== "set"));
    if (ranges.length > 0) parts.add(this.set(normalized(ranges)));
    const sorted = [...parts].sort((a, b) => a.id - b.id);
    const [only] = sorted;
    if (only === undefined) return this.nothing;
    if (sorted.length === 1) return only;
    return this.#make(
      `o${sorted.map(({ id }) => id).join()}`,
      { kind: "or", parts: sorted },
      {
        isNullable: sorted.some(({ isNullable }) => isNullable),
        min: sorted.reduce((min, part) => Math.min(min, part.min), Infinity),
        max: sorted.reduce((max, part) => Math.max(max, part.max), 0),
        isPlain: sorted.every(({ isPlain }) => isPlain),
      },
    );
  }

  /** Returns the intersection of the languages. */
  and(given: readonly Term[]): Term {
    const flat = new Set(given.flatMap((part) => (part.kind === "and" ? part.parts : [part])));
    flat.delete(this.anything);
    if (flat.has(this.nothing)) return this.nothing;
    /** Intersection of all parts that are runs. */
    let run: Run | null = null;
    const parts = new Set<Term>();
    for (const part of flat) {
      const partRun = runOf(part);
      if (partRun === null) parts.add(part);
      else run = run === null ? partRun : this.#bothRuns(run, partRun);
    }
    if (run === null) return this.#all([...parts]);
    if (run.minCount > run.maxCount) return this.nothing;
    if (run.set === this.nothing && run.minCount > 0) return this.nothing;
    return this.#within([...parts], run);
  }

  /** Returns the intersection of two runs. */
  #bothRuns(a: Run, b: Run): Run {
    const set = this.set(intersection(a.set.ranges, b.set.ranges));
    return { set, minCount: Math.max(a.minCount, b.minCount), maxCount: set === this.nothing ? 0 : Math.min(a.maxCount, b.maxCount) };
  }

  /** Returns the intersection of all parts with a language of one character set and length bounds. */
  #within(parts: readonly Term[], { set, minCount, maxCount }: Run): Term {
    if (parts.length === 0) return this.repeat(set, minCount, maxCount);
    const min = parts.reduce((longest, part) => Math.max(longest, part.min), 0);
    const max = parts.reduce((shortest, part) => Math.min(shortest, part.max), Infinity);
    if (min > maxCount || max < minCount) return this.nothing;
    // Bounds that already follow from the parts are dropped.
    const [neededMin, neededMax] = [min >= minCount ? 0 : minCount, max <= maxCount ? Infinity : maxCount];
    if (set === this.character) {
      if (neededMin === 0 && neededMax === Infinity) return this.#all(parts);
      const [only] = parts;
      // After a prefix of fixed length, the bounds move to the remainder.
      if (parts.length === 1 && only?.kind === "concat" && only.head.min === only.head.max) {
        const length = only.head.min;
        return this.concat(only.head, this.and([only.tail, this.repeat(set, Math.max(0, neededMin - length), neededMax - length)]));
      }
    }
    return this.#all([...parts, this.repeat(set, neededMin, neededMax)]);
  }

  /** Returns the intersection of parts that are not simplified further. */
  #all(parts: readonly Term[]): Term {
    const sorted = [...parts].sort((a, b) => a.id - b.id);
    const [only] = sorted;
    if (only === undefined) return this.anything;
    if (sorted.length === 1) return only;
    if (sorted.includes(this.empty)) return sorted.every(({ isNullable }) => isNullable) ? this.empty : this.nothing;
    return this.#make(
      `a${sorted.map(({ id }) => id).join()}`,
      { kind: "and", parts: sorted },
      {
        isNullable: sorted.every(({ isNullable }) => isNullable),
        min: sorted.reduce((min, part) => Math.max(min, part.min), 0),
        max: sorted.reduce((max, part) => Math.min(max, part.max), Infinity),
        isPlain: false,
      },
    );
  }

  /** Returns the complement of a language. */
  not(body: Term): Term {
    if (body.kind === "not") return body.body;
    if (body === this.nothing) return this.anything;
    if (body === this.anything) return this.nothing;
    return this.#make(
      `n${body.id}`,
      { kind: "not", body },
      { isNullable: !body.isNullable, min: body.isNullable ? 1 : 0, max: Infinity, isPlain: false },
    );
  }

  /** Returns the language of `body` repeated between `minCount` and `maxCount` times. */
  repeat(body: Term, minCount: number, maxCount: number): Term {
    if (minCount > maxCount) return this.nothing;
    if (maxCount === 0 || body === this.empty) return this.empty;
    if (body === this.nothing) return minCount === 0 ? this.empty : this.nothing;
    if (minCount === 1 && maxCount === 1) return body;
    if (body.kind === "repeat" && body.minCount === 0 && body.maxCount === Infinity) return body;
    // A nullable body also covers fewer repetitions.
    const neededCount = body.isNullable ? 0 : minCount;
    return this.#make(
      `r${body.id},${neededCount},${maxCount}`,
      { kind: "repeat", body, minCount: neededCount, maxCount },
      {
        isNullable: neededCount === 0,
        min: body.min * neededCount,
        // 0 · ∞ would be NaN.
        max: body.max === 0 ? 0 : body.max * maxCount,
        isPlain: body.isPlain,
      },
    );
  }
}
