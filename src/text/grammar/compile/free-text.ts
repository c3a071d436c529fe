/** Grammar of text that does not contain certain strings, such as the text before the next tag of a structural tag. */
import { MAX_GRAMMAR_STATES } from "../check.ts";
import { complement } from "../code-points.ts";
import { EMPTY, choiceOf, sequence, text, type Expression, type GrammarBuilder } from "../expression.ts";
import { ArgumentError } from "../../../base/errors.ts";
import { codePointAt, getOrInsert } from "../../../base/util/values.ts";

/** Node of the trie of the strings: a prefix of at least one string. */
interface Prefix {
  /** Prefixes that are longer by one character, by this character. */
  readonly longer: Map<string, Prefix>;
  /** Whether the prefix is a whole string. */
  isWhole: boolean;
}

/** State of the automaton: the longest suffix of the text so far that is a prefix of a string. */
interface State {
  readonly prefix: Prefix;
  /**
   * State of the longest shorter suffix that is also a prefix of a string; null for the first state. For a character without a step of its
   * own, a state has the step of its fallback.
   */
  readonly fallback: State | null;
  /** Rule of the rest of the text in this state. */
  readonly declared: ReturnType<GrammarBuilder["declare"]>;
  /** Next state by character; null if the character completes a string. Characters that are not listed lead to the first state. */
  readonly steps: Map<string, State | null>;
}

/** Returns the root of the trie of strings. */
function prefixesOf(strings: readonly string[]): Prefix {
  const root: Prefix = { longer: new Map(), isWhole: false };
  for (const string of strings) {
    let prefix = root;
    for (const character of string) prefix = getOrInsert(prefix.longer, character, () => ({ longer: new Map(), isWhole: false }));
    prefix.isWhole = true;
  }
  return root;
}

/**
 * Returns the expression of all texts that contain none of `strings`; of any text if `strings` is empty.
 *
 * The states are an Aho–Corasick automaton, which searches for several strings at once.
 *
 * @param strings - Non-empty strings.
 * @param builder - Builder that receives the rules.
 * @throws ArgumentError `E_ARGUMENT` for strings that overlap in so many ways that the grammar would be too large.
 * @source Aho and Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
 */
export function textWithout(strings: readonly string[], builder: GrammarBuilder): Expression {
  const stateOf = (prefix: Prefix, fallback: State | null): State => ({ prefix, fallback, declared: builder.declare(), steps: new Map() });
  /** Lower bound of the number of grammar states. */
  let size = strings.reduce((sum, string) => sum + string.length, 0);
  const checkSize = (): void => {
    if (size <= MAX_GRAMMAR_STATES) return;
    throw new ArgumentError(
      `Expected a grammar of at most ${MAX_GRAMMAR_STATES} states, got more for a text without certain strings; shorten them`,
    );
  };
  checkSize();
  const first = stateOf(prefixesOf(strings), null);
  // Grows during the loop, in order of prefix length, so that a fallback is complete before it is used.
  const states = [first];
  for (const { prefix, fallback, steps } of states) {
    for (const [character, next] of fallback?.steps ?? []) steps.set(character, next);
    for (const [character, longer] of prefix.longer) {
      const fallbackStep = fallback?.steps.get(character);
      const completesString = longer.isWhole || fallbackStep === null;
      const next = completesString ? null : stateOf(longer, fallbackStep ?? first);
      steps.set(character, next);
      if (next !== null) states.push(next);
    }
    size += steps.size;
    checkSize();
  }
  for (const { steps, declared } of states) {
    const listed = [...steps].flatMap(([character, next]) => (next === null ? [] : [sequence(text(character), next.declared.rule)]));
    const points = Array.from(steps.keys(), (character) => codePointAt(character, 0));
    const unlisted = complement(points.map((point) => [point, point]));
    declared.define(choiceOf([EMPTY, ...listed, sequence({ kind: "set", ranges: unlisted }, first.declared.rule)]));
  }
  return first.declared.rule;
}
