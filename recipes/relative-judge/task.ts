/**
 * Relative judge: the model writes a word of four letters backwards, but no reward knows that. It only learns how a judge orders its
 * attempts, by a quality that the training never computes itself.
 */
import { similarity } from "whetstone";

const LETTERS = "abcdefgh";
const WORD_LENGTH = 4;
/** Number of words; the last {@link HELD_OUT} of the scrambled order are held out. */
const WORDS = LETTERS.length ** WORD_LENGTH;
const HELD_OUT = 512;

/** Word to write backwards. */
export interface WordScenario {
  readonly id: string;
}

/** Returns training word `index`; every word occurs once before the first repeats. */
export function trainWord(seed: number, index: number): WordScenario {
  return wordAt(seed + (index % (WORDS - HELD_OUT)));
}

/** Returns held-out word `index`. */
export function heldOutWord(seed: number, index: number): WordScenario {
  return wordAt(seed + WORDS - HELD_OUT + (index % HELD_OUT));
}

/** Returns the word at a position of the scrambled order: 7919 is odd, so that no word repeats within one pass. */
function wordAt(position: number): WordScenario {
  const number = (position * 7919 + 1234) % WORDS;
  const letters = Array.from({ length: WORD_LENGTH }, (_, digit) => LETTERS[Math.floor(number / LETTERS.length ** digit) % LETTERS.length]);
  return { id: letters.join("") };
}

/** Returns the prompt of a word. */
export function promptOf({ id }: WordScenario): string {
  return `Reverse: ${id}`;
}

/** Computes the hidden quality of an attempt in [0, 1]: its similarity to the word backwards. */
export function quality(text: string, word: string): number {
  return similarity(text.trim(), [...word].reverse().join(""));
}

/** Max completion length: the word and the end token, with room for mistakes. */
export const MAX_COMPLETION_TOKENS = 12;
