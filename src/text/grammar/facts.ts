/** Properties of the parts of a grammar (matches the empty text, matches any text, number of states), computed without compiling it. */
import type { Expression, Grammar } from "./expression.ts";
import { getOrInsert, itemAt } from "../../base/util/values.ts";

type Repetition = Extract<Expression, { kind: "repeat" }>;

/** Condition of a property of an expression other than a rule call: always true, always false, or determined by parts. */
type Condition = boolean | { readonly needs: "all" | "any"; readonly parts: readonly Expression[] };
type ConditionOf = (expression: Exclude<Expression, { kind: "rule" }>) => Condition;

/** Maximum number of states of a bounded repetition that is unrolled; larger ones are matched with a counter. */
const MAX_WRITTEN_OUT = 64;

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

/** Part of a rule with an unknown property. */
interface Waiting {
  /** Number of parts that must still be found true. */
  pending: number;
  /** Enclosing part, or the index of the rule. */
  readonly of: Waiting | number;
}

/**
 * Computes, for each rule, whether a property holds (least fixed point).
 *
 * Each part found true is propagated to the parts that depend on it, so every part is visited once, in any order of rule calls.
 *
 * @source Dowling and Gallier, "Linear-time algorithms for testing the satisfiability of propositional Horn formulae", 1984.
 */
function fixedPoint({ rules }: Grammar, conditionOf: ConditionOf): boolean[] {
  const known = rules.map(() => false);
  const callers = rules.map((): Waiting[] => []);
  /** Queue of parts to notify: each entry stands for one more part found true. */
  const told: Waiting[] = [];
  const left = rules.map((expression, index) => ({ expression, of: { pending: 1, of: index } as Waiting }));
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const { expression, of } = next;
    if (expression.kind === "rule") {
      itemAt(callers, expression.index).push(of);
      continue;
    }
    const condition = conditionOf(expression);
    if (condition === true) told.push(of);
    if (typeof condition === "boolean") continue;
    const { needs, parts } = condition;
    if (needs === "all" && parts.length === 0) told.push(of);
    const waiting: Waiting = { pending: needs === "all" ? parts.length : 1, of };
    for (const part of parts) left.push({ expression: part, of: waiting });
  }
  for (let waiting = told.pop(); waiting !== undefined; waiting = told.pop()) {
    if (--waiting.pending !== 0) continue;
    const { of } = waiting;
    if (typeof of !== "number") told.push(of);
    else {
      known[of] = true;
      for (const caller of itemAt(callers, of)) told.push(caller);
    }
  }
  return known;
}

/** Computes properties of a grammar's parts and caches them per part, because callers that traverse a grammar query every level. */
export class GrammarFacts {
  readonly #nullable: readonly boolean[];
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

  #holds(expression: Expression, conditionOf: ConditionOf, rules: readonly boolean[], kept: Map<Expression, boolean>): boolean {
    if (expression.kind === "rule") return itemAt(rules, expression.index);
    return getOrInsert(kept, expression, () => {
      const condition = conditionOf(expression);
      if (typeof condition === "boolean") return condition;
      const isTrue = (part: Expression) => this.#holds(part, conditionOf, rules, kept);
      return condition.needs === "all" ? condition.parts.every(isTrue) : condition.parts.some(isTrue);
    });
  }

  /** Whether a bounded repetition is unrolled into copies of its body instead of matched with a counter. */
  isWrittenOut({ body, min, max }: Repetition): boolean {
    const times = max ?? min;
    // A body that can match the empty text cannot be counted.
    return times <= 1 || times * this.statesOf(body) <= MAX_WRITTEN_OUT || this.isNullable(body);
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
