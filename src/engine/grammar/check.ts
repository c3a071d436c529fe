/** Whether a grammar can be carried out, found without carrying it out. */
import { ArgumentError } from "../../errors.ts";
import type { Expression, Grammar } from "./expression.ts";

/** The most states a grammar may take; one is some hundred bytes. */
export const MAX_GRAMMAR_STATES = 200_000;

/** A bounded repetition that takes more states than this is counted instead of written out. */
const MAX_WRITTEN_OUT = 64;

/** What is known of each rule. */
export interface GrammarFacts {
  /** By rule: whether it matches the empty text. */
  readonly nullable: readonly boolean[];
  /** By rule: whether it matches any text at all. */
  readonly productive: readonly boolean[];
}

/** Whether an expression matches the empty text. */
export function isNullable(expression: Expression, { nullable }: Pick<GrammarFacts, "nullable">): boolean {
  switch (expression.kind) {
    case "text":
      return expression.text === "";
    case "set":
      return false;
    case "sequence":
      return expression.parts.every((part) => isNullable(part, { nullable }));
    case "choice":
      return expression.options.some((option) => isNullable(option, { nullable }));
    case "repeat":
      return expression.min === 0 || isNullable(expression.body, { nullable });
    case "rule":
      return nullable[expression.index]!;
  }
}

/** Whether an expression matches any text at all. */
export function isProductive(expression: Expression, { productive }: Pick<GrammarFacts, "productive">): boolean {
  switch (expression.kind) {
    case "text":
      return true;
    case "set":
      return expression.ranges.length > 0;
    case "sequence":
      return expression.parts.every((part) => isProductive(part, { productive }));
    case "choice":
      return expression.options.some((option) => isProductive(option, { productive }));
    case "repeat":
      if (expression.max !== null && expression.max < expression.min) return false;
      return expression.min === 0 || isProductive(expression.body, { productive });
    case "rule":
      return productive[expression.index]!;
  }
}

/** The least fixed point of a property of rules. */
function fixedPoint(grammar: Grammar, holds: (expression: Expression, known: readonly boolean[]) => boolean): boolean[] {
  const known = grammar.rules.map(() => false);
  for (let isChanging = true; isChanging;) {
    isChanging = false;
    for (const [index, rule] of grammar.rules.entries()) {
      if (known[index]! || !holds(rule, known)) continue;
      known[index] = true;
      isChanging = true;
    }
  }
  return known;
}

/** What is known of a grammar's rules. */
export function factsOf(grammar: Grammar): GrammarFacts {
  return {
    nullable: fixedPoint(grammar, (expression, nullable) => isNullable(expression, { nullable })),
    productive: fixedPoint(grammar, (expression, productive) => isProductive(expression, { productive })),
  };
}

/** Calls `visit` with each rule that may be the very first thing of an expression. */
function firstRules(expression: Expression, facts: GrammarFacts, visit: (index: number) => void): void {
  switch (expression.kind) {
    case "text":
    case "set":
      return;
    case "sequence":
      for (const part of expression.parts) {
        firstRules(part, facts, visit);
        if (!isNullable(part, facts)) return;
      }
      return;
    case "choice":
      for (const option of expression.options) firstRules(option, facts, visit);
      return;
    case "repeat":
      if (expression.max !== 0) firstRules(expression.body, facts, visit);
      return;
    case "rule":
      visit(expression.index);
  }
}

/** A rule that calls itself before anything is matched, or null. */
function leftRecursiveRule(grammar: Grammar, facts: GrammarFacts): number | null {
  const state = new Uint8Array(grammar.rules.length);
  for (let root = 0; root < grammar.rules.length; root++) {
    // Depth first without recursion: rules may call each other thousands deep.
    const path: { readonly index: number; readonly calls: number[] }[] = [];
    const enter = (index: number): void => {
      state[index] = 1;
      const calls: number[] = [];
      firstRules(grammar.rules[index]!, facts, (called) => calls.push(called));
      path.push({ index, calls });
    };
    if (state[root] === 0) enter(root);
    while (path.length > 0) {
      const top = path.at(-1)!;
      const called = top.calls.pop();
      if (called === undefined) {
        state[top.index] = 2;
        path.pop();
      } else if (state[called] === 1) return called;
      else if (state[called] === 0) enter(called);
    }
  }
  return null;
}

type Repetition = Extract<Expression, { kind: "repeat" }>;

/** Whether a bounded repetition is written out, body after body, or counted while it is matched. */
export function isWrittenOut(expression: Repetition, facts: GrammarFacts): boolean {
  return isShort(expression, statesOf(expression.body, facts), facts);
}

function isShort({ body, min, max }: Repetition, states: number, facts: GrammarFacts): boolean {
  const times = max ?? min;
  // What may match nothing cannot be counted.
  return times <= 1 || times * states <= MAX_WRITTEN_OUT || isNullable(body, facts);
}

/** An estimate of the states an expression takes, its rules not included. */
function statesOf(expression: Expression, facts: GrammarFacts): number {
  switch (expression.kind) {
    case "text":
      return Buffer.byteLength(expression.text);
    case "set":
      return 1 + expression.ranges.length;
    case "sequence":
      return expression.parts.reduce((sum, part) => sum + statesOf(part, facts), 0);
    case "choice":
      return expression.options.reduce((sum, option) => sum + statesOf(option, facts), 1);
    case "repeat": {
      const body = statesOf(expression.body, facts);
      return 1 + (isShort(expression, body, facts) ? body * Math.max(1, expression.max ?? expression.min + 1) : body);
    }
    case "rule":
      return 1;
  }
}

/**
 * Checks that a grammar can be carried out.
 *
 * @returns What was found out about its rules on the way.
 * @throws ArgumentError `E_ARGUMENT` for a grammar that no text matches, that is left-recursive, or that is too large.
 */
export function checkGrammar(grammar: Grammar, nameOf: (rule: number) => string = (rule) => `number ${rule}`): GrammarFacts {
  const facts = factsOf(grammar);
  if (!facts.productive[0]) throw new ArgumentError("No text matches the grammar: every way through it ends in something impossible");
  const recursive = leftRecursiveRule(grammar, facts);
  if (recursive !== null)
    throw new ArgumentError(
      `The rule ${nameOf(recursive)} is left-recursive: it begins with itself. Write it with the recursion at its end, or as a repetition`,
    );
  const states = grammar.rules.reduce((sum, rule) => sum + statesOf(rule, facts), 0);
  if (!(states <= MAX_GRAMMAR_STATES))
    throw new ArgumentError(`Expected a grammar of at most ${MAX_GRAMMAR_STATES} states, got ${states}; lower its repetition counts`);
  return facts;
}
