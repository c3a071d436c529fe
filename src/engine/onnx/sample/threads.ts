/**
 * How many threads an operation of a sampler's graphs has: as many as leave every bit of a row as it is with one, whatever runs
 * beside it. Products that are cut along rows, or into wide slices of columns, sum as they do whole; of narrow slices the runtime
 * sums the inner dimension in other pieces.
 */
import type { ModelConfig } from "../model/config.ts";
import { allLinears } from "../model/parameters.ts";
import { isLarge } from "../model/size.ts";
import { MIN_ROWS, MIN_SLICE, MOST_THREADS } from "../thread-bits.ts";

/**
 * For the next token of running rows.
 *
 * @param most - At most so many, and never more than {@link MOST_THREADS}.
 */
export function decodeThreads(config: ModelConfig, hasAdapters: boolean, most: number): number {
  // The products of a small model are over before another thread is awake.
  if (!isLarge(config)) return 1;
  // Matrices that come from the left are cut along their rows. Attention is a product per row and key head and an adapter one per
  // row: as long as these are not fewer than the threads, none of them is cut.
  return Math.min(most, MOST_THREADS, hasAdapters ? MIN_ROWS : MIN_ROWS * config.kvHeads);
}

/** For tokens of prompts; see {@link decodeThreads}. */
export function promptThreads(config: ModelConfig, hasAdapters: boolean, most: number): number {
  // An adapter's rank is narrower than any slice.
  if (!isLarge(config) || hasAdapters) return 1;
  const narrowest = Math.min(...allLinears(config).map(({ parts }) => parts.reduce((sum, { outputSize }) => sum + outputSize, 0)));
  return Math.max(1, Math.min(most, MOST_THREADS, Math.floor(narrowest / MIN_SLICE)));
}
