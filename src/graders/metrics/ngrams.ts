/** Counts of n-grams, the common part of BLEU, GLEU and ROUGE-N. */

/** Separator of the tokens of an n-gram; no tokenizer returns a token with it. */
const SEPARATOR = "\n";

/** Number of n-grams of two texts. */
export interface Overlap {
  /** N-grams of the first text. */
  readonly candidate: number;
  /** N-grams of the second text. */
  readonly reference: number;
  /** N-grams that both texts have; a repeated n-gram counts as often as in the text with fewer of it. */
  readonly common: number;
}

/**
 * Counts the n-grams of two texts.
 *
 * @param candidate - Tokens without line breaks.
 * @param reference - Tokens without line breaks.
 * @param n - Number of tokens per n-gram.
 */
export function overlap(candidate: readonly string[], reference: readonly string[], n: number): Overlap {
  const referenceCounts = countsOf(reference, n);
  let common = 0;
  for (const [ngram, count] of countsOf(candidate, n)) common += Math.min(count, referenceCounts.get(ngram) ?? 0);
  return { candidate: ngramCount(candidate, n), reference: ngramCount(reference, n), common };
}

/** Returns the number of n-grams of a text. */
function ngramCount(tokens: readonly string[], n: number): number {
  return Math.max(0, tokens.length - n + 1);
}

/** Counts the n-grams of a text by their tokens, joined by {@link SEPARATOR}. */
function countsOf(tokens: readonly string[], n: number): Map<string, number> {
  const counts = new Map<string, number>();
  for (let start = 0; start < ngramCount(tokens, n); start++) {
    const ngram = tokens.slice(start, start + n).join(SEPARATOR);
    counts.set(ngram, (counts.get(ngram) ?? 0) + 1);
  }
  return counts;
}
