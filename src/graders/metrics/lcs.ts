/** Longest common subsequences (LCS). */

/**
 * Returns the length of the longest common subsequence. The time is proportional to the product of the lengths, divided by 64.
 *
 * Each bit of `open` stands for a position of `a` at which the length does not increase; an addition moves all of them for one token of `b`.
 *
 * @source H. Hyyrö, "Bit-Parallel LCS-length Computation Revisited", AWOCA 2004.
 */
export function lcsLength(a: readonly string[], b: readonly string[]): number {
  const positions = new Map<string, bigint>();
  a.forEach((token, index) => positions.set(token, (positions.get(token) ?? 0n) | (1n << BigInt(index))));
  const all = (1n << BigInt(a.length)) - 1n;
  let open = all;
  for (const token of b) {
    const matches = positions.get(token);
    if (matches === undefined) continue;
    const used = open & matches;
    open = ((open + used) | (open - used)) & all;
  }
  return a.length - open.toString(2).replaceAll("0", "").length;
}

/**
 * Returns a limit per position of `b`: the LCS of `a` and the range of `b` from `start` to `end` (exclusive) is the number of positions in
 * the range with a limit below `start`. One pass over all pairs of tokens therefore gives the LCS for every range.
 *
 * @source C. E. R. Alves, E. N. Cáceres, S. W. Song, "An all-substrings common subsequence algorithm", Discrete Applied Mathematics 156, 2008.
 */
export function rangeLimits(a: readonly string[], b: readonly string[]): Int32Array {
  const limits = Int32Array.from(b, (_, index) => index);
  for (const token of a) {
    let carried = -1;
    for (let index = 0; index < b.length; index++) {
      const limit = limits[index]!;
      if (token === b[index]) {
        limits[index] = carried;
        carried = limit;
      } else if (carried > limit) {
        limits[index] = carried;
        carried = limit;
      }
    }
  }
  return limits;
}
