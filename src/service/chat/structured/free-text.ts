/** Text in which certain strings do not occur. */
import { complement } from "../../../engine/grammar/code-points.ts";
import { EMPTY, choice, sequence, set, text, type Expression, type GrammarBuilder } from "../../../engine/grammar/expression.ts";

/**
 * Any text without one of `strings` in it; any text at all where there are none.
 *
 * Each state is what of a string was read last, as in the search for several strings at once.
 *
 * @param strings - None empty.
 * @source Aho and Corasick, "Efficient string matching: an aid to bibliographic search", 1975.
 */
export function textWithout(strings: readonly string[], builder: GrammarBuilder): Expression {
  const wanted = strings.map((each) => [...each]);
  const prefixes = new Set([""]);
  for (const points of wanted) for (let length = 1; length < points.length; length++) prefixes.add(points.slice(0, length).join(""));
  const alphabet = [...new Set(wanted.flat())];
  const others = set(...complement(alphabet.map((point) => [point.codePointAt(0)!, point.codePointAt(0)!])));
  const states = new Map([...prefixes].map((prefix) => [prefix, builder.declare()]));
  /** The longest beginning of a string that `read` ends with; null where it ends with a whole string. */
  const after = (read: readonly string[]): string | null => {
    if (strings.some((each) => read.join("").endsWith(each))) return null;
    for (let start = 0; ; start++) {
      const rest = read.slice(start).join("");
      if (prefixes.has(rest)) return rest;
    }
  };
  for (const [prefix, { define }] of states) {
    const steps = alphabet.flatMap((point) => {
      const next = after([...prefix, point]);
      return next === null ? [] : [sequence(text(point), states.get(next)!.rule)];
    });
    define(choice(EMPTY, ...steps, sequence(others, states.get("")!.rule)));
  }
  return states.get("")!.rule;
}
