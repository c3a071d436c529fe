/** A piece of both texts, and where it starts in each. */
interface Block {
  readonly a: number;
  readonly b: number;
  readonly size: number;
}

/** From this length of `b` on, popular characters start no block. */
const AUTOJUNK_LENGTH = 200;

/**
 * How alike two texts are, as Python's `difflib.SequenceMatcher(None, a, b).ratio()` has it: `2·M / (|a| + |b|)`, where `M` counts
 * the code points in matching blocks, found by taking the longest common block and going on left and right of it (Ratcliff and
 * Obershelp). It is not the longest common subsequence, and `similarity(a, b)` need not be `similarity(b, a)`.
 *
 * As in Python, once `b` has 200 code points those that make up more than 1 % of it plus one start no block ("autojunk").
 *
 * @returns In [0, 1]; 1 for two empty texts. The time grows with the product of the lengths.
 * @source https://docs.python.org/3/library/difflib.html#difflib.SequenceMatcher
 * @example
 * ```ts
 * similarity("abcd", "bcde"); // 0.75
 * ```
 */
export function similarity(a: string, b: string): number {
  const [left, right] = [Array.from(a), Array.from(b)];
  if (left.length + right.length === 0) return 1;
  return (2 * matched(left, right, placesIn(right))) / (left.length + right.length);
}

/** Where each code point stands, the popular ones of a long text left out. */
function placesIn(b: readonly string[]): ReadonlyMap<string, readonly number[]> {
  const places = new Map<string, number[]>();
  b.forEach((point, index) => {
    const known = places.get(point);
    if (known === undefined) places.set(point, [index]);
    else known.push(index);
  });
  if (b.length < AUTOJUNK_LENGTH) return places;
  const most = Math.floor(b.length / 100) + 1;
  for (const [point, indices] of places) if (indices.length > most) places.delete(point);
  return places;
}

/** Code points in all matching blocks. */
function matched(a: readonly string[], b: readonly string[], places: ReadonlyMap<string, readonly number[]>): number {
  let total = 0;
  const pending: [number, number, number, number][] = [[0, a.length, 0, b.length]];
  for (let range = pending.pop(); range !== undefined; range = pending.pop()) {
    const [aStart, aEnd, bStart, bEnd] = range;
    const block = grown(a, b, longestBlock(a, places, range), range);
    if (block.size === 0) continue;
    total += block.size;
    if (aStart < block.a && bStart < block.b) pending.push([aStart, block.a, bStart, block.b]);
    if (block.a + block.size < aEnd && block.b + block.size < bEnd) pending.push([block.a + block.size, aEnd, block.b + block.size, bEnd]);
  }
  return total;
}

/** The longest common block inside a range; of several, the one that starts first in `a`, then in `b`. */
function longestBlock(
  a: readonly string[],
  places: ReadonlyMap<string, readonly number[]>,
  [aStart, aEnd, bStart, bEnd]: readonly [number, number, number, number],
): Block {
  let best: Block = { a: aStart, b: bStart, size: 0 };
  // Length of the block that ends at each place of `b` and at the code point before in `a`. Sparse: most places match nothing.
  let before = new Map<number, number>();
  for (let i = aStart; i < aEnd; i++) {
    const here = new Map<number, number>();
    for (const j of places.get(a[i] as string) ?? []) {
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

/** Popular code points start no block, but one that was found grows over them. */
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
