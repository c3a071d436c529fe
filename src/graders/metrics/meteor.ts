/** METEOR without synonyms. */
import { getOrInsert } from "../../base/util/values.ts";
import { porterStem } from "./porter.ts";
import { words } from "./text.ts";

/** Weight of the precision in the mean of precision and recall. */
const ALPHA = 0.9;
/** Exponent of the penalty. */
const BETA = 3;
/** Factor of the penalty. */
const GAMMA = 0.5;

/** Word with its position in a text. */
interface PlacedWord {
  readonly index: number;
  readonly word: string;
}

/** Positions of a word of the text and of its counterpart in the reference. */
type Match = readonly [candidate: number, reference: number];

/**
 * Computes METEOR of a text and one reference. Words are matched if they are equal, then if they have the same stem (Porter). With the
 * number `m` of matches, precision `P = m / |text|`, recall `R = m / |reference|` and the number `c` of chunks, matches that are adjacent
 * in both texts, the value is `P·R / (0.9·P + 0.1·R) · (1 − 0.5 · (c/m)³)`.
 *
 * Synonyms are not matched, as their stage needs WordNet: a text with synonyms of the reference scores lower than with WordNet. Words are
 * separated by white space, and case is ignored.
 *
 * @param text - Text to score.
 * @param reference - Reference text.
 * @returns a value in [0, 1]; equal to `nltk.translate.meteor_score.meteor_score` of nltk 3.9.1 with its defaults and an empty WordNet.
 * @source Banerjee, Lavie, "METEOR: An Automatic Metric for MT Evaluation with Improved Correlation with Human Judgments", ACL 2005
 *   workshop.
 */
export function meteor(text: string, reference: string): number {
  const candidate = placedWords(text);
  const referenceWords = placedWords(reference);
  const matches = align(candidate, referenceWords);
  if (matches.length === 0) return 0;
  const precision = matches.length / candidate.length;
  const recall = matches.length / referenceWords.length;
  const mean = (precision * recall) / (ALPHA * precision + (1 - ALPHA) * recall);
  return mean * (1 - GAMMA * (countChunks(matches) / matches.length) ** BETA);
}

/** Returns the words of a text in lower case, with their positions. */
function placedWords(text: string): PlacedWord[] {
  return words(text).map((word, index) => ({ index, word: word.toLowerCase() }));
}

/** Returns the matches of both stages, in the order of the text. */
function align(candidate: readonly PlacedWord[], reference: readonly PlacedWord[]): Match[] {
  const exact = matchEqual(candidate, reference);
  const candidateRest = unmatched(candidate, exact, 0);
  const referenceRest = unmatched(reference, exact, 1);
  return [...exact, ...matchEqual(stems(candidateRest), stems(referenceRest))].toSorted(([a], [b]) => a - b);
}

/** Matches equal words: from the end of the text, each with the last free occurrence in the reference. */
function matchEqual(candidate: readonly PlacedWord[], reference: readonly PlacedWord[]): Match[] {
  const freePositions = new Map<string, number[]>();
  for (const { word, index } of reference) getOrInsert(freePositions, word, () => []).push(index);
  return candidate.toReversed().flatMap(({ index, word }) => {
    const counterpart = freePositions.get(word)?.pop();
    return counterpart === undefined ? [] : [[index, counterpart] as const];
  });
}

/** Returns the words of one side, 0 for the text and 1 for the reference, that no match has. */
function unmatched(list: readonly PlacedWord[], matches: readonly Match[], side: 0 | 1): PlacedWord[] {
  const matchedPositions = new Set(matches.map((match) => match[side]));
  return list.filter(({ index }) => !matchedPositions.has(index));
}

/** Replaces words by their stems. */
function stems(list: readonly PlacedWord[]): PlacedWord[] {
  return list.map(({ index, word }) => ({ index, word: porterStem(word) }));
}

/** Counts the chunks of sorted matches: runs of matches that are adjacent in both texts. */
function countChunks(matches: readonly Match[]): number {
  return matches.filter(([candidate, reference], index) => {
    const previous = matches[index - 1];
    return previous === undefined || candidate !== previous[0] + 1 || reference !== previous[1] + 1;
  }).length;
}
