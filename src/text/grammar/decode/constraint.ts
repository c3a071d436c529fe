/**
 * Applies a grammar to the sampling of one text: the sampler masks the logits with `masked`, samples a token, and reports it with `record`.
 */
import { EngineError } from "../../../base/errors.ts";
import type { Configuration } from "./configuration.ts";
import type { Configurations } from "./configurations.ts";
import { maskOf } from "./mask.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Returns the index of the lowest bit of a word. */
const lowestBit = (word: number): number => 31 - Math.clz32(word & -word);

/** Writes the logits of the tokens of a mask with few tokens, and −∞ for all others. */
function writeAllowed(result: Float32Array, logits: Float32Array, words: Uint32Array): void {
  result.fill(-Infinity);
  for (let at = 0; at < words.length; at++) {
    // Each iteration clears the lowest bit.
    for (let bits = words[at]!; bits !== 0; bits &= bits - 1) {
      const id = at * 32 + lowestBit(bits);
      result[id] = logits[id]!;
    }
  }
}

/** Writes the same for a mask with most tokens: copies all logits, and overwrites those outside of the mask. */
function writeWithoutOthers(result: Float32Array, logits: Float32Array, words: Uint32Array): void {
  result.set(logits);
  result.fill(-Infinity, words.length * 32);
  for (let at = 0; at < words.length; at++) {
    for (let bits = ~words[at]!; bits !== 0; bits &= bits - 1) result[at * 32 + lowestBit(bits)] = -Infinity;
  }
}

/** Grammar constraint on one sampled text. Each sampled token must be recorded with {@link GrammarConstraint.record}. */
export class GrammarConstraint {
  readonly #configurations: Configurations;
  readonly #vocabulary: Vocabulary;
  readonly #endTokenIds: readonly number[];
  /** Configuration of the text so far; null once an end token was sampled. */
  #current: Configuration | null;

  /** @param endTokenIds - Tokens that end the text: allowed once the text is complete, and the only allowed tokens from then on. */
  constructor(configurations: Configurations, vocabulary: Vocabulary, endTokenIds: readonly number[]) {
    this.#configurations = configurations;
    this.#vocabulary = vocabulary;
    this.#endTokenIds = endTokenIds;
    this.#current = configurations.start();
  }

  /**
   * Returns a copy of `logits` with −∞ for the tokens that cannot follow.
   *
   * @param result - Array of the same length for the result. @default a new array
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous to compute these tokens.
   */
  masked(logits: Float32Array, result: Float32Array = new Float32Array(logits.length)): Float32Array {
    if (this.#current === null) result.fill(-Infinity);
    else {
      const { words, isDense } = maskOf(this.#current, this.#configurations, this.#vocabulary);
      if (isDense) writeWithoutOthers(result, logits, words);
      else writeAllowed(result, logits, words);
    }
    if (this.#current === null || this.#current.canEnd) for (const id of this.#endTokenIds) result[id] = logits[id]!;
    return result;
  }

  /**
   * Returns the log-probabilities renormalized over the tokens that can follow: `log_softmax` of the {@link masked} ones. All are −∞ if
   * they are −∞ for each of these tokens.
   *
   * @param result - Array of the same length for the result. @default a new array
   */
  logprobs(logprobs: Float32Array, result?: Float32Array): Float32Array {
    const masked = this.masked(logprobs, result);
    let max = -Infinity;
    for (const logprob of masked) if (logprob > max) max = logprob;
    if (max === -Infinity) return masked;
    let sum = 0;
    for (const logprob of masked) sum += Math.exp(logprob - max);
    const logSum = max + Math.log(sum);
    for (let id = 0; id < masked.length; id++) masked[id]! -= logSum;
    return masked;
  }

  /**
   * Records a sampled token.
   *
   * @throws EngineError `E_ENGINE` if the token cannot follow.
   */
  record(id: number): void {
    const bytes = this.#vocabulary.bytesOf(id);
    if (this.#current !== null && bytes !== null) {
      let next: Configuration | null = this.#current;
      for (const byte of bytes) next = next && this.#configurations.step(next, byte);
      if (next !== null) {
        this.#current = next;
        return;
      }
    }
    const mayEnd = this.#current === null || this.#current.canEnd;
    if (!mayEnd || !this.#endTokenIds.includes(id))
      throw new EngineError(`The token ${id} was sampled, which the grammar does not allow there`);
    this.#current = null;
  }
}
