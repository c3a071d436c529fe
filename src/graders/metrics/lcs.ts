/** Longest common subsequences (LCS). */
import { getOrInsert } from "../../base/util/values.ts";

/**
 * Returns the length of the longest common subsequence. The time is proportional to the product of the lengths, divided by 64.
 *
 * Bit `i` of `noGain` is 0 if the LCS with the tokens of `b` read so far is longer for `a[0…i]` than for `a[0…i-1]`. One addition updates
 * all bits for a token of `b`; the number of zeros at the end is the length.
 *
 * @source H. Hyyrö, "Bit-Parallel LCS-length Computation Revisited", AWOCA 2004.
 */
export function lcsLength(a: readonly string[], b: readonly string[]): number {
  const positions = new Map<string, bigint>();
  a.forEach((token, index) => positions.set(token, (positions.get(token) ?? 0n) | (1n << BigInt(index))));
  const allBits = (1n << BigInt(a.length)) - 1n;
  let noGain = allBits;
  for (const token of b) {
    const matches = positions.get(token);
    if (matches === undefined) continue;
    const matchedBits = noGain & matches;
    noGain = ((noGain + matchedBits) | (noGain - matchedBits)) & allBits;
  }
  return a.length - noGain.toString(2).replaceAll("0", "").length;
}

/**
 * Returns a limit per position of `b`: the LCS of `a` and the range of `b` from `start` to `end` (exclusive) is the number of positions in
 * the range with a limit below `start`. One pass over all pairs of tokens therefore gives the LCS for every range.
 *
 * Before the first token of `a`, the limit of each position is the position itself, so that no position of a range counts. Each token of `a`
 * then walks through `b` with a carried limit, at first -1: at a position with the same token, or with a limit below the carried one, both
 * limits are exchanged. The limits stay distinct, except for -1.
 *
 * @source C. E. R. Alves, E. N. Cáceres, S. W. Song, "An all-substrings common subsequence algorithm", Discrete Applied Mathematics 156,
 *   2008.
 */
export function rangeLimits(a: readonly string[], b: readonly string[]): Int32Array {
  const ids = new Map<string, number>();
  const tokens = Int32Array.from(b, (token) => getOrInsert(ids, token, () => ids.size));
  const limits = Int32Array.from(b, (_, index) => index);
  for (const token of a) {
    const id = ids.get(token);
    if (id === undefined) continue;
    let carriedLimit = -1;
    // No limit before the first occurrence of the token is below -1, so that nothing is exchanged there.
    for (let index = tokens.indexOf(id); index < tokens.length; index++) {
      const limit = limits[index]!;
      if (tokens[index] !== id && carriedLimit <= limit) continue;
      limits[index] = carriedLimit;
      carriedLimit = limit;
    }
  }
  return limits;
}

/**
 * Yields the LCS of `a` with each range of `b` of the length of `a`, and with the shorter ranges at the start and the end of `b`. The time
 * is proportional to the product of the lengths.
 *
 * @param a - At least one token, and at most as many as `b`.
 */
export function* windowLcs(a: readonly string[], b: readonly string[]): Generator<{ readonly length: number; readonly common: number }> {
  const limits = rangeLimits(a, b);
  /** Position by its limit; no two positions have the same limit, except for -1. */
  const positionOf = new Int32Array(b.length).fill(-1);
  limits.forEach((limit, index) => limit >= 0 && (positionOf[limit] = index));
  /** LCS of `a` with the range from `rangeStart` to `rangeEnd`. */
  let common = 0;
  let rangeEnd = 0;
  for (let rangeStart = 0; rangeStart < b.length; rangeStart++) {
    if (rangeStart > 0) {
      // The position before `rangeStart` leaves the range; the position with this limit, if in the range, now counts.
      if (limits[rangeStart - 1]! < rangeStart - 1) common--;
      const position = positionOf[rangeStart - 1]!;
      if (position >= rangeStart && position < rangeEnd) common++;
      if (rangeEnd === b.length) yield { length: rangeEnd - rangeStart, common };
    }
    while (rangeEnd < Math.min(b.length, rangeStart + a.length)) {
      if (limits[rangeEnd]! < rangeStart) common++;
      rangeEnd++;
      yield { length: rangeEnd - rangeStart, common };
    }
  }
}
