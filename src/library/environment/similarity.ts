/** Block of code points that both texts have. */
interface Block {
  /** Start in `a`. */
  readonly a: number;
  /** Start in `b`. */
  readonly b: number;
  /** Length. */
  readonly size: number;
}

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
  const [left, right] = [Array.from(a), Array.from(b)];
  if (left.length + right.length === 0) return 1;
  return (2 * matched(left, right, positionsOf(right))) / (left.length + right.length);
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
function matched(a: readonly string[], b: readonly string[], positions: ReadonlyMap<string, readonly number[]>): number {
  let total = 0;
  /** Ranges to compare: start and end in `a`, start and end in `b`. */
  const pending: [number, number, number, number][] = [[0, a.length, 0, b.length]];
  for (let range = pending.pop(); range !== undefined; range = pending.pop()) {
    const [aStart, aEnd, bStart, bEnd] = range;
    const block = grown(a, b, longestBlock(a, positions, range), range);
    if (block.size === 0) continue;
    total += block.size;
    if (aStart < block.a && bStart < block.b) pending.push([aStart, block.a, bStart, block.b]);
    if (block.a + block.size < aEnd && block.b + block.size < bEnd) pending.push([block.a + block.size, aEnd, block.b + block.size, bEnd]);
  }
  return total;
}

/** Finds the longest common block inside a range. Ties are resolved by the first start in `a`, then in `b`. */
function longestBlock(
  a: readonly string[],
  positions: ReadonlyMap<string, readonly number[]>,
  [aStart, aEnd, bStart, bEnd]: readonly [number, number, number, number],
): Block {
  let best: Block = { a: aStart, b: bStart, size: 0 };
  // Lengths of the common blocks that end at the previous code point of `a`, by their end in `b`. Sparse: most positions match nothing.
  let before = new Map<number, number>();
  for (let i = aStart; i < aEnd; i++) {
    const here = new Map<number, number>();
    for (const j of positions.get(a[i] as string) ?? []) {
      if (j < bStart) continue;
      if (j >= bEnd) break;
      const size = (before.get(j - 1) ?? 0) + 1;
      here.set(j, size);
      if (size > best.size) best = { a: i - size + 1, b: j - size + 1, size };
    }
    before = here;
  }
  return best;
}

/** Extends a block in both directions, including over popular code points, which cannot start a block. */
function grown(
  a: readonly string[],
  b: readonly string[],
  { a: aBlock, b: bBlock, size }: Block,
  [aStart, aEnd, bStart, bEnd]: readonly [number, number, number, number],
): Block {
  let [left, right] = [0, size];
  while (aBlock - left > aStart && bBlock - left > bStart && a[aBlock - left - 1] === b[bBlock - left - 1]) left++;
  while (aBlock + right < aEnd && bBlock + right < bEnd && a[aBlock + right] === b[bBlock + right]) right++;
  return { a: aBlock - left, b: bBlock - left, size: left + right };
}
