/**
 * Similarity of two texts as Python's `difflib.SequenceMatcher(None, a, b).ratio()`: `2·M / (|a| + |b|)`, where `M` counts the
 * characters in matching blocks, found by taking the longest common block and recursing left and right of it
 * (Ratcliff and Obershelp). It is not the longest common subsequence.
 *
 * As in Python, once `b` has 200 characters those that make up more than 1 % of it plus one start no block ("autojunk").
 *
 * @returns In [0, 1]; 1 for two empty texts.
 * @source https://docs.python.org/3/library/difflib.html#difflib.SequenceMatcher
 */
export function sequenceRatio(a: string, b: string): number {
  const [left, right] = [Array.from(a), Array.from(b)];
  if (left.length + right.length === 0) return 1;
  const places = new Map<string, number[]>();
  right.forEach((character, index) => places.set(character, [...(places.get(character) ?? []), index]));
  if (right.length >= AUTOJUNK_LENGTH) {
    const most = Math.floor(right.length / 100) + 1;
    for (const [character, indices] of places) if (indices.length > most) places.delete(character);
  }
  return (2 * matches(left, right, places)) / (left.length + right.length);
}

const AUTOJUNK_LENGTH = 200;

/** Characters in all matching blocks. */
function matches(a: readonly string[], b: readonly string[], places: ReadonlyMap<string, readonly number[]>): number {
  let total = 0;
  const pending: [number, number, number, number][] = [[0, a.length, 0, b.length]];
  for (let range = pending.pop(); range; range = pending.pop()) {
    const [aStart, aEnd, bStart, bEnd] = range;
    const block = longestBlock(a, b, places, range);
    if (block.size === 0) continue;
    total += block.size;
    pending.push([aStart, block.a, bStart, block.b], [block.a + block.size, aEnd, block.b + block.size, bEnd]);
  }
  return total;
}

/** The longest common block inside a range; of several, the one that starts first in `a`, then in `b`. */
function longestBlock(
  a: readonly string[],
  b: readonly string[],
  places: ReadonlyMap<string, readonly number[]>,
  [aStart, aEnd, bStart, bEnd]: readonly [number, number, number, number],
): { a: number; b: number; size: number } {
  let best = { a: aStart, b: bStart, size: 0 };
  let lengths = new Map<number, number>();
  for (let i = aStart; i < aEnd; i++) {
    const next = new Map<number, number>();
    for (const j of places.get(a[i]!) ?? []) {
      if (j < bStart || j >= bEnd) continue;
      const size = (lengths.get(j - 1) ?? 0) + 1;
      next.set(j, size);
      if (size > best.size) best = { a: i - size + 1, b: j - size + 1, size };
    }
    lengths = next;
  }
  // Popular characters start no block, but one that was found grows over them.
  while (best.a > aStart && best.b > bStart && a[best.a - 1] === b[best.b - 1])
    best = { a: best.a - 1, b: best.b - 1, size: best.size + 1 };
  while (best.a + best.size < aEnd && best.b + best.size < bEnd && a[best.a + best.size] === b[best.b + best.size]) best.size++;
  return best;
}
