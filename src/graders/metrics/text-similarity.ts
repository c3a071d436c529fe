import type { TextMetric } from "../../base/schema/index.ts";
import { bleu, gleu } from "./bleu.ts";
import { fuzzyMatch } from "./fuzzy-match.ts";
import { meteor } from "./meteor.ts";
import { rougeL, rougeN } from "./rouge.ts";

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

/**
 * Computes a metric of the similarity of two texts. The values are those that rapidfuzz, nltk and rouge-score compute; METEOR is without
 * synonyms.
 *
 * @param metric - Name of the metric, as in a `text_similarity` grader.
 * @param text - Text to score.
 * @param reference - Right text.
 * @returns a value in [0, 1]; 1 for two equal texts with words, except BLEU of fewer than four words, and METEOR, which stays below 1.
 * @example
 * ```ts
 * import { textSimilarity } from "whetstone/graders";
 *
 * textSimilarity("rouge_l", "the cat sat", "the cat sat down"); // 0.857…
 * ```
 */
export function textSimilarity(metric: TextMetric, text: string, reference: string): number {
  return METRICS[metric](text, reference);
}
