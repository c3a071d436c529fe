/** Upper bound of an environment's total reward, the default by which `evaluate` and `validate` judge an answer. */
import type { Environment } from "./environment.ts";

/** Returns the maximum total reward if all raw rewards are in [0, 1]: the sum of the positive weights; 1 without rewards. */
export function highestReward({ rewards, groupRewards }: Pick<Environment<never>, "rewards" | "groupRewards">): number {
  const components = [...rewards, ...groupRewards];
  if (components.length === 0) return 1;
  return components.reduce((sum, { weight }) => sum + Math.max(0, weight), 0);
}
