/**
 * Prefill: computes the keys and values of prompts, in pieces. A prompt is computed in multiples of {@link BLOCK_TOKENS} tokens from the
 * end of its cached prefix; on the processor, neither the cut into pieces nor the other prompts of the batch change any of its bits.
 */
import type { PromptToken } from "../../port.ts";
import type { Adapter } from "../model/parameters.ts";
import { loadRuntime, type TensorConstructor } from "../runtime/program.ts";
import { productRows } from "../runtime/thread-limits.ts";
import { placeToken, requireDistribution } from "./choose.ts";
import type { Distributions } from "./forward.ts";
import type { PlacedStack, PromptKeys, SamplingPlace } from "./place.ts";
import { BLOCK_TOKENS, type PrefixCache, type StoredBlock } from "./prefix-cache.ts";
import { cacheScope, mayShare, type Request } from "./request.ts";
import { first } from "../../../base/util/values.ts";

/** Max tokens of a scored prompt computed at once: each takes a row over the whole vocabulary. */
const SCORED_TOKENS = 256;

/** Prompt and the requests that share it. */
export interface SharedPrompt {
  readonly prompt: Int32Array;
  readonly requests: Request[];
}

/** Completely prefilled prompt. */
export interface Prefilled extends SharedPrompt {
  /** Keys and values of the task's prompts. */
  readonly cache: PromptKeys;
  /** Index of the prompt in `cache`. */
  readonly slot: number;
  /** Index of the distribution for the token after the prompt. */
  readonly index: number;
  /** Number of tokens that were in the prefix cache. */
  readonly cachedTokens: number;
  /** Log-probabilities of the prompt's tokens; null unless requested. */
  readonly scored: readonly PromptToken[] | null;
}

/** Result of one piece. */
export interface PieceResult {
  readonly distributions: Distributions;
  readonly completed: readonly Prefilled[];
  /** Tokens computed, padding included. */
  readonly computed: number;
}

/**
 * Prompts being prefilled. Several prompts share a task only if they have the same padded length and cached prefixes of the same length;
 * they are then computed at once.
 */
export class PrefillTask {
  readonly prompts: SharedPrompt[];
  /** First request of each prompt, kept even after its cancellation. */
  readonly #heads: readonly Request[];
  readonly #prefixes: PrefixCache;
  readonly #cache: PromptKeys;
  readonly #place: SamplingPlace;
  /** Padded length of each prompt. */
  readonly #time: number;
  readonly #scored: PromptToken[] | null;
  readonly #cachedTokens: number;
  /** Number of tokens of each prompt with keys and values. */
  #done: number;

  private constructor(
    prompts: readonly SharedPrompt[],
    cachedTokens: number,
    prefixes: PrefixCache,
    place: SamplingPlace,
    TensorClass: TensorConstructor,
  ) {
    this.#place = place;
    this.prompts = [...prompts];
    this.#heads = prompts.map(({ requests }) => first(requests));
    this.#prefixes = prefixes;
    this.#time = paddedLength(first(prompts).prompt.length);
    this.#scored = first(this.#heads).params.promptLogprobs === undefined ? null : [];
    this.#cachedTokens = this.#done = cachedTokens;
    this.#cache = place.newPromptKeys(TensorClass, first(this.#heads).policy.weights.config, prompts.length, this.#time);
  }

  /**
   * Starts a task.
   *
   * @param known - Cached blocks that each prompt begins with, as many for each.
   * @throws RangeError if the keys and values of the prompts do not fit into memory.
   * @throws EngineError `E_ENGINE` if they do not fit into the memory of a device.
   */
  static async start(
    prompts: readonly SharedPrompt[],
    known: readonly (readonly StoredBlock[])[],
    prefixes: PrefixCache,
    place: SamplingPlace,
  ): Promise<PrefillTask> {
    const { Tensor } = await loadRuntime();
    const { length } = first(known);
    const task = new PrefillTask(prompts, length * BLOCK_TOKENS, prefixes, place, Tensor);
    if (length > 0) await task.#cache.load(known);
    return task;
  }

  /** Adapter of each prompt. */
  get owners(): (Adapter | null)[] {
    return this.#heads.map(({ policy }) => policy.adapter);
  }

  /** Padded length of each prompt. */
  get tokens(): number {
    return this.#time;
  }

  get requests(): Request[] {
    return this.prompts.flatMap((shared) => shared.requests);
  }

