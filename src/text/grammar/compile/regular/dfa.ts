/** Deterministic finite automata over code points, and their conversion to grammars. */
import { complement, normalized } from "../../code-points.ts";
import { choiceOf, EMPTY, MATCHES_NOTHING, sequence, type CodePointRange, type Expression, type GrammarBuilder } from "../../expression.ts";
import { TooLarge, type Derivatives } from "./derivative.ts";
import type { Term } from "./term.ts";
import { first, getOrInsert, getOrThrow, itemAt, zip } from "../../../../base/util/values.ts";

/** A state and its outgoing edges. A text that has no edge to follow is rejected. */
export interface DfaState {
  /** Whether a text may end in this state. */
  readonly isEnd: boolean;
  readonly edges: readonly { readonly ranges: readonly CodePointRange[]; readonly target: number }[];
}

/** States of an automaton; state 0 is the start state. */
export type Dfa = readonly DfaState[];

/** Maximum number of states of one automaton. */
const MAX_STATES = 1500;
/** Maximum number of ranges on all edges of one automaton. */
const MAX_RANGES = 30_000;
/** Maximum number of terms created for one automaton: the cost of a derivative grows with the size of its term. */
const MAX_TERMS = 30_000;

/**
 * Returns the automaton of a term: a state is a term, and an edge leads to its derivative.
 *
 * @param root - The term.
 * @param derivatives - Derivatives of the term's factory.
 * @param termCount - Returns the number of terms created so far.
 * @throws {@link TooLarge} above 1,500 states, 30,000 ranges on edges or 30,000 new terms.
 */
export function dfaOf(root: Term, derivatives: Derivatives, termCount: () => number): Dfa {
  const numbers = new Map<Term, number>([[root, 0]]);
  // Grows during the loop.
  const terms = [root];
  const states: DfaState[] = [];
  const limit = termCount() + MAX_TERMS;
  let rangeCount = 0;
  for (const term of terms) {
    const edges = new Map<number, CodePointRange[]>();
    for (const set of derivatives.partition(term)) {
      // All characters of the set have the same derivative.
      const next = derivatives.derive(term, first(set)[0]);
      if (next.kind === "set" && next.ranges.length === 0) continue;
      const target = getOrInsert(numbers, next, () => terms.push(next) - 1);
      edges.set(target, [...(edges.get(target) ?? []), ...set]);
      rangeCount += set.length;
    }
    if (terms.length > MAX_STATES || rangeCount > MAX_RANGES || termCount() > limit) throw new TooLarge();
    states.push({ isEnd: term.isNullable, edges: Array.from(edges, ([target, ranges]) => ({ ranges: normalized(ranges), target })) });
  }
  return states;
}

/**
 * Returns the automaton of the intersection of two languages.
 *
 * @param intersect - Returns the intersection of two lists of ranges.
 * @throws {@link TooLarge} above 1,500 states.
 */
export function productOf(
  a: Dfa,
  b: Dfa,
  intersect: (a: readonly CodePointRange[], b: readonly CodePointRange[]) => CodePointRange[],
): Dfa {
  const numbers = new Map<string, number>([["0,0", 0]]);
  // Pairs of states; grows during the loop.
  const pairs: (readonly [number, number])[] = [[0, 0]];
  const states: DfaState[] = [];
  for (const [leftAt, rightAt] of pairs) {
    const [left, right] = [itemAt(a, leftAt), itemAt(b, rightAt)];
    const edges: { ranges: CodePointRange[]; target: number }[] = [];
    for (const leftEdge of left.edges) {
      for (const rightEdge of right.edges) {
        const ranges = intersect(leftEdge.ranges, rightEdge.ranges);
        if (ranges.length === 0) continue;
        const pair = [leftEdge.target, rightEdge.target] as const;
        const target = getOrInsert(numbers, pair.join(), () => pairs.push(pair) - 1);
        edges.push({ ranges, target });
      }
    }
    if (pairs.length > MAX_STATES) throw new TooLarge();
    states.push({ isEnd: left.isEnd && right.isEnd, edges });
  }
  return states;
}

