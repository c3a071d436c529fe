/** Assignment of problems to disjoint splits, so that no reported problem is trained on. */

/** Split of a problem: `sft` for the examples, `train` for RL, `validation` for early stopping, `held-out` for reporting. */
export type Split = "train" | "sft" | "validation" | "held-out";

/** Splits by number; the number is a coordinate of the random draws. */
export const SPLITS: readonly Split[] = ["train", "sft", "validation", "held-out"];

/**
 * Returns the split of a problem by a hash of its text, independent of the seed. `shares` are sixteenths, in the order of {@link SPLITS}.
 */
export function splitByHash(text: string, shares: readonly [number, number, number, number]): Split {
  let hash = 2166136261;
  for (const character of text) hash = Math.imul(hash ^ character.charCodeAt(0), 16777619) >>> 0;
  // Extra mixing, because the low bits of this hash hardly depend on the first characters.
  let left = (Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d) >>> 12) % 16;
  for (const [index, share] of shares.entries()) {
    if (left < share) return SPLITS[index] as Split;
    left -= share;
  }
  throw new RangeError(`Expected shares that add up to 16, got ${shares.join(" + ")}`);
}