  /**
   * Computes the next piece: at most `maxTokens` tokens of a prompt, but at least one block. Several prompts are computed whole.
   */
  async step(adapters: PlacedStack | null, maxTokens: number): Promise<PieceResult> {
    const size = this.prompts.length;
    const head = first(this.#heads);
    const limit = Math.min(maxTokens, this.#place.maxPiece, this.#cache.maxPiece, this.#scored === null ? Infinity : SCORED_TOKENS);
    const piece = Math.max(BLOCK_TOKENS, Math.floor(limit / BLOCK_TOKENS) * BLOCK_TOKENS);
    const end = size > 1 ? this.#time : Math.min(this.#time, this.#done + piece);
    const [start, time] = [this.#done, end - this.#done];
    const tokens = new Int32Array(size * time);
    this.prompts.forEach(({ prompt }, b) => tokens.set(prompt.subarray(start, end), b * time));
    const isLast = end === this.#time;
    const last = this.#scored === null ? this.#lastTokens(time, isLast) : Int32Array.from({ length: time }, (_, t) => t);
    const { distributions: all, results } = await this.#place.run({
      kind: this.#cache.kind,
      weights: head.policy.weights,
      adapters,
      use: adapters?.useOf(this.owners) ?? "none",
      owners: this.owners,
      tokens,
      pasts: new Int32Array(size).fill(start),
      lengths: Int32Array.from(this.prompts, ({ prompt }) => prompt.length),
      feeds: this.#cache.feeds(start, end),
      fetches: this.#cache.fetches,
      last,
      needsLogits: this.needsLogits,
      draws: null,
    });
    // Graphs of prompts always return distributions.
    const distributions = all!;
    this.#cache.update(results);
    this.#done = end;
    this.#keep();
    this.#score(distributions, start, time);
    return { distributions, completed: isLast ? this.#completed(start) : [], computed: size * time };
  }

  /** Graph that {@link step} runs. */
  get kind(): PromptKeys["kind"] {
    return this.#cache.kind;
  }

  /** Whether {@link step} needs logits. */
  get needsLogits(): boolean {
    return this.requests.some((request) => request.rules?.needsLogits);
  }

  /** Whether the task will compute further blocks, at least up to token `minLength`, that the prompt of another request begins with. */
  willStore(request: Request, minLength: number): boolean {
    return this.#heads.some((head) => {
      if (!mayShare(head, request)) return false;
      const [own, other] = [head.prompt, request.prompt];
      // The last token of a prompt is always computed.
      const max = Math.min(own.length, other.length - 1);
      let common = 0;
      while (common < max && own[common] === other[common]) common++;
      const blocks = Math.floor(common / BLOCK_TOKENS) * BLOCK_TOKENS;
      return blocks >= minLength && blocks > this.#done;
    });
  }

  /** Frees the keys and values of the prompts. */
  release(): void {
    this.#cache.release();
  }

  /** Removes and returns the requests for which `isEnded` is true. */
  remove(isEnded: (request: Request) => boolean): Request[] {
    return this.prompts.flatMap(({ requests }) => {
      const ended = requests.filter(isEnded);
      for (const request of ended) requests.splice(requests.indexOf(request), 1);
      return ended;
    });
  }

  #lastTokens(time: number, isLast: boolean): Int32Array {
    // In the middle of a prompt no distribution is needed. A product of one row would have other bits.
    if (!isLast) return new Int32Array(this.#cache.minSelected);
    const last = new Int32Array(productRows(this.prompts.length));
    this.prompts.forEach(({ prompt }, b) => (last[b] = b * time + lastPosition(prompt, this.#time - time)));
    return last;
  }

  /** Stores whole blocks in the prefix cache. */
  #keep(): void {
    this.#heads.forEach((head, slot) => {
      this.#prefixes.keep(head.policy, cacheScope(head), head.prompt, this.#done, (start, known) => this.#cache.store(slot, start, known));
    });
  }

  /** Records the log-probability and rank of each of the prompt's tokens, if requested. */
  #score({ logprobs, vocabularySize: V }: Distributions, start: number, time: number): void {
    const { prompt, params } = first(this.#heads);
    if (this.#scored === null || params.promptLogprobs === undefined) return;
    for (let t = 0; t < time && start + t + 1 < prompt.length; t++) {
      const row = logprobs.subarray(t * V, (t + 1) * V);
      requireDistribution(row, start + t + 1);
      this.#scored.push(placeToken(row, prompt[start + t + 1]!, params.promptLogprobs));
    }
  }

  #completed(start: number): Prefilled[] {
    return this.prompts.map((shared, slot) => ({
      ...shared,
      cache: this.#cache,
      slot,
      index: this.#scored === null ? slot : lastPosition(shared.prompt, start),
      cachedTokens: this.#cachedTokens,
      scored: this.#scored,
    }));
  }
}

/** Returns the length that a prompt is padded to, which depends on the prompt alone. */
export function paddedLength(length: number): number {
  return Math.ceil(length / BLOCK_TOKENS) * BLOCK_TOKENS;
}

/** Returns the index of a prompt's last token in the piece that begins at token `start`. */
function lastPosition(prompt: Int32Array, start: number): number {
  return prompt.length - 1 - start;
}
