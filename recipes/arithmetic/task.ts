/**
 * Arithmetic: the sum of two integers from 0 to {@link LARGEST}, asked as "What is x + y?".
 *
 * The question is the same as in the arithmetic recipe of the tinker cookbook. The answer has its digits in the usual order, so the model
 * has to compute all carries before it writes the first digit.
 */
import { uniform } from "../shared/draws.ts";
import { splitByHash, type Split, SPLITS } from "../shared/splits.ts";

export const SYSTEM_PROMPT = "Add the numbers. Put your answer in `<answer>` tags.";

/** Max value of both numbers in examples and held-out problems. */
export const LARGEST = 100;

/** Addition problem. */
export interface ArithmeticScenario {
  readonly id: string;
  readonly x: number;
  readonly y: number;
}

/** Shares of the splits in sixteenths: seven for RL, seven for SFT examples, one for validation, one held out. */
const SHARES = [7, 7, 1, 1] as const;

/**
 * Returns problem `index` of a split, a pure function of the seed. A pair belongs to exactly one split, in either order of its numbers.
 *
 * @param largest - Max value of both numbers.
 */
export function arithmeticScenario(split: Split, seed: number, index: number, largest = LARGEST): ArithmeticScenario {
  for (let attempt = 0; ; attempt++) {
    const at = (draw: number) => Math.floor(uniform(BigInt(seed), SPLITS.indexOf(split), index, attempt, draw) * (largest + 1));
    const [x, y] = [at(0), at(1)];
    if (splitOf(x, y) === split) return { id: `${x}+${y}`, x, y };
  }
}

/** Returns the split of problem `x + y`. */
export function splitOf(x: number, y: number): Split {
  return splitByHash(`${Math.min(x, y)}+${Math.max(x, y)}`, SHARES);
}

/** Returns the prompt messages of a problem. */
export function arithmeticMessages({ x, y }: ArithmeticScenario): { role: "system" | "user"; content: string }[] {
  return [
    { role: "system", content: SYSTEM_PROMPT },
    { role: "user", content: `What is ${x} + ${y}?` },
  ];
}

/** Returns the correct completion. */
export function goldAnswer({ x, y }: ArithmeticScenario): string {
  return `<answer>${x + y}</answer>`;
}

/** Returns the key of problems that share a pass rate in a curriculum: the tens of both numbers in either order, and the carry of the units. */
export function difficulty({ x, y }: ArithmeticScenario): string {
  const tens = [Math.floor(x / 10), Math.floor(y / 10)].toSorted((a, b) => a - b);
  return `${tens.join("+")}${(x % 10) + (y % 10) > 9 ? " carry" : ""}`;
}

/** Returns 1 if the text between the tags is the sum, else 0. */
export function correct(text: string, { x, y }: ArithmeticScenario): number {
  return /<answer>(\d+)<\/answer>/.exec(text)?.[1] === String(x + y) ? 1 : 0;
}

/** Returns 1 if the text is a number in tags and nothing else, else 0. */
export function wellFormed(text: string): number {
  return /^<answer>\d+<\/answer>$/.test(text) ? 1 : 0;
}

/** Max completion length of the task: tags, three digits, end token. */
export const MAX_COMPLETION_TOKENS = 8;
