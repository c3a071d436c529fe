/**
 * Properties of the parts of a grammar, computed without compiling it: nullable (matches the empty text), productive (matches at least one
 * text), and the estimated number of automaton states.
 */
import type { Expression, Grammar } from "./expression.ts";
import { getOrInsert, itemAt } from "../../base/util/values.ts";

type Repetition = Extract<Expression, { kind: "repeat" }>;

/** Condition under which an expression has a property: always, never, or if all or any of its parts have the property. */
type Condition = boolean | { readonly needs: "all" | "any"; readonly parts: readonly Expression[] };
/** Returns the condition of an expression other than a rule call, which has the property if its rule has it. */
type ConditionOf = (expression: Exclude<Expression, { kind: "rule" }>) => Condition;

/** Maximum number of states of a bounded repetition that is unrolled; larger repetitions are matched with a counter. */
const MAX_UNROLLED_STATES = 64;

const isSurrogate = (point: number): boolean => point >= 0xd800 && point <= 0xdfff;

/** Returns the condition for matching the empty text. */
const nullableWhere: ConditionOf = (expression) => {
  switch (expression.kind) {
    case "text":
      return expression.text === "";
    case "set":
      return false;
    case "sequence":
      return { needs: "all", parts: expression.parts };
    case "choice":
      return { needs: "any", parts: expression.options };
    case "repeat":
      return expression.min === 0 || { needs: "all", parts: [expression.body] };
  }
};

/** Returns the condition for matching at least one text. */
const productiveWhere: ConditionOf = (expression) => {
  switch (expression.kind) {
    case "text":
      return true;
    case "set":
      // Surrogates are contiguous, so a range contains only surrogates exactly if both ends are surrogates.
      return expression.ranges.some(([first, last]) => first <= last && !(isSurrogate(first) && isSurrogate(last)));
    case "sequence":
      return { needs: "all", parts: expression.parts };
    case "choice":
      return { needs: "any", parts: expression.options };
    case "repeat":
      if (expression.max !== null && expression.max < expression.min) return false;
      return expression.min === 0 || { needs: "all", parts: [expression.body] };
  }
};

/** Part of a rule that is not known to have the property yet. */
interface Waiting {
  /** Number of its parts that must still be found to have the property. */
  pending: number;
  /** Enclosing part, or the index of the rule if the part is the whole rule. */
  readonly parent: Waiting | number;
}

/**
 * Computes, for each rule, whether a property holds (least fixed point).
 *
 * A part that is found to have the property is reported to its parent, and a rule to its callers. So every part is visited once, in any
 * order of rule calls.
 *
 * @source Dowling and Gallier, "Linear-time algorithms for testing the satisfiability of propositional Horn formulae", 1984.
 */
function fixedPoint({ rules }: Grammar, conditionOf: ConditionOf): boolean[] {
  const holds = rules.map(() => false);
  /** Parts that call each rule. */
  const callers = rules.map((): Waiting[] => []);
  /** Parts to notify: each entry stands for one more of their parts that has the property. */
  const notified: Waiting[] = [];
  const unvisited = rules.map((expression, index) => ({ expression, parent: { pending: 1, parent: index } as Waiting }));
  for (let next = unvisited.pop(); next !== undefined; next = unvisited.pop()) {
    const { expression, parent } = next;
    if (expression.kind === "rule") {
      itemAt(callers, expression.index).push(parent);
      continue;
    }
    const condition = conditionOf(expression);
    if (condition === true) notified.push(parent);
    if (typeof condition === "boolean") continue;
    const { needs, parts } = condition;
    if (needs === "all" && parts.length === 0) notified.push(parent);
    const waiting: Waiting = { pending: needs === "all" ? parts.length : 1, parent };
    for (const part of parts) unvisited.push({ expression: part, parent: waiting });
  }
  for (let waiting = notified.pop(); waiting !== undefined; waiting = notified.pop()) {
    if (--waiting.pending !== 0) continue;
    const { parent } = waiting;
    if (typeof parent !== "number") notified.push(parent);
    else {
      holds[parent] = true;
      for (const caller of itemAt(callers, parent)) notified.push(caller);
    }
  }
  return holds;
}

/** Properties of a grammar's parts, cached per part: callers that traverse a grammar ask at every level. */
export class GrammarFacts {
  /** Whether each rule is nullable. */
  readonly #nullable: readonly boolean[];
  /** Whether each rule is productive. */
  readonly #productive: readonly boolean[];
  readonly #nullableParts = new Map<Expression, boolean>();
  readonly #productiveParts = new Map<Expression, boolean>();
  readonly #states = new Map<Expression, number>();
  /** Estimated number of states of the whole grammar. */
  readonly states: number;

  constructor(grammar: Grammar) {
    this.#nullable = fixedPoint(grammar, nullableWhere);
    this.#productive = fixedPoint(grammar, productiveWhere);
    this.states = grammar.rules.reduce((sum, rule) => sum + this.statesOf(rule), 0);
  }

  /** Whether an expression matches the empty text. */
  isNullable(expression: Expression): boolean {
    return this.#holds(expression, nullableWhere, this.#nullable, this.#nullableParts);
  }

  /** Whether an expression matches at least one text. */
  isProductive(expression: Expression): boolean {
    return this.#holds(expression, productiveWhere, this.#productive, this.#productiveParts);
  }

  /** Whether an expression has the property of `conditionOf`, which each rule has as in `rules`. */
  #holds(expression: Expression, conditionOf: ConditionOf, rules: readonly boolean[], cache: Map<Expression, boolean>): boolean {
    if (expression.kind === "rule") return itemAt(rules, expression.index);
    if (expression.kind === "text" || expression.kind === "set") return conditionOf(expression) === true;
    return getOrInsert(cache, expression, () => {
      const condition = conditionOf(expression);
      if (typeof condition === "boolean") return condition;
      const isTrue = (part: Expression) => this.#holds(part, conditionOf, rules, cache);
      return condition.needs === "all" ? condition.parts.every(isTrue) : condition.parts.some(isTrue);
    });
  }

  /** Whether a bounded repetition is unrolled into copies of its body instead of matched with a counter. */
  isWrittenOut({ body, min, max }: Repetition): boolean {
    const times = max ?? min;
    // A body that can match the empty text cannot be counted.
    return times <= 1 || times * this.statesOf(body) <= MAX_UNROLLED_STATES || this.isNullable(body);
  }

  /** Estimates the number of states of an expression without the rules that it calls. The empty text takes one state. */
  statesOf(expression: Expression): number {
    switch (expression.kind) {
      case "text":
        return Math.max(1, Buffer.byteLength(expression.text));
      case "set":
        return 1 + expression.ranges.length;
      case "rule":
        return 1;
      default:
        return getOrInsert(this.#states, expression, () => this.#statesOfParts(expression));
    }
  }

  #statesOfParts(expression: Extract<Expression, { kind: "sequence" | "choice" | "repeat" }>): number {
    switch (expression.kind) {
      case "sequence":
        return Math.max(
          1,
          expression.parts.reduce((sum, part) => sum + this.statesOf(part), 0),
        );
      case "choice":
        return expression.options.reduce((sum, option) => sum + this.statesOf(option), 1);
      case "repeat": {
        const body = this.statesOf(expression.body);
        return 1 + (this.isWrittenOut(expression) ? body * Math.max(1, expression.max ?? expression.min + 1) : body);
      }
    }
  }
}