/** Returns the automaton of all texts outside of a language. The edges of a state have disjoint ranges. */
export function complementOf(dfa: Dfa): Dfa {
  // An added state, which loops to itself, for texts that have left the automaton.
  const outside = dfa.length;
  const states = [...dfa, { isEnd: false, edges: [] }];
  return states.map(({ isEnd, edges }) => {
    const others = complement(edges.flatMap(({ ranges }) => ranges));
    return { isEnd: !isEnd, edges: others.length === 0 ? edges : [...edges, { ranges: others, target: outside }] };
  });
}

/**
 * Returns the minimal automaton of the same language; the edges of a state have disjoint ranges. Splits the states into classes by their
 * edges to classes, until nothing changes.
 *
 * @source Moore, "Gedanken-experiments on sequential machines", 1956.
 */
export function minimized(dfa: Dfa): Dfa {
  const classes = equivalenceClasses(dfa);
  const states = new Map<number, DfaState>();
  for (const [{ isEnd, edges }, classOfState] of zip(dfa, classes)) {
    if (states.has(classOfState)) continue;
    const merged = new Map<number, CodePointRange[]>();
    for (const { ranges, target } of edges) {
      const targetClass = itemAt(classes, target);
      merged.set(targetClass, [...(merged.get(targetClass) ?? []), ...ranges]);
    }
    states.set(classOfState, { isEnd, edges: Array.from(merged, ([target, ranges]) => ({ ranges: normalized(ranges), target })) });
  }
  return [...states.values()];
}

/** Returns the class of each state. Classes are numbered in order of occurrence, so that the start state has class 0. */
function equivalenceClasses(dfa: Dfa): readonly number[] {
  let classes: readonly number[] = dfa.map(({ isEnd }) => (isEnd ? 1 : 0));
  let classCount = 0;
  for (;;) {
    const numbers = new Map<string, number>();
    const refined = dfa.map(({ edges }, at) => {
      const key = `${classes[at]} ${edges.map(({ ranges, target }) => `${ranges.join(";")}>${classes[target]}`).join(" ")}`;
      return getOrInsert(numbers, key, () => numbers.size);
    });
    if (numbers.size === classCount) return refined;
    classes = refined;
    classCount = numbers.size;
  }
}

/** Returns for each state whether an accepting state can be reached. */
function liveStates(dfa: Dfa): boolean[] {
  const predecessors: number[][] = dfa.map(() => []);
  for (const [source, { edges }] of dfa.entries()) for (const { target } of edges) itemAt(predecessors, target).push(source);
  const isLive = dfa.map(({ isEnd }) => isEnd);
  const unvisited = [...isLive.keys()].filter((at) => isLive[at]);
  for (let visited = unvisited.pop(); visited !== undefined; visited = unvisited.pop()) {
    for (const source of itemAt(predecessors, visited)) {
      if (isLive[source]) continue;
      isLive[source] = true;
      unvisited.push(source);
    }
  }
  return isLive;
}

/**
 * Returns the expression of an automaton, with one grammar rule for each state.
 *
 * @param spell - Returns the expression of one character of the ranges.
 */
export function dfaExpression(dfa: Dfa, builder: GrammarBuilder, spell: (ranges: readonly CodePointRange[]) => Expression): Expression {
  const isLive = liveStates(dfa);
  if (!isLive[0]) return MATCHES_NOTHING;
  const rules = new Map(dfa.flatMap((_, at) => (isLive[at] ? [[at, builder.declare()]] : [])));
  for (const [at, { isEnd, edges }] of dfa.entries()) {
    const continuations = edges.flatMap(({ ranges, target }) => {
      const next = rules.get(target);
      return next === undefined ? [] : [sequence(spell(ranges), next.rule)];
    });
    rules.get(at)?.define(choiceOf(isEnd ? [EMPTY, ...continuations] : continuations));
  }
  return getOrThrow(rules, 0).rule;
}
