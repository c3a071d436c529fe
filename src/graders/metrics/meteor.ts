import { getOrInsert } from "../../base/util/values.ts";
import { porterStem } from "./porter.ts";
import { words } from "./text.ts";

/** Weight of the precision in the mean of precision and recall. */
const ALPHA = 0.9;
/** Exponent and factor of the penalty. */
const [BETA, GAMMA] = [3, 0.5];

/** Word at a position of a text. */
interface Placed {
  readonly index: number;
  readonly word: string;
}

/** Positions of a word of the text and of its counterpart in the reference. */
type Match = readonly [candidate: number, reference: number];

/**
 * Computes METEOR of a text and one reference. Words are matched if they are equal, then if they have the same stem (Porter). With the
 * number `m` of matches, precision `P = m / |text|`, recall `R = m / |reference|` and the number `c` of chunks, matches that are adjacent in
 * both texts, the value is `P·R / (0.9·P + 0.1·R) · (1 − 0.5 · (c/m)³)`.
 *
 * Synonyms are not matched, as their stage needs WordNet: a text with synonyms of the reference scores lower than with WordNet. Words are
 * separated by white space, and case is ignored.
 *
 * @param text - Text to score.
 * @param reference - Right text.
 * @returns a value in [0, 1]; equal to `nltk.translate.meteor_score.meteor_score` of nltk 3.9.1 with its defaults and an empty WordNet.
 * @source Banerjee, Lavie, "METEOR: An Automatic Metric for MT Evaluation with Improved Correlation with Human Judgments", ACL 2005 workshop.
 */
export function meteor(text: string, reference: string): number {
  const [candidate, right] = [placed(text), placed(reference)];
  const matches = aligned(candidate, right);
  if (matches.length === 0) return 0;
  const [precision, recall] = [matches.length / candidate.length, matches.length / right.length];
  const mean = (precision * recall) / (ALPHA * precision + (1 - ALPHA) * recall);
  return mean * (1 - GAMMA * (chunks(matches) / matches.length) ** BETA);
}

function placed(text: string): Placed[] {
  return words(text).map((word, index) => ({ index, word: word.toLowerCase() }));
}

/** Returns the matches of both stages, in the order of the text. */
function aligned(candidate: readonly Placed[], reference: readonly Placed[]): Match[] {
  const exact = matched(candidate, reference);
  const [left, right] = [unmatched(candidate, exact, 0), unmatched(reference, exact, 1)];
  return [...exact, ...matched(stems(left), stems(right))].toSorted(([a], [b]) => a - b);
}

/** Matches equal words: from the end of the text, each with the last free occurrence in the reference. */
function matched(candidate: readonly Placed[], reference: readonly Placed[]): Match[] {
  const free = new Map<string, number[]>();
  for (const { word, index } of reference) getOrInsert(free, word, () => []).push(index);
  return candidate.toReversed().flatMap(({ index, word }) => {
    const found = free.get(word)?.pop();
    return found === undefined ? [] : [[index, found] as const];
  });
}

function unmatched(list: readonly Placed[], matches: readonly Match[], side: 0 | 1): Placed[] {
  const taken = new Set(matches.map((match) => match[side]));
  return list.filter(({ index }) => !taken.has(index));
}

function stems(list: readonly Placed[]): Placed[] {
  return list.map(({ index, word }) => ({ index, word: porterStem(word) }));
}

/** Returns the number of chunks of sorted matches. */
function chunks(matches: readonly Match[]): number {
  return matches.filter(([candidate, reference], index) => {
    const before = matches[index - 1];
    return before === undefined || candidate !== before[0] + 1 || reference !== before[1] + 1;
  }).length;
}
