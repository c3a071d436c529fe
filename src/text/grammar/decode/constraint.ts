/** Applies a grammar to the sampling of one text. */
import { EngineError } from "../../../base/errors.ts";
import type { Configuration, Configurations } from "./configurations.ts";
import { maskOf } from "./mask.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Returns the index of the lowest bit of a word. */
const lowestBit = (word: number): number => 31 - Math.clz32(word & -word);

/** Writes the logits of the tokens of a mask with few tokens, and −∞ for all others. */
function writeAllowed(result: Float32Array, logits: Float32Array, words: Uint32Array): void {
  result.fill(-Infinity);
  for (let at = 0; at < words.length; at++) {
    // Each iteration clears the lowest bit of the rest.
    for (let rest = words[at]!; rest !== 0; rest &= rest - 1) {
      const id = at * 32 + lowestBit(rest);
      result[id] = logits[id]!;
    }
  }
}

/** Writes the same for a mask with most tokens. */
function writeWithoutOthers(result: Float32Array, logits: Float32Array, words: Uint32Array): void {
  result.set(logits);
  result.fill(-Infinity, words.length * 32);
  for (let at = 0; at < words.length; at++) {
    for (let rest = ~words[at]!; rest !== 0; rest &= rest - 1) result[at * 32 + lowestBit(rest)] = -Infinity;
  }
}

/** Mask without tokens. */
const NO_TOKENS = new Uint32Array(0);

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
    const mask = this.#current && maskOf(this.#current, this.#configurations, this.#vocabulary);
    (mask?.isDense ? writeWithoutOthers : writeAllowed)(result, logits, mask?.words ?? NO_TOKENS);
    if (this.#current === null || this.#current.canEnd) for (const id of this.#endTokenIds) result[id] = logits[id]!;
    return result;
  }

  /**
   * Returns the log-probabilities renormalized over the tokens that can follow: `log_softmax` of the {@link masked} ones. All are −∞ if
   * none of these tokens has a finite one.
   *
   * @param result - Array of the same length for the result. @default a new array
   */
  logprobs(logprobs: Float32Array, result?: Float32Array): Float32Array {
    const masked = this.masked(logprobs, result);
    let best = -Infinity;
    for (const logprob of masked) if (logprob > best) best = logprob;
    if (best === -Infinity) return masked;
    let total = 0;
    for (const logprob of masked) total += Math.exp(logprob - best);
    const shift = best + Math.log(total);
    for (let id = 0; id < masked.length; id++) masked[id]! -= shift;
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
    if ((this.#current !== null && !this.#current.canEnd) || !this.#endTokenIds.includes(id))
      throw new EngineError(`The token ${id} was sampled, which the grammar does not allow there`);
    this.#current = null;
  }
}
