/** BLEU and GLEU. */
import { overlap } from "./ngrams.ts";
import { words } from "./text.ts";

/** Orders `n` of the n-grams of BLEU and GLEU. */
const ORDERS = [1, 2, 3, 4];
/** Precision in place of 0, which has no finite logarithm: the smallest normal float64, as in nltk. */
const MIN_PRECISION = 2 ** -1022;

/**
 * Computes BLEU of a text and one reference: `BP · exp(¼ · Σ log pₙ)` for n from 1 to 4, with the clipped precision `pₙ` of the n-grams and
 * the brevity penalty `BP = min(1, exp(1 − r/c))` of the lengths `c` of the text and `r` of the reference. Tokens are separated by white
 * space; case and punctuation count.
 *
 * Nothing is smoothed: without a common word the value is 0, and without a common 4-gram it is below 1e-70.
 *
 * @param text - Text to score.
 * @param reference - Reference text.
 * @returns a value in [0, 1]; equal to `nltk.translate.bleu_score.sentence_bleu` of nltk 3.9.1 with its defaults.
 * @source Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002.
 */
export function bleu(text: string, reference: string): number {
  const candidate = words(text);
  const referenceWords = words(reference);
  const counts = ORDERS.map((n) => overlap(candidate, referenceWords, n));
  if (counts[0]?.common === 0) return 0;
  const logPrecisions = counts.map(({ common, candidate: total }) => Math.log(common === 0 ? MIN_PRECISION : common / total));
  const brevityPenalty = Math.min(1, Math.exp(1 - referenceWords.length / candidate.length));
  return brevityPenalty * Math.exp(logPrecisions.reduce((sum, log) => sum + log, 0) / ORDERS.length);
}

/**
 * Computes GLEU of a text and one reference: the n-grams of 1 to 4 tokens that both have, divided by the number of n-grams of the text with
 * more of them. Tokens are separated by white space; case and punctuation count.
 *
 * @param text - Text to score.
 * @param reference - Reference text.
 * @returns a value in [0, 1]; equal to `nltk.translate.gleu_score.sentence_gleu` of nltk 3.9.1 with its defaults.
 * @source Wu et al., "Google's Neural Machine Translation System", arXiv:1609.08144, section 6.
 */
export function gleu(text: string, reference: string): number {
  const candidate = words(text);
  const referenceWords = words(reference);
  const counts = ORDERS.map((n) => overlap(candidate, referenceWords, n));
  const sum = (key: "common" | "candidate" | "reference") => counts.reduce((total, count) => total + count[key], 0);
  const totalNgrams = Math.max(sum("candidate"), sum("reference"));
  return totalNgrams === 0 ? 0 : sum("common") / totalNgrams;
}
