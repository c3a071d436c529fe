/**
 * Arithmetic: "What is x + y?" for two whole numbers from 0 to {@link LARGEST}.
 *
 * The question is that of the arithmetic recipe of the tinker cookbook. The digits of the answer come in the usual order, so the model has to
 * know of every carry before it writes the first of them.
 */
import { uniform } from "../shared/draws.ts";
import { splitByHash, type Split, SPLITS } from "../shared/splits.ts";

export const SYSTEM_PROMPT = "Add the numbers. Put your answer in `<answer>` tags.";

/** Both numbers are at most this. */
export const LARGEST = 100;

/** One problem. */
export interface ArithmeticScenario {
  readonly id: string;
  readonly x: number;
  readonly y: number;
}

/** Of sixteen pairs: seven to practise on, seven as examples, one to validate with, one held out. */
const SHARES = [7, 7, 1, 1] as const;

/** Problem `index` of a split, a pure function of the seed. A pair belongs to exactly one split, in either order of its numbers. */
export function arithmeticScenario(split: Split, seed: number, index: number): ArithmeticScenario {
  for (let attempt = 0; ; attempt++) {
    const at = (draw: number) => Math.floor(uniform(BigInt(seed), SPLITS.indexOf(split), index, attempt, draw) * (LARGEST + 1));
    const [x, y] = [at(0), at(1)];
    if (splitOf(x, y) === split) return { id: `${x}+${y}`, x, y };
  }
}

/** Where the problem `x + y` belongs. */
export function splitOf(x: number, y: number): Split {
  return splitByHash(`${Math.min(x, y)}+${Math.max(x, y)}`, SHARES);
}

/** The conversation that asks a problem. */
export function arithmeticMessages({ x, y }: ArithmeticScenario): { role: "system" | "user"; content: string }[] {
  return [
    { role: "system", content: SYSTEM_PROMPT },
    { role: "user", content: `What is ${x} + ${y}?` },
  ];
}

/** What a perfect model writes. */
export function goldAnswer({ x, y }: ArithmeticScenario): string {
  return `<answer>${x + y}</answer>`;
}

/** 1 when the text between the tags is the sum. */
export function correct(text: string, { x, y }: ArithmeticScenario): number {
  return /<answer>(\d+)<\/answer>/.exec(text)?.[1] === String(x + y) ? 1 : 0;
}

/** 1 when the text is a number in tags and nothing else. */
export function wellFormed(text: string): number {
  return /^<answer>\d+<\/answer>$/.test(text) ? 1 : 0;
}

/** Longest output that the task needs: tags, three digits, end. */
export const MAX_COMPLETION_TOKENS = 8;
