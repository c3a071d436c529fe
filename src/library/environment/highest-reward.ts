import type { Environment } from "./environment.ts";

/** Returns the maximum total reward if all raw rewards are in [0, 1]: the sum of the positive weights; 1 without rewards. */
export function highestReward({ rewards, groupRewards }: Pick<Environment<never>, "rewards" | "groupRewards">): number {
  const parts = [...rewards, ...groupRewards];
  if (parts.length === 0) return 1;
  return parts.reduce((sum, { weight }) => sum + Math.max(0, weight), 0);
}
