/**
 * Reverse-text: the model gets a text and must write it backwards inside tags.
 *
 * Instruction, tags and reward are the same as in the `reverse-text` environment of prime-rl and verifiers. The texts are random strings of
 * 5 to 10 letters, which a model of 1.7 M parameters can learn.
 */
import { similarity } from "whetstone/environment";
import { uniform } from "../shared/draws.ts";

export const SYSTEM_PROMPT = "Reverse the text character-by-character. Put your answer in `<reversed_text>` tags.";

/** Text to reverse, with the correct answer. */
export interface ReverseScenario {
  readonly prompt: string;
  readonly answer: string;
}

/** Disjoint streams of problems; held-out problems are never trained on. */
export type Split = "train" | "sft" | "validation" | "held-out";

const SPLITS: readonly Split[] = ["train", "sft", "validation", "held-out"];
const SHORTEST = 5;
const LONGEST = 10;

/**
 * Returns problem `index` of a split, a pure function of the seed. A string belongs to exactly one split for all seeds: the split is a hash
 * of its letters, and a string of another split is drawn again.
 */
export function reverseScenario(split: Split, seed: number, index: number): ReverseScenario {
  for (let attempt = 0; ; attempt++) {
    const at = (draw: number) => uniform(BigInt(seed), SPLITS.indexOf(split), index, attempt, draw);
    const length = SHORTEST + Math.floor(at(0) * (LONGEST - SHORTEST + 1));
    const prompt = Array.from({ length }, (_, i) => String.fromCharCode(97 + Math.floor(at(i + 1) * 26))).join("");
    if (splitOf(prompt) === split) return { prompt, answer: Array.from(prompt).toReversed().join("") };
  }
}

/** Returns the split of a string: 13 of 16 strings are for RL, one for each other split. */
export function splitOf(prompt: string): Split {
  let hash = 2166136261;
  for (const letter of prompt) hash = Math.imul(hash ^ letter.charCodeAt(0), 16777619) >>> 0;
  return SPLITS[(hash >>> 12) % 16] ?? "train";
}

/** Returns the prompt messages of a problem. */
export function reverseMessages(scenario: ReverseScenario): { role: "system" | "user"; content: string }[] {
  return [
    { role: "system", content: SYSTEM_PROMPT },
    { role: "user", content: scenario.prompt },
  ];
}

/** Returns the correct completion. */
export function goldAnswer(scenario: ReverseScenario): string {
  return `<reversed_text>${scenario.answer}</reversed_text>`;
}

/** Returns the trimmed text between the last pair of tags; empty without tags. */
export function extractAnswer(text: string): string {
  return (/<reversed_text>(?!.*<reversed_text>)(.*?)<\/reversed_text>/s.exec(text)?.[1] ?? "").trim();
}

/** Computes `SequenceMatcher.ratio()` of the tagged text and the answer, in [0, 1]; 0 without tags. */
export function reverseReward(text: string, scenario: ReverseScenario): number {
  const written = extractAnswer(text);
  return written === "" ? 0 : similarity(written, scenario.answer);
}

/** Max completion length of the task: tags, ten letters, end token. */
export const MAX_COMPLETION_TOKENS = 16;
