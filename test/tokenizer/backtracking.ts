/** Counts the steps of a backtracking matcher, which grow with the length of a text like the time of JavaScript's matcher. */
import { RegExpParser, type AST } from "@eslint-community/regexpp";

/** Returns whether the rest of the expression matches from a position on. */
type Continue = (at: number) => boolean;

const MAX_STEPS = 50_000_000;

/**
 * Returns the number of characters and assertions that are tried while all matches of an expression in `text` are searched for, as
 * `text.match(/source/g)` does. Supports characters, groups, greedy quantifiers and lookaheads.
 */
export function countSteps(source: string, text: string): number {
  let steps = 0;
  const step = (): void => {
    if (++steps > MAX_STEPS) throw new Error(`${source}: expected at most ${MAX_STEPS} steps, got more.`);
  };

  const choice = (alternatives: readonly AST.Alternative[], at: number, next: Continue): boolean =>
    alternatives.some(({ elements }) => sequence(elements, 0, at, next));

  const sequence = (elements: readonly AST.Element[], index: number, at: number, next: Continue): boolean => {
    const element = elements[index];
    return element === undefined ? next(at) : match(element, at, (end) => sequence(elements, index + 1, end, next));
  };

  const repeat = ({ element, min, max }: AST.Quantifier, times: number, at: number, next: Continue): boolean => {
    const again = (end: number): boolean =>
      (end > at || times < min) && repeat({ element, min, max } as AST.Quantifier, times + 1, end, next);
    return (times < max && match(element, at, again)) || (times >= min && next(at));
  };

  const match = (element: AST.Element, at: number, next: Continue): boolean => {
    switch (element.type) {
      case "Character":
        step();
        return text.codePointAt(at) === element.value && next(at + 1);
      case "Group":
        return choice(element.alternatives, at, next);
      case "Quantifier":
        return repeat(element, 0, at, next);
      case "Assertion": {
        if (element.kind !== "lookahead") throw new Error(`Expected a lookahead, got ${element.raw}.`);
        step();
        return choice(element.alternatives, at, () => true) !== element.negate && next(at);
      }
      default:
        throw new Error(`Expected a character, group, quantifier or lookahead, got ${element.raw}.`);
    }
  };

  const { alternatives } = new RegExpParser().parsePattern(source);
  for (let start = 0; start <= text.length;) {
    let end = start;
    const isMatch = choice(alternatives, start, (at) => {
      end = at;
      return true;
    });
    start = isMatch && end > start ? end : start + 1;
  }
  return steps;
}
