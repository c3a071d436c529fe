/** Validation of grammars before `decode/automaton.ts` compiles them. */
import { ArgumentError } from "../../base/errors.ts";
import type { Expression, Grammar } from "./expression.ts";
import { GrammarFacts } from "./facts.ts";
import { first, itemAt } from "../../base/util/values.ts";

/** Maximum number of states of a grammar; a state takes some hundred bytes. */
export const MAX_GRAMMAR_STATES = 200_000;

/** Maximum nesting depth of the parts of a rule, because parts are visited, and written as JSON, by recursion. */
const MAX_DEPTH = 1000;

/** Maximum count of a repetition; larger counts are not exact. */
const MAX_TIMES = 2 ** 31;

/**
 * Checks that a grammar can be compiled.
 *
 * @param nameOf - Returns the name of a rule for error messages. @default its index
 * @returns Properties of the grammar's parts.
 * @throws ArgumentError `E_ARGUMENT` for a grammar that no text matches, that is left-recursive, too large or nested too deeply, or that
 *   contains an unpaired surrogate.
 */
export function checkGrammar(grammar: Grammar, nameOf: (rule: number) => string = (rule) => `number ${rule}`): GrammarFacts {
  checkParts(grammar);
  const facts = new GrammarFacts(grammar);
  if (!facts.isProductive(first(grammar.rules)))
    throw new ArgumentError("No text matches the grammar: every way through it ends in something impossible");
  const recursive = leftRecursiveRule(grammar, facts);
  if (recursive !== null)
    throw new ArgumentError(
      `The rule ${nameOf(recursive)} is left-recursive: it begins with itself. Write it with the recursion at its end, or as a repetition`,
    );
  const { states } = facts;
  // Also refuses NaN, the result of counts that are not numbers.
  if (!(states <= MAX_GRAMMAR_STATES))
    throw new ArgumentError(`Expected a grammar of at most ${MAX_GRAMMAR_STATES} states, got ${states}; lower its repetition counts`);
  return facts;
}

/** Checks size, nesting and texts. Runs first and without recursion, so that later checks have a bounded amount of work. */
function checkParts(grammar: Grammar): void {
  /** Lower bound of the number of states of the parts visited so far. */
  let leaves = 0;
  const unvisited = grammar.rules.map((expression) => ({ expression, depth: 1 }));
  for (let visited = unvisited.pop(); visited !== undefined; visited = unvisited.pop()) {
    const { expression, depth } = visited;
    if (depth > MAX_DEPTH)
      throw new ArgumentError(
        `Expected the parts of a grammar to be nested at most ${MAX_DEPTH} deep, got more; write inner ones as rules or definitions`,
      );
    const addPart = (part: Expression): void => void unvisited.push({ expression: part, depth: depth + 1 });
    switch (expression.kind) {
      case "text":
        if (!expression.text.isWellFormed())
          throw new ArgumentError("Expected texts of whole characters, got half of a surrogate pair, which no text holds");
        leaves += Math.max(1, expression.text.length);
        break;
      case "set":
        leaves += 1 + expression.ranges.length;
        break;
      case "rule":
        leaves++;
        break;
      case "sequence":
        leaves += expression.parts.length === 0 ? 1 : 0;
        for (const part of expression.parts) addPart(part);
        break;
      case "choice":
        leaves++;
        for (const option of expression.options) addPart(option);
        break;
      case "repeat":
        if (expression.min > MAX_TIMES || (expression.max ?? 0) > MAX_TIMES)
          throw new ArgumentError(
            `Expected repetition counts of at most ${MAX_TIMES}, got ${Math.max(expression.min, expression.max ?? 0)}; leave out the upper one for no bound`,
          );
        addPart(expression.body);
        break;
    }
    // Each leaf takes at least one state.
    if (leaves > MAX_GRAMMAR_STATES)
      throw new ArgumentError(`Expected a grammar of at most ${MAX_GRAMMAR_STATES} states, got more; shorten its texts and lists`);
  }
}

/** Calls `visit` with each rule that an expression can call before it has matched any text. */
function visitFirstCalls(expression: Expression, facts: GrammarFacts, visit: (index: number) => void): void {
  switch (expression.kind) {
    case "text":
    case "set":
      return;
    case "sequence":
      for (const part of expression.parts) {
        visitFirstCalls(part, facts, visit);
        if (!facts.isNullable(part)) return;
      }
      return;
    case "choice":
      for (const option of expression.options) visitFirstCalls(option, facts, visit);
      return;
    case "repeat":
      if (expression.max !== 0) visitFirstCalls(expression.body, facts, visit);
      return;
    case "rule":
      visit(expression.index);
  }
}

/** Returns a left-recursive rule (a rule that calls itself before any text is matched), or null. */
function leftRecursiveRule(grammar: Grammar, facts: GrammarFacts): number | null {
  const [UNVISITED, ON_PATH, FINISHED] = [0, 1, 2];
  /** Progress of each rule; a finished one is not left-recursive. */
  const progress = new Uint8Array(grammar.rules.length);
  for (let root = 0; root < grammar.rules.length; root++) {
    // Depth-first search without recursion, because calls can be nested thousands deep.
    const path: { readonly index: number; readonly calls: number[] }[] = [];
    const enter = (index: number): void => {
      progress[index] = ON_PATH;
      const calls: number[] = [];
      visitFirstCalls(itemAt(grammar.rules, index), facts, (called) => calls.push(called));
      path.push({ index, calls });
    };
    if (progress[root] === UNVISITED) enter(root);
    for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
      const called = top.calls.pop();
      if (called === undefined) {
        progress[top.index] = FINISHED;
        path.pop();
      } else if (progress[called] === ON_PATH) return called;
      else if (progress[called] === UNVISITED) enter(called);
    }
  }
  return null;
}
