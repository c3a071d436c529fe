/** Rewards closer than this, relative to the largest of them (at least 1), are equal: float noise must not decide what is trained. */
const REWARD_TOLERANCE = 1e-12;

/**
 * Whether a group can train anything: `max(r) − min(r) > 1e-12 · max(1, max|r|)`. A group of one or none never can. The one
 * definition: statistics, preflight and the learner ask here.
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
