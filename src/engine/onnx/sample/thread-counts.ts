/**
 * Thread counts of a sampler's graphs: the max number of threads inside one op for which a row is bit-identical to its result with one
 * thread, in any batch. Products cut along rows, or into wide slices of columns, sum exactly as the whole product does; for narrow slices
 * the runtime sums the inner dimension in different pieces.
 */
import type { ModelConfig } from "../model/config.ts";
import { allLinears } from "../model/parameters.ts";
import { isLarge } from "../model/size.ts";
import { MIN_ROWS, MIN_SLICE_COLUMNS, MAX_THREADS } from "../runtime/thread-limits.ts";

/**
 * Returns the threads inside one op of the decode graph.
 *
 * @param maxThreads - Upper limit; {@link MAX_THREADS} also applies.
 */
export function decodeThreads(config: ModelConfig, hasAdapters: boolean, maxThreads: number): number {
  // The products of a small model finish before another thread wakes up.
  if (!isLarge(config)) return 1;
  // Matrices that are left operands are cut along their rows. Attention is one product per row and key head, an adapter one product per
  // row: as long as there are at least as many products as threads, none of them is cut.
  return Math.min(maxThreads, MAX_THREADS, hasAdapters ? MIN_ROWS : MIN_ROWS * config.kvHeads);
}

/**
 * Returns the min rows of a batch whose products with weights compute a single row as they compute several: as many as give at least one
 * product of attention to each thread.
 */
export function minDecodeRows(config: ModelConfig, maxThreads: number): number {
  return Math.ceil(decodeThreads(config, false, maxThreads) / config.kvHeads);
}

/** Max threads of a prefill graph with adapters: each of their products is as narrow as the rank, and there are at least two of a kind. */
const MAX_ADAPTER_THREADS = 2;

/** Returns the threads inside one op of the prefill graph; see {@link decodeThreads}. */
export function promptThreads(config: ModelConfig, hasAdapters: boolean, maxThreads: number): number {
  if (!isLarge(config)) return 1;
  const narrowest = Math.min(...allLinears(config).map(({ parts }) => parts.reduce((sum, { outputSize }) => sum + outputSize, 0)));
  const limit = hasAdapters ? MAX_ADAPTER_THREADS : MAX_THREADS;
  return Math.max(1, Math.min(maxThreads, limit, Math.floor(narrowest / MIN_SLICE_COLUMNS)));
}
