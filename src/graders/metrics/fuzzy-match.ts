/** Fuzzy match of texts, as rapidfuzz computes it. */
import { lcsLength, windowLcs } from "./lcs.ts";
import { byCodePoints, words } from "./text.ts";

/** Factor of the ratios of sorted words. */
const WORDS_SCALE = 0.95;
/** Min ratio of the lengths at which the shorter text is compared with parts of the longer one. */
const PARTIAL_MIN_RATIO = 1.5;
/** Factor of the ratios of parts. */
const PARTIAL_SCALE = 0.9;
/** Min ratio of the lengths at which {@link LONG_SCALE} replaces {@link PARTIAL_SCALE}. */
const LONG_MIN_RATIO = 8;
/** Factor of the ratios of parts of a long text. */
const LONG_SCALE = 0.6;

/**
 * Computes the fuzzy match of two texts: rapidfuzz's `WRatio`, divided by 100. Case and every character that is neither letter nor number
 * are ignored. The ratio of two texts is `2 · LCS / (|a| + |b|)`. The value depends on the quotient `q` of the larger and the smaller
 * length:
 *
 * - `q < 1.5`: the maximum of the ratio of the texts and `0.95 · W`, where `W` is the maximum of the ratios of their sorted words, with and
 *   without repeated and common words;
 * - `1.5 ≤ q < 8`: the maximum of the ratio of the texts, `0.9 · P` and `0.9 · 0.95 · PW`. `P` is the ratio of the shorter text and the
 *   most similar part of the longer text; `PW` is the same for their sorted words, and 1 if the texts have a word in common;
 * - `q ≥ 8`: the same with 0.6 in place of 0.9.
 *
 * @param text - Text to score.
 * @param reference - Reference text.
 * @returns a value in [0, 1]; 0 if a text has neither letters nor numbers. Equal to `fuzz.WRatio(text, reference,
 *   processor=utils.default_process) / 100` of rapidfuzz 3.10.1, for characters of its Unicode version.
 * @source https://rapidfuzz.github.io/RapidFuzz/Usage/fuzz.html#wratio
 */
export function fuzzyMatch(text: string, reference: string): number {
  const a = codePointsOf(text);
  const b = codePointsOf(reference);
  if (a.length === 0 || b.length === 0) return 0;
  const fullRatio = ratio(a, b);
  const lengthRatio = Math.max(a.length, b.length) / Math.min(a.length, b.length);
  const wordsA = words(a.join(""));
  const wordsB = words(b.join(""));
  if (lengthRatio < PARTIAL_MIN_RATIO) return Math.max(fullRatio, WORDS_SCALE * wordsRatio(wordsA, wordsB));
  const scale = lengthRatio < LONG_MIN_RATIO ? PARTIAL_SCALE : LONG_SCALE;
  return Math.max(fullRatio, scale * partialRatio(a, b), scale * WORDS_SCALE * partialWordsRatio(wordsA, wordsB));
}

/**
 * Returns the code points of a text, each in lower case by itself, with a space in place of every one that is neither letter nor number.
 */
function codePointsOf(text: string): string[] {
  const lettersAndNumbers = text.replaceAll(/[^\p{L}\p{N}]/gu, " ").trim();
  // The lower case of a whole text depends on neighbors, and `İ` has a lower case of two code points.
  return Array.from(lettersAndNumbers, (point) => String.fromCodePoint(point.toLowerCase().codePointAt(0)!));
}

/** Returns `2 · LCS / (|a| + |b|)`; 1 for two empty texts. */
function ratio(a: readonly string[], b: readonly string[]): number {
  return a.length + b.length === 0 ? 1 : (2 * lcsLength(a, b)) / (a.length + b.length);
}

/** Returns the highest ratio of the shorter text and a part of the longer one: a range of its length, or a shorter start or end. */
function partialRatio(a: readonly string[], b: readonly string[]): number {
  const [shorter, longer] = a.length <= b.length ? [a, b] : [b, a];
  // Of two texts of the same length, parts of either one are compared.
  return Math.max(bestPart(shorter, longer), a.length === b.length ? bestPart(longer, shorter) : 0);
}

/** Returns the highest ratio of a text and a part of the longer text. */
function bestPart(shorter: readonly string[], longer: readonly string[]): number {
  if (shorter.length === 0) return longer.length === 0 ? 1 : 0;
  let best = 0;
  for (const { length, common } of windowLcs(shorter, longer)) best = Math.max(best, (2 * common) / (shorter.length + length));
  return best;
}

/** Words of two texts by the texts that have them, each once. */
interface SplitWords {
  readonly common: readonly string[];
  readonly onlyA: readonly string[];
  readonly onlyB: readonly string[];
}

/** Splits the words of two texts, without repetitions. */
function splitWords(a: readonly string[], b: readonly string[]): SplitWords {
  const setA = new Set(a);
  const setB = new Set(b);
  return {
    common: [...setA].filter((word) => setB.has(word)),
    onlyA: [...setA].filter((word) => !setB.has(word)),
    onlyB: [...setB].filter((word) => !setA.has(word)),
  };
}

/** Returns the code points of the sorted words, joined by spaces. */
function sortedCodePoints(list: readonly string[]): string[] {
  return Array.from(list.toSorted(byCodePoints).join(" "));
}

/** Returns the higher ratio of the sorted words, and of the sets of words. */
function wordsRatio(a: readonly string[], b: readonly string[]): number {
  return Math.max(ratio(sortedCodePoints(a), sortedCodePoints(b)), setRatio(splitWords(a, b)));
}

/**
 * Returns the highest ratio between three texts: the common words, these with the other words of `a`, and these with the other ones of `b`.
 */
function setRatio({ common, onlyA, onlyB }: SplitWords): number {
  if (common.length > 0 && (onlyA.length === 0 || onlyB.length === 0)) return 1;
  const [onlyAPoints, onlyBPoints] = [sortedCodePoints(onlyA), sortedCodePoints(onlyB)];
  const commonLength = sortedCodePoints(common).length;
  const prefixLength = commonLength === 0 ? 0 : commonLength + " ".length;
  const [lengthA, lengthB] = [prefixLength + onlyAPoints.length, prefixLength + onlyBPoints.length];
  const fullRatio = (2 * (prefixLength + lcsLength(onlyAPoints, onlyBPoints))) / (lengthA + lengthB);
  if (commonLength === 0) return fullRatio;
  return Math.max(fullRatio, (2 * commonLength) / (commonLength + lengthA), (2 * commonLength) / (commonLength + lengthB));
}

/** Returns 1 if the texts have a common word, else the higher partial ratio of the sorted words, with and without repeated ones. */
function partialWordsRatio(a: readonly string[], b: readonly string[]): number {
  const { common, onlyA, onlyB } = splitWords(a, b);
  if (common.length > 0) return 1;
  const whole = partialRatio(sortedCodePoints(a), sortedCodePoints(b));
  const isRepeated = onlyA.length < a.length || onlyB.length < b.length;
  return isRepeated ? Math.max(whole, partialRatio(sortedCodePoints(onlyA), sortedCodePoints(onlyB))) : whole;
}
