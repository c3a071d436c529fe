/** Checks, token counts and per-token values of token sequences, before they become training rows. */

import { DataError } from "../base/errors.ts";
import type { SampledSequence, SequenceLimits, TokenSequence } from "./types.ts";

/** Counts the trained tokens of a sequence. */
export function countTrained(sequence: TokenSequence): number {
  let count = 0;
  for (const bit of sequence.mask) count += bit;
  return count;
}

/** Whether a sequence fits into the model's context. */
export function fitsContext(sequence: TokenSequence, limits: SequenceLimits): boolean {
  return sequence.tokens.length <= limits.contextLength;
}

/**
 * Checks that all token ids are inside the model's vocabulary.
 *
 * @param where - Location of the sequence for the error message.
 * @throws DataError `E_DATA` for a token id outside the vocabulary, which means that another tokenizer was used.
 */
export function requireTokenIds(sequence: TokenSequence, limits: SequenceLimits, where: string): void {
  const { vocabularySize = Number.POSITIVE_INFINITY } = limits;
  const invalidId = sequence.tokens.find((id) => id < 0 || id >= vocabularySize);
  if (invalidId === undefined) return;
  throw new DataError(
    `${where}: token id ${invalidId} is outside the model's vocabulary of ${vocabularySize}. The tokens were made for another model.`,
    { param: where },
  );
}

/** Returns loss weights of shape `[T]`: `weight` times the token's weight factor on trained tokens, 0 elsewhere. */
export function lossWeights(sequence: SampledSequence, weight: number): Float32Array {
  const weights = fillTrained(sequence, weight);
  for (const [t, factor] of (sequence.tokenWeightFactors ?? []).entries()) weights[t] = sequence.mask[t] === 1 ? weight * factor : 0;
  return weights;
}

/** Returns an array of shape `[T]` with `value` on trained tokens and 0 elsewhere. */
export function fillTrained(sequence: TokenSequence, value: number): Float32Array {
  const values = new Float32Array(sequence.mask.length);
  for (let t = 0; t < values.length; t++) if (sequence.mask[t] === 1) values[t] = value;
  return values;
}
