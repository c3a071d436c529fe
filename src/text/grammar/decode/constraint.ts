/** Grammar constraint on the tokens of one choice. */
import { EngineError } from "../../../base/errors.ts";
import type { Configuration, Configurations } from "./configurations.ts";
import { maskOf } from "./mask.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Grammar constraint of one request; follows the sampled tokens. */
export class GrammarConstraint {
  readonly #configurations: Configurations;
  readonly #vocabulary: Vocabulary;
  readonly #endTokenIds: readonly number[];
  /** Configuration of the text so far; null once the text has ended. */
  #at: Configuration | null;

  /** @param endTokenIds - Tokens that end the text: allowed once the text is complete, and the only allowed tokens from then on. */
  constructor(configurations: Configurations, vocabulary: Vocabulary, endTokenIds: readonly number[]) {
    this.#configurations = configurations;
    this.#vocabulary = vocabulary;
    this.#endTokenIds = endTokenIds;
    this.#at = configurations.start();
  }

  /**
   * Returns a copy of `logits` with −∞ for the tokens that cannot follow.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous to compute these tokens.
   */
  masked(logits: Float32Array): Float32Array {
    const result = new Float32Array(logits.length).fill(-Infinity);
    if (this.#at !== null) {
      const words = maskOf(this.#at, this.#configurations, this.#vocabulary);
      for (let at = 0; at < words.length; at++) {
        for (let rest = words[at]!; rest !== 0; rest &= rest - 1) {
          const id = at * 32 + 31 - Math.clz32(rest & -rest);
          result[id] = logits[id]!;
        }
      }
    }
    if (this.#at === null || this.#at.canEnd) for (const id of this.#endTokenIds) result[id] = logits[id]!;
    return result;
  }

  /** Returns the distribution over only the tokens that can follow: `log_softmax` of the masked logits. */
  logprobs(logprobs: Float32Array): Float32Array {
    const masked = this.masked(logprobs);
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
    if (this.#at !== null && bytes !== null) {
      let at: Configuration | null = this.#at;
      for (const byte of bytes) at = at && this.#configurations.step(at, byte);
      if (at !== null) {
        this.#at = at;
        return;
      }
    }
    if ((this.#at !== null && !this.#at.canEnd) || !this.#endTokenIds.includes(id))
      throw new EngineError(`The token ${id} was sampled, which the grammar does not allow there`);
    this.#at = null;
  }
}
