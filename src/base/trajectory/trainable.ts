/** Definition of a group that contributes to training by its rewards. `token-values.ts` extends it to supplied token advantages. */

/**
 * Relative tolerance below which rewards count as equal (relative to the largest absolute reward, at least 1), so that floating-point noise
 * does not make a group trainable.
 */
const REWARD_TOLERANCE = 1e-12;

/**
 * Whether a group contributes to training: `max(r) − min(r) > 1e-12 · max(1, max|r|)`. Always false for fewer than two rewards. Statistics,
 * preflight and the learner share this definition.
 *
 * @param rewards - Shape `[G]`, all finite.
 */
export function isTrainableGroup(rewards: readonly number[]): boolean {
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  for (const reward of rewards) {
    min = Math.min(min, reward);
    max = Math.max(max, reward);
  }
  return max - min > REWARD_TOLERANCE * Math.max(1, Math.abs(min), Math.abs(max));
}
