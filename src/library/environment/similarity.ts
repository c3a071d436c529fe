/** Similarity of two texts, a port of Python's `difflib`. Texts are lists of code points; `a` is the first text and `b` the second. */

/** Block of code points that both texts have. */
interface Block {
  /** Start in `a`. */
  readonly a: number;
  /** Start in `b`. */
  readonly b: number;
  /** Length. */
  readonly size: number;
}

/** Ranges to compare: start and exclusive end in `a`, start and exclusive end in `b`. */
type Range = readonly [aStart: number, aEnd: number, bStart: number, bEnd: number];

/** Minimum length of `b`, in code points, at which popular code points no longer start a block ("autojunk", as in Python). */
const AUTOJUNK_LENGTH = 200;

/**
 * Computes the similarity of two texts as Python's `difflib.SequenceMatcher(None, a, b).ratio()` does: `2·M / (|a| + |b|)`, where `M`
 * counts the code points in matching blocks. Blocks are found by taking the longest common block and recursing to its left and right
 * (Ratcliff and Obershelp). The result is not the longest common subsequence, and `similarity(a, b)` may differ from `similarity(b, a)`.
 *
 * As in Python, if `b` has at least 200 code points, a code point that occurs more than `⌊|b| / 100⌋ + 1` times in `b` starts no block
 * ("autojunk").
 *
 * @param a - First text.
 * @param b - Second text.
 * @returns Ratio in [0, 1]; 1 for two empty texts. The time grows with the product of the lengths.
 * @source https://docs.python.org/3/library/difflib.html#difflib.SequenceMatcher
 * @example
 * ```ts
 * similarity("abcd", "bcde"); // 0.75
 * ```
 */
export function similarity(a: string, b: string): number {
  const [aPoints, bPoints] = [Array.from(a), Array.from(b)];
  if (aPoints.length + bPoints.length === 0) return 1;
  return (2 * matchedLength(aPoints, bPoints, positionsOf(bPoints))) / (aPoints.length + bPoints.length);
}

/** Returns the positions of each code point in `b`, without the popular code points of a long text. */
function positionsOf(b: readonly string[]): ReadonlyMap<string, readonly number[]> {
  const positions = new Map<string, number[]>();
  b.forEach((point, index) => {
    const indices = positions.get(point);
    if (indices === undefined) positions.set(point, [index]);
    else indices.push(index);
  });
  if (b.length < AUTOJUNK_LENGTH) return positions;
  const maxOccurrences = Math.floor(b.length / 100) + 1;
  for (const [point, indices] of positions) if (indices.length > maxOccurrences) positions.delete(point);
  return positions;
}

/** Counts the code points in all matching blocks. */
function matchedLength(a: readonly string[], b: readonly string[], positions: ReadonlyMap<string, readonly number[]>): number {
  let total = 0;
  const pending: Range[] = [[0, a.length, 0, b.length]];
  for (let range = pending.pop(); range !== undefined; range = pending.pop()) {
    const [aStart, aEnd, bStart, bEnd] = range;
    const block = extendedBlock(a, b, longestBlock(a, positions, range), range);
    if (block.size === 0) continue;
    total += block.size;
    const [aBlockEnd, bBlockEnd] = [block.a + block.size, block.b + block.size];
    if (aStart < block.a && bStart < block.b) pending.push([aStart, block.a, bStart, block.b]);
    if (aBlockEnd < aEnd && bBlockEnd < bEnd) pending.push([aBlockEnd, aEnd, bBlockEnd, bEnd]);
  }
  return total;
}

/** Finds the longest common block inside a range. Ties are resolved by the first start in `a`, then in `b`. */
function longestBlock(a: readonly string[], positions: ReadonlyMap<string, readonly number[]>, [aStart, aEnd, bStart, bEnd]: Range): Block {
  let longest: Block = { a: aStart, b: bStart, size: 0 };
  // Sizes of the common blocks that end at the previous code point of `a`, by their end in `b`. Sparse: most positions match nothing.
  let previousSizes = new Map<number, number>();
  for (let i = aStart; i < aEnd; i++) {
    const sizes = new Map<number, number>();
    for (const j of positions.get(a[i] as string) ?? []) {
      if (j < bStart) continue;
      if (j >= bEnd) break;
      const size = (previousSizes.get(j - 1) ?? 0) + 1;
      sizes.set(j, size);
      if (size > longest.size) longest = { a: i - size + 1, b: j - size + 1, size };
    }
    previousSizes = sizes;
  }
  return longest;
}

/** Extends a block in both directions, including over popular code points, which cannot start a block. */
function extendedBlock(a: readonly string[], b: readonly string[], block: Block, [aStart, aEnd, bStart, bEnd]: Range): Block {
  let { a: aFirst, b: bFirst } = block;
  while (aFirst > aStart && bFirst > bStart && a[aFirst - 1] === b[bFirst - 1]) [aFirst, bFirst] = [aFirst - 1, bFirst - 1];
  let [aNext, bNext] = [block.a + block.size, block.b + block.size];
  while (aNext < aEnd && bNext < bEnd && a[aNext] === b[bNext]) [aNext, bNext] = [aNext + 1, bNext + 1];
  return { a: aFirst, b: bFirst, size: aNext - aFirst };
}
