/** Text metrics of `text_similarity` graders by name. */
import type { TextMetric } from "../../base/schema/index.ts";
import { GraderError } from "../errors.ts";
import { bleu, gleu } from "./bleu.ts";
import { fuzzyMatch } from "./fuzzy-match.ts";
import { meteor } from "./meteor.ts";
import { rougeL, rougeN } from "./rouge.ts";

/** Metrics by name. */
const METRICS: Readonly<Record<TextMetric, (text: string, reference: string) => number>> = {
  fuzzy_match: fuzzyMatch,
  bleu,
  gleu,
  meteor,
  rouge_1: (text, reference) => rougeN(text, reference, 1),
  rouge_2: (text, reference) => rougeN(text, reference, 2),
  rouge_3: (text, reference) => rougeN(text, reference, 3),
  rouge_4: (text, reference) => rougeN(text, reference, 4),
  rouge_5: (text, reference) => rougeN(text, reference, 5),
  rouge_l: rougeL,
};

/** Metrics with a time that grows with the product of the lengths. */
const QUADRATIC_METRICS: readonly TextMetric[] = ["fuzzy_match", "rouge_l"];
/**
 * Max product of the lengths of the texts for {@link QUADRATIC_METRICS}, in UTF-16 code units; limits the computation to about a second.
 */
const MAX_LENGTHS_PRODUCT = 2 ** 28;

/**
 * Computes a metric of the similarity of two texts. The values are those that rapidfuzz, nltk and rouge-score compute; METEOR is without
 * synonyms.
 *
 * @param metric - Name of the metric, as in a `text_similarity` grader.
 * @param text - Text to score.
 * @param reference - Reference text.
 * @returns a value in [0, 1]; 1 for two equal texts with words, except BLEU of fewer than four words, and METEOR, which stays below 1.
 * @throws GraderError `E_GRADER` with the flag `other_error` for `fuzzy_match` and `rouge_l` if the lengths of the texts, multiplied,
 *   exceed 2²⁸, such as two texts of more than 16,384 characters.
 * @example
 * ```ts
 * import { textSimilarity } from "whetstone/graders";
 *
 * textSimilarity("rouge_l", "the cat sat", "the cat sat down"); // 0.857…
 * ```
 */
export function textSimilarity(metric: TextMetric, text: string, reference: string): number {
  checkLengths(metric, text, reference);
  return METRICS[metric](text, reference);
}

/** Checks the lengths of the texts of a metric. @throws GraderError as {@link textSimilarity}. */
export function checkLengths(metric: TextMetric, text: string, reference: string): void {
  if (QUADRATIC_METRICS.includes(metric) && text.length * reference.length > MAX_LENGTHS_PRODUCT) {
    const expected = `Expected two texts with a product of their lengths of at most ${MAX_LENGTHS_PRODUCT} for \`${metric}\``;
    throw new GraderError("other_error", `${expected}, got ${text.length} and ${reference.length}; use \`gleu\` or \`rouge_2\``);
  }
}
