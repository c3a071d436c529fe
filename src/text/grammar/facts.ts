/**
 * Properties of the expressions of a grammar, computed without compiling it: nullable (matches the empty text), productive (matches at
 * least one text), and the estimated number of automaton states.
 */
import type { Expression, Grammar } from "./expression.ts";
import { getOrInsert, itemAt } from "../../base/util/values.ts";

type Repetition = Extract<Expression, { kind: "repeat" }>;

/** Condition under which an expression has a property: always, never, or if all or any of its parts have the property. */
type Condition = boolean | { readonly needs: "all" | "any"; readonly parts: readonly Expression[] };
/** Returns the condition of an expression. Rule calls are excluded: a call has the property if the called rule has it. */
type ConditionOf = (expression: Exclude<Expression, { kind: "rule" }>) => Condition;

/** Maximum number of states of a repetition that is unrolled although it could be matched with a counter. */
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

/** Expression with parts, or rule with its expression as the only part. */
interface Waiting {
  /** Number of parts that must still be found to have the property. The expression or rule has the property once this is 0. */
  pending: number;
  /** Enclosing expression or rule; for a rule, its index. */
  readonly parent: Waiting | number;
}

/**
 * Computes, for each rule, whether a property holds (least fixed point).
 *
 * An expression that is found to have the property notifies its parent, and a rule notifies the parents of its calls. So each expression is
 * visited once, even if rules call each other.
 *
 * @source Dowling and Gallier, "Linear-time algorithms for testing the satisfiability of propositional Horn formulae", 1984.
 */
function fixedPoint({ rules }: Grammar, conditionOf: ConditionOf): boolean[] {
  const holds = rules.map(() => false);
  /** Parents of the calls of each rule. */
  const callers = rules.map((): Waiting[] => []);
  /** Parents to notify: one entry per part that has the property. */
  const notified: Waiting[] = [];
  const unvisited = rules.map((expression, index) => ({ expression, parent: { pending: 1, parent: index } as Waiting }));
  for (let next = unvisited.pop(); next !== undefined; next = unvisited.pop()) {
    const { expression, parent } = next;
    if (expression.kind === "rule") {
      itemAt(callers, expression.index).push(parent);
      continue;
    }
    const condition = conditionOf(expression);
    if (condition === false) continue;
    // An empty sequence has no part that could notify it.
    if (condition === true || (condition.needs === "all" && condition.parts.length === 0)) {
      notified.push(parent);
      continue;
    }
    const { needs, parts } = condition;
    const waiting: Waiting = { pending: needs === "all" ? parts.length : 1, parent };
    for (const part of parts) unvisited.push({ expression: part, parent: waiting });
  }
  for (let waiting = notified.pop(); waiting !== undefined; waiting = notified.pop()) {
    // Further parts of a choice make the number negative: the parent is notified only once.
    waiting.pending--;
    if (waiting.pending !== 0) continue;
    const { parent } = waiting;
    if (typeof parent !== "number") notified.push(parent);
    else {
      holds[parent] = true;
      for (const caller of itemAt(callers, parent)) notified.push(caller);
    }
  }
  return holds;
}

/** A property of the rules and expressions of a grammar. */
interface Property {
  readonly conditionOf: ConditionOf;
  /** Whether each rule has the property. */
  readonly ofRules: readonly boolean[];
  /** Whether expressions have the property, by expression. */
  readonly cache: Map<Expression, boolean>;
}

/** Computes a property of the rules of a grammar. */
function propertyOf(grammar: Grammar, conditionOf: ConditionOf): Property {
  return { conditionOf, ofRules: fixedPoint(grammar, conditionOf), cache: new Map() };
}

/** Whether an expression has a property, from the properties of the rules that it calls. */
function hasProperty(expression: Expression, property: Property): boolean {
  const { conditionOf, ofRules, cache } = property;
  if (expression.kind === "rule") return itemAt(ofRules, expression.index);
  if (expression.kind === "text" || expression.kind === "set") return conditionOf(expression) === true;
  return getOrInsert(cache, expression, () => {
    const condition = conditionOf(expression);
    if (typeof condition === "boolean") return condition;
    const isTrue = (part: Expression) => hasProperty(part, property);
    return condition.needs === "all" ? condition.parts.every(isTrue) : condition.parts.some(isTrue);
  });
}

/** Properties of a grammar's expressions, cached per expression: callers that traverse a grammar ask at every level. */
export class GrammarFacts {
  readonly #nullable: Property;
  readonly #productive: Property;
  readonly #states = new Map<Expression, number>();
  /** Estimated number of states of the whole grammar. */
  readonly states: number;

  constructor(grammar: Grammar) {
    this.#nullable = propertyOf(grammar, nullableWhere);
    this.#productive = propertyOf(grammar, productiveWhere);
    this.states = grammar.rules.reduce((sum, rule) => sum + this.statesOf(rule), 0);
  }

  /** Whether an expression matches the empty text. */
  isNullable(expression: Expression): boolean {
    return hasProperty(expression, this.#nullable);
  }

  /** Whether an expression matches at least one text. */
  isProductive(expression: Expression): boolean {
    return hasProperty(expression, this.#productive);
  }

  /**
   * Whether a repetition is unrolled into copies of its body, with a cycle if it has no maximum, instead of matched with a counter.
   *
   * Small repetitions are unrolled. So are, regardless of their size, repetitions with at most one copy, for which a counter saves no states,
   * and repetitions of a nullable body, because a counter requires that each iteration matches at least one byte.
   */
  isUnrolled({ body, min, max }: Repetition): boolean {
    const copies = max ?? min;
    return copies <= 1 || copies * this.statesOf(body) <= MAX_UNROLLED_STATES || this.isNullable(body);
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

  /** Estimates the number of states of an expression with parts, which is not cached yet. */
  #statesOfParts(expression: Extract<Expression, { kind: "sequence" | "choice" | "repeat" }>): number {
    switch (expression.kind) {
      case "sequence":
        return Math.max(
          1,
          expression.parts.reduce((sum, part) => sum + this.statesOf(part), 0),
        );
      case "choice":
        // One more state, which branches to the options.
        return expression.options.reduce((sum, option) => sum + this.statesOf(option), 1);
      case "repeat": {
        const body = this.statesOf(expression.body);
        // Without a maximum, one more copy of the body forms the cycle.
        const copies = this.isUnrolled(expression) ? Math.max(1, expression.max ?? expression.min + 1) : 1;
        // One more state, which branches to the next iteration or the end.
        return 1 + body * copies;
      }
    }
  }
}
