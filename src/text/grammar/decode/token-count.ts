/** Number of tokens of a mask. */

/**
 * Returns the number of set bits of a word.
 *
 * @source H. S. Warren, "Hacker's Delight", 2002, 5-1.
 */
function bitCount(word: number): number {
  let sums = word - ((word >>> 1) & 0x55_55_55_55);
  sums = (sums & 0x33_33_33_33) + ((sums >>> 2) & 0x33_33_33_33);
  return Math.imul((sums + (sums >>> 4)) & 0x0f_0f_0f_0f, 0x01_01_01_01) >>> 24;
}

/** Returns the number of tokens of a mask, of which each bit is a token. */
export function countTokens(mask: Uint32Array): number {
  let count = 0;
  for (let at = 0; at < mask.length; at++) count += bitCount(mask[at]!);
  return count;
}
