/** Problems that are shared out among the stages of a recipe, so that none is trained on and reported. */

/** `sft` for the examples, `train` for practice, `validation` to decide when to stop, `held-out` to report. */
export type Split = "train" | "sft" | "validation" | "held-out";

/** Each split's number, for draws. */
export const SPLITS: readonly Split[] = ["train", "sft", "validation", "held-out"];

/** The split of a problem, by a hash of its text: the same whichever seed drew it. `shares` of sixteen, in the order of {@link SPLITS}. */
export function splitByHash(text: string, shares: readonly [number, number, number, number]): Split {
  let hash = 2166136261;
  for (const character of text) hash = Math.imul(hash ^ character.charCodeAt(0), 16777619) >>> 0;
  // The low bits of this hash hardly depend on the first characters.
  let left = (Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d) >>> 12) % 16;
  for (const [index, share] of shares.entries()) {
    if (left < share) return SPLITS[index] as Split;
    left -= share;
  }
  throw new RangeError(`Expected shares that add up to 16, got ${shares.join(" + ")}`);
}
