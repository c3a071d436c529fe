/** Batch of running requests, which advance together, one token at a time. */
import { freeLarge, loadRuntime } from "../runtime/program.ts";
import type { Adapter } from "../model/parameters.ts";
import { maxSampledLength } from "../model/rope.ts";
import { advance, MaskedRow } from "./advance.ts";
import { drawInputs, isPlain } from "./draw-inputs.ts";
import type { Distributions, ForwardOutput } from "./forward.ts";
import type { BatchKeys, AdapterUse, PlacedStack, PlacedWeights, PromptKeys, SamplingPlace } from "./place.ts";
import type { Prefilled } from "./prefill.ts";
import { isBefore, type Request, type RunningRow, type SampledEvent } from "./request.ts";
import { cacheFetches } from "./sampler-graph.ts";
import { MIN_ROWS } from "../runtime/thread-limits.ts";
import { itemAt } from "../../../base/util/values.ts";

/** Number of sampled tokens from which a row no longer waits for the prompts that arrived shortly after its own. */
const SETTLED_TOKENS = 4;

/** Callbacks for the requests of a batch. */
export interface RowListener {
  onToken(event: SampledEvent): void;
  /** Called after the request's last token, or when it is canceled. */
  onEnd(request: Request): void;
  /** Called if no token can be drawn for the request, such as when its own rules leave none; `onEnd` follows. */
  onFailure(request: Request, error: unknown): void;
}

/**
 * Row that enters a batch: a prefilled request, the prompt cache and slot with its keys and values, and the index of the distribution for
 * its first token.
 */
export interface NewRow {
  readonly row: RunningRow;
  readonly source: PromptKeys;
  readonly slot: number;
  readonly index: number;
}

/** Returns the row of a request whose prompt has been prefilled. */
export function newRow(request: Request, { prompt, cache, slot, index, cachedTokens, scored }: Prefilled): NewRow {
  return {
    row: { request, length: prompt.length, tokens: [], sampled: request.sampled, cachedTokens, promptTokens: scored },
    source: cache,
    slot,
    index,
  };
}

/** Running rows on the same weights; row `i` is slot `i` of the cache. */
export class SampleBatch {
  readonly weights: PlacedWeights;
  readonly #place: SamplingPlace;
  readonly #listener: RowListener;
  readonly #cache: BatchKeys;
  readonly #rows: RunningRow[] = [];
  readonly #fetches: Readonly<Record<string, null>>;
  #adapters: PlacedStack | null = null;
  #masked: MaskedRow | null = null;
  /** First row of the next {@link decode}; 0 unless a batch is decoded in parts. */
  #next = 0;

  constructor(place: SamplingPlace, weights: PlacedWeights, listener: RowListener) {
    this.#place = place;
    this.weights = weights;
    this.#listener = listener;
    this.#cache = place.newBatchKeys(weights.config);
    this.#fetches = cacheFetches(weights.config);
  }

  /** Number of running rows. */
  get size(): number {
    return this.#rows.length;
  }

  /** Requests of the running rows. */
  get requests(): Request[] {
    return this.#rows.map(({ request }) => request);
  }

  /** Number of rows that have sampled at least {@link SETTLED_TOKENS} tokens. */
  get settledRows(): number {
    return this.#rows.filter(({ sampled }) => sampled >= SETTLED_TOKENS).length;
  }

  /** Tokens in the cache of the longest row. */
  get longest(): number {
    return this.#rows.reduce((longest, { length }) => Math.max(longest, length), 0);
  }

  /** Arrays for {@link advance}, created for the first row with a grammar. */
  get #maskedRow(): MaskedRow {
    return (this.#masked ??= new MaskedRow(this.weights.config.vocabularySize));
  }

