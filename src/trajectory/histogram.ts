import { ArgumentError } from "../errors.ts";

/** How often values fall between two edges: `counts[i]` of them have `edges[i] ≤ value < edges[i + 1]`. */
export interface Histogram {
  /** 0, 1, 2, 4, 8 …, up to the first power of two above the largest value; one more than `counts`. */
  readonly edges: readonly number[];
  readonly counts: readonly number[];
}

/**
 * Counts values in bins that are the same for every batch, so that two of them can be laid over each other: `[0, 1)`, `[1, 2)`, `[2, 4)`,
 * `[4, 8)` … Only how many bins there are depends on the values.
 *
 * @param values - Shape `[N]`; at least 0 and below 2^31.
 * @throws ArgumentError `E_ARGUMENT` for a value outside.
 */
export function histogram(values: readonly number[]): Histogram {
  const counts: number[] = [0];
  for (const value of values) {
    if (!(value >= 0 && value < 2 ** 31)) {
      throw new ArgumentError(`Expected values of at least 0 and below 2147483648, got \`${value}\``, { param: "values" });
    }
    const bin = 32 - Math.clz32(value);
    while (counts.length <= bin) counts.push(0);
    counts[bin] = (counts[bin] as number) + 1;
  }
  return { edges: [0, ...counts.map((_, index) => 2 ** index)], counts };
}
