/** What every token sequence must satisfy before an engine sees it. */

import { DataError } from "../errors.ts";
import type { SequenceLimits, TokenSequence } from "./types.ts";

/** Trained tokens of a sequence. */
export function trainedTokens(sequence: TokenSequence): number {
  let count = 0;
  for (const bit of sequence.mask) count += bit;
  return count;
}

/** Whether the model can read the whole sequence. */
export function fitsContext(sequence: TokenSequence, limits: SequenceLimits): boolean {
  return sequence.tokens.length <= limits.contextLength;
}

/**
 * @param where - The sequence's place, for the message.
 * @throws DataError `E_DATA` for an id outside the vocabulary: it was made with another tokenizer.
 */
export function requireTokenIds(sequence: TokenSequence, limits: SequenceLimits, where: string): void {
  const { vocabularySize = Number.POSITIVE_INFINITY } = limits;
  const bad = sequence.tokens.find((id) => id < 0 || id >= vocabularySize);
  if (bad === undefined) return;
  throw new DataError(
    `${where}: token id ${bad} is outside the model's vocabulary of ${vocabularySize}. The tokens were made for another model.`,
    {
      param: where,
    },
  );
}

/** Shape `[T]`: `weight` on trained tokens, 0 elsewhere. */
export function tokenWeights(sequence: TokenSequence, weight: number): Float32Array {
  const weights = new Float32Array(sequence.mask.length);
  for (let t = 0; t < weights.length; t++) if (sequence.mask[t] === 1) weights[t] = weight;
  return weights;
}
