import { ConfigError } from "../errors.ts";
import type { AssistantChoice, RequestMessage } from "../schema/index.ts";
import type { Scalar } from "../trajectory/index.ts";

/** Read-only view of a rollout for reward functions. */
export interface ScoredTrajectory {
  /** Returns the conversation as plain messages, choices converted to assistant messages. */
  messages(): RequestMessage[];
  /** Sampled turns, oldest first. */
  readonly choices: readonly AssistantChoice[];
  /** Text of the last item; `""` for an empty conversation. */
  readonly lastText: string;
  readonly metrics: Readonly<Record<string, number | boolean>>;
  readonly metadata: Readonly<Record<string, Scalar>>;
}

/** Argument of a reward function. */
export interface RewardInput<S> {
  readonly scenario: S;
  /** Text of the conversation's last item; in most tasks, the answer. */
  readonly text: string;
  readonly trajectory: ScoredTrajectory;
  readonly signal: AbortSignal;
}

/** Function that scores a rollout with a finite number, or a boolean (1 or 0). */
export type RewardFunction<S> = (input: RewardInput<S>) => number | boolean | Promise<number | boolean>;

/** Named component of an environment's reward. */
export interface Reward<S> {
  /** Name of the reward; its raw value is recorded as the metric `reward/<name>`. */
  readonly name: string;
  /** Factor of the raw value in the total reward; finite. 0 records the value without rewarding it. */
  readonly weight: number;
  readonly score: RewardFunction<S>;
}

/** Accepted forms of a reward: a {@link Reward} with an optional weight (default 1), or a named function (its name, weight 1). */
export type RewardLike<S> = RewardFunction<S> | (Omit<Reward<S>, "weight"> & { readonly weight?: number | undefined });

/**
 * Creates a named reward of weight 1.
 *
 * @param name - Name of the reward; not empty.
 * @param score - Function that returns the raw value.
 * @throws ConfigError `E_CONFIG` for an empty name or if `score` is not a function.
 * @example
 * ```ts
 * reward("exact", ({ scenario, text }: RewardInput<{ answer: string }>) => text.trim() === scenario.answer);
 * ```
 */
export function reward<S>(name: string, score: RewardFunction<S>): Reward<S> {
  if (typeof name !== "string" || name.trim() === "") throw new ConfigError("Expected a reward to have a name", { param: "name" });
  if (typeof score !== "function") {
    throw new ConfigError(`Expected reward \`${name}\` to be a function of \`{ scenario, text, trajectory }\`, got ${typeof score}`, {
      param: "rewards",
    });
  }
  return Object.freeze({ name, weight: 1, score });
}

/**
 * Returns a copy of a reward with its weight multiplied by `weight`.
 *
 * @param weight - Finite; negative for a penalty, 0 to record without rewarding.
 * @param part - Reward or named function.
 * @throws ConfigError `E_CONFIG` for a weight that is not finite, or a function without a name.
 * @example
 * ```ts
 * weighted(0.2, reward("short", ({ text }) => text.length < 100));
 * ```
 */
export function weighted<S>(weight: number, part: RewardLike<S>): Reward<S> {
  if (!Number.isFinite(weight)) throw new ConfigError(`Expected a reward's weight to be finite, got \`${weight}\``, { param: "weight" });
  const { name, weight: own, score } = normalizedReward(part);
  return Object.freeze({ name, weight: weight * own, score });
}

/** Converts a {@link RewardLike} to a {@link Reward}; a named function gets weight 1. @throws ConfigError `E_CONFIG` if invalid. */
export function normalizedReward<S>(part: RewardLike<S>): Reward<S> {
  if (typeof part === "function") {
    if (part.name !== "") return reward(part.name, part);
    throw new ConfigError("A reward function without a name cannot be told from others; write `reward(name, fn)`", { param: "rewards" });
  }
  const { name, score } = reward(part.name, part.score);
  const { weight = 1 } = part;
  if (Number.isFinite(weight)) return Object.freeze({ name, weight, score });
  throw new ConfigError(`Expected the weight of reward \`${name}\` to be finite, got \`${String(weight)}\``, { param: "rewards" });
}
