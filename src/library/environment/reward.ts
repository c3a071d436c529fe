/** Construction of rewards: a name, a score and a weight. */
import { ConfigError } from "../../base/errors.ts";
import { normalizedReward, type Reward, type RewardFunction, type RewardLike } from "../../base/trajectory/scoring.ts";

/**
 * Creates a named reward of weight 1.
 *
 * @param name - Name of the reward; not empty.
 * @param score - Function that returns the raw value.
 * @returns the frozen reward.
 * @throws ConfigError `E_CONFIG` for an empty name or if `score` is not a function.
 * @example
 * ```ts
 * import type { RewardInput } from "whetstone/environment";
 *
 * reward("exact", ({ scenario, text }: RewardInput<{ answer: string }>) => text.trim() === scenario.answer);
 * ```
 */
export function reward<S>(name: string, score: RewardFunction<S>): Reward<S> {
  return normalizedReward({ name, score });
}

/**
 * Returns a copy of a reward with its weight multiplied by `weight`.
 *
 * @param weight - Finite; negative for a penalty, 0 to record without rewarding.
 * @param part - Reward or named function.
 * @returns the frozen copy.
 * @throws ConfigError `E_CONFIG` for a weight that is not finite, or a function without a name.
 * @example
 * ```ts
 * weighted(0.2, reward("short", ({ text }) => text.length < 100));
 * ```
 */
export function weighted<S>(weight: number, part: RewardLike<S>): Reward<S> {
  if (!Number.isFinite(weight)) throw new ConfigError(`Expected a reward's weight to be finite, got \`${weight}\``, { param: "weight" });
  const { name, weight: currentWeight, score } = normalizedReward(part);
  return Object.freeze({ name, weight: weight * currentWeight, score });
}