  /** Graph that {@link decode} runs: with distributions only if a row needs one. */
  get #kind(): "decode" | "draw" {
    const { vocabularySize } = this.weights.config;
    return this.#place.drawsTokens && this.#rows.every(({ request }) => isPlain(request, vocabularySize)) ? "draw" : "decode";
  }

  get #needsLogits(): boolean {
    return this.#rows.some(({ request }) => request.rules?.needsLogits);
  }

  /** Returns the stack with these adapters and the adapters of the rows; each adapter is in it once. */
  adaptersWith(more: readonly Adapter[]): PlacedStack | null {
    const all = [...this.#rows.flatMap((row) => row.request.policy.adapter ?? []), ...more];
    const stack = this.#place.stack(this.weights.config, all, this.#adapters);
    if (stack !== this.#adapters) this.#adapters?.release();
    return (this.#adapters = stack);
  }

  /** Returns how the rows have adapters: of all rows, so that parts of the batch run through one program. */
  #useOf(stack: PlacedStack | null): AdapterUse {
    return stack?.useOf(this.#rows.map(({ request }) => request.policy.adapter)) ?? "none";
  }

  /** Returns how many of `rows` rows of `length` tokens there is memory for, at least one. */
  roomFor(rows: number, length: number): number {
    return this.#cache.roomFor(rows, length);
  }

  /**
   * Adds rows and draws the first token of each, or the next token of requests that were suspended.
   *
   * @param expected - Number of rows expected soon; the cache makes room for all of them at once.
   */
  enter(rows: readonly NewRow[], distributions: Distributions, expected: number): void {
    const maxLength = rows.reduce((longest, { row }) => Math.max(longest, row.length + 1), 1);
    const { config } = this.weights;
    const finalLength = ({ length, request }: RunningRow) => Math.min(length + request.params.maxTokens, maxSampledLength(config, length));
    const maxFinalLength = rows.reduce((longest, { row }) => Math.max(longest, finalLength(row)), maxLength);
    this.#cache.reserve(Math.max(MIN_ROWS, this.size + rows.length, expected), maxLength, this.size, maxFinalLength);
    const first = this.size;
    for (const { row, source, slot } of rows) {
      this.#cache.load(this.size, source, slot, row.length);
      this.#rows.push(row);
    }
    this.#advance({ distributions, drawn: null }, first, this.size, (index) => itemAt(rows, index - first).index);
  }

  /** Compiles the graph that {@link decode} runs, so that the time of a step does not include compilation. */
  prepare(): Promise<void> {
    return this.#place.prepare(this.#kind, this.weights, this.#useOf(this.adaptersWith([])), this.#needsLogits);
  }

  /**
   * Decodes one more token for every row, or for the next part of the rows: parts take turns.
   *
   * @param maxRows - Max rows of a part; parts are of similar size. No effect where the place does not decode parts. @default all rows
   * @returns Number of rows that have a new token.
   */
  async decode(maxRows = Infinity): Promise<number> {
    const start = this.#next < this.size ? this.#next : 0;
    const left = this.size - start;
    const parts = this.#place.decodesParts ? Math.max(1, Math.ceil(left / maxRows)) : 1;
    const rows = this.#rows.slice(start, start + Math.ceil(left / parts));
    const adapters = this.adaptersWith([]);
    const size = this.#place.batchRows(rows.length, this.weights, adapters !== null);
    const tokens = new Int32Array(size);
    const pasts = new Int32Array(size);
    let longest = 1;
    rows.forEach((row, b) => {
      tokens[b] = row.tokens.at(-1)!;
      pasts[b] = row.length;
      longest = Math.max(longest, row.length + 1);
    });
    this.#cache.reserve(start + size, longest, this.size);
    const { Tensor } = await loadRuntime();
    const output = await this.#place.run({
      kind: this.#kind,
      weights: this.weights,
      adapters,
      use: this.#useOf(adapters),
      owners: Array.from({ length: size }, (_, b) => rows[b]?.request.policy.adapter ?? null),
      tokens,
      pasts,
      lengths: pasts.map((past) => past + 1),
      feeds: await this.#cache.feeds(Tensor, start, size, pasts),
      fetches: this.#fetches,
      last: Int32Array.from({ length: size }, (_, b) => b),
      needsLogits: this.#needsLogits,
      draws: this.#place.drawsTokens ? drawInputs(rows, size) : null,
    });
    this.#cache.append(output.results, pasts, start, rows.length);
    for (const row of rows) row.length++;
    const end = start + rows.length;
    // Rows that enter before the next step wait for the rows that have no new token yet, but not the other way round.
    this.#next = end < this.size ? end : 0;
    this.#advance(output, start, end, (index) => index - start);
    freeLarge(Object.values(output.results));
    return rows.length;
  }

  /** Frees the cache and the adapters; the batch must not be used again. */
  release(): void {
    this.#cache.release();
    this.#adapters?.release();
  }

  /** Removes the rows with requests for which `isEnded` is true. */
  remove(isEnded: (request: Request) => boolean): void {
    this.#end(this.#rows.flatMap(({ request }, index) => (isEnded(request) ? [index] : [])));
  }

  /**
   * Removes up to `count` rows and frees their slots in the cache: of the client with the most rows first, the least urgent ones first.
   *
   * @param isWanted - Whether the row of a request may be removed. @default any
   * @returns Their requests, to be prefilled again: the sampled tokens are at the end of their prompts.
   */
  suspend(count: number, isWanted: (request: Request) => boolean = () => true): Request[] {
    if (count <= 0) return [];
    const ranks = new Map<string, number>();
    const rows = [...this.#rows.entries()]
      .filter(([, { request }]) => isWanted(request))
      .sort(([, a], [, b]) => (isBefore(a.request, b.request) ? -1 : 1))
      .map(
        ([
          index,
          {
            request: { group },
          },
        ]) => {
          const rank = ranks.get(group.client) ?? 0;
          ranks.set(group.client, rank + 1);
          return { index, rank };
        },
      );
    // Stable and from the end: among equal ranks of different clients, the least urgent rows come first.
    const removed = rows
      .toReversed()
      .sort((a, b) => b.rank - a.rank)
      .slice(0, count);
    return this.#removeAt(removed.map(({ index }) => index).sort((a, b) => a - b)).map(suspended);
  }

  /**
   * Takes or draws a token for each row in `[first, end)`, and removes the rows that ended.
   *
   * @param indexOf - Returns the index of a row in the distributions or the drawn tokens.
   */
  #advance({ distributions, drawn }: Omit<ForwardOutput, "results">, first: number, end: number, indexOf: (row: number) => number): void {
    const { config } = this.weights;
    const { vocabularySize } = config;
    const ended: number[] = [];
    for (let slot = first; slot < end; slot++) {
      const row = itemAt(this.#rows, slot);
      try {
        const source = drawn !== null && isPlain(row.request, vocabularySize) ? drawn : distributions!;
        const token = advance(row, source, indexOf(slot), maxSampledLength(config, row.length), () => this.#maskedRow);
        this.#listener.onToken({ request: row.request.id, token });
        if (token.finish) ended.push(slot);
      } catch (error) {
        this.#listener.onFailure(row.request, error);
        ended.push(slot);
      }
    }
    this.#end(ended);
  }

  /** Removes rows and reports the end of their requests. */
  #end(indices: readonly number[]): void {
    for (const { request } of this.#removeAt(indices)) this.#listener.onEnd(request);
  }

  /**
   * Removes rows, in ascending order, and moves rows from the end into the gaps, each at most once, so that the rows in use stay a prefix.
   */
  #removeAt(indices: readonly number[]): RunningRow[] {
    const removed = indices.map((index) => itemAt(this.#rows, index));
    const size = this.size - removed.length;
    const isEnded = new Set(indices);
    let from = size;
    for (const gap of indices) {
      if (gap >= size) break;
      while (isEnded.has(from)) from++;
      this.#cache.copy(from, gap);
      this.#rows[gap] = itemAt(this.#rows, from++);
    }
    this.#rows.length = size;
    return removed;
  }
}

/** Returns the request of a row as a request that continues after the tokens sampled so far. */
function suspended({ request, tokens, sampled }: RunningRow): Request {
  const prompt = Int32Array.from([...request.prompt, ...tokens]);
  return { ...request, prompt, sampled, params: { ...request.params, promptLogprobs: undefined } };
}
