/** ROUGE-N and ROUGE-L. */
import { lcsLength } from "./lcs.ts";
import { overlap } from "./ngrams.ts";

/** Tokens of rouge-score: letters and digits of ASCII. */
const TOKEN = /[a-z0-9]+/gu;

/**
 * Computes ROUGE-N of a text and one reference: the F1 score of the n-grams that both have. Tokens are the runs of ASCII letters and digits
 * in lower case, without stemming; a text without them, such as Chinese, scores 0.
 *
 * @param text - Text to score.
 * @param reference - Reference text.
 * @param n - Number of tokens per n-gram.
 * @returns a value in [0, 1]; equal to the F1 score of `rouge_scorer.RougeScorer` of rouge-score 0.1.2 with its defaults.
 * @source C.-Y. Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", ACL 2004 workshop.
 */
export function rougeN(text: string, reference: string, n: number): number {
  const counts = overlap(tokensOf(text), tokensOf(reference), n);
  return f1(counts.common, counts.candidate, counts.reference);
}

/**
 * Computes ROUGE-L of a text and one reference: the F1 score of their longest common subsequence of tokens, with the tokens of
 * {@link rougeN}.
 *
 * @param text - Text to score.
 * @param reference - Reference text.
 * @returns a value in [0, 1]; equal to the F1 score `rougeL` of rouge-score 0.1.2 with its defaults.
 * @source C.-Y. Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", ACL 2004 workshop.
 */
export function rougeL(text: string, reference: string): number {
  const candidate = tokensOf(text);
  const referenceTokens = tokensOf(reference);
  return f1(lcsLength(candidate, referenceTokens), candidate.length, referenceTokens.length);
}

/** Returns the tokens of a text in lower case. */
function tokensOf(text: string): string[] {
  return text.toLowerCase().match(TOKEN) ?? [];
}

/** Returns the harmonic mean of precision and recall, from the numbers of common tokens and of all tokens of both texts. */
function f1(common: number, candidate: number, reference: number): number {
  return common === 0 ? 0 : (2 * common) / (candidate + reference);
}
