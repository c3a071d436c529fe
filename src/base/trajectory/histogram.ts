/** Histograms over powers of two, for the statistics of turns and tokens. */

import { ArgumentError } from "../errors.ts";

/** Histogram: `counts[i]` values satisfy `edges[i] ≤ value < edges[i + 1]`. */
export interface Histogram {
  /** Bin edges 0, 1, 2, 4, 8 …, up to the first power of two above the largest value; one more than `counts`. */
  readonly edges: readonly number[];
  /** Number of values per bin. */
  readonly counts: readonly number[];
}

/**
 * Counts values in the bins `[0, 1)`, `[1, 2)`, `[2, 4)`, `[4, 8)` … The bins are the same for every batch, so that histograms can be
 * overlaid; only the number of bins depends on the values.
 *
 * @param values - Shape `[N]`; each at least 0 and below 2^31.
 * @returns Bin edges and counts.
 * @throws ArgumentError `E_ARGUMENT` for a value outside that range.
 * @example
 * ```ts
 * histogram([0, 1, 3, 3]); // { edges: [0, 1, 2, 4], counts: [1, 1, 2] }
 * ```
 */
export function histogram(values: readonly number[]): Histogram {
  const counts: number[] = [0];
  for (const value of values) {
    if (!(value >= 0 && value < 2 ** 31)) {
      throw new ArgumentError(`Expected values of at least 0 and below 2147483648, got \`${value}\``, { param: "values" });
    }
    // The number of bits of the integer part: 0 for [0, 1), 1 for [1, 2), 2 for [2, 4).
    const bin = 32 - Math.clz32(value);
    while (counts.length <= bin) counts.push(0);
    counts[bin] = (counts[bin] as number) + 1;
  }
  return { edges: [0, ...counts.map((_, index) => 2 ** index)], counts };
}
