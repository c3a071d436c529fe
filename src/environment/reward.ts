import { ConfigError } from "../errors.ts";
import type { AssistantChoice, RequestMessage } from "../schema/index.ts";
import type { Scalar } from "../trajectory/index.ts";

/** A rollout as a reward sees it. */
export interface ScoredTrajectory {
  /** The plain conversation, choices as assistant messages. */
  messages(): RequestMessage[];
  /** The sampled turns, oldest first. */
  readonly choices: readonly AssistantChoice[];
  /** Text of the last item, `""` if there is none. */
  readonly lastText: string;
  readonly metrics: Readonly<Record<string, number | boolean>>;
  readonly metadata: Readonly<Record<string, Scalar>>;
}

/** What a reward function gets. */
export interface RewardInput<S> {
  readonly scenario: S;
  /** The last text of the conversation; of most tasks, the answer. */
  readonly text: string;
  readonly trajectory: ScoredTrajectory;
  readonly signal: AbortSignal;
}

/** Scores a rollout: a finite number, or a boolean (1 or 0). */
export type RewardFunction<S> = (input: RewardInput<S>) => number | boolean | Promise<number | boolean>;

/** One named part of an environment's reward. */
export interface Reward<S> {
  /** Its raw value is the metric `reward/<name>`. */
  readonly name: string;
  /** Its factor in the total; finite. 0 records the value without rewarding it. */
  readonly weight: number;
  readonly score: RewardFunction<S>;
}

/** What counts as a reward: a whole one, one without weight (1), or a named function (its name, weight 1). */
export type RewardLike<S> = RewardFunction<S> | (Omit<Reward<S>, "weight"> & { readonly weight?: number | undefined });

/**
 * A named reward of weight 1.
 *
 * @throws ConfigError `E_CONFIG` for an empty name or no function.
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
 * The same reward with its weight multiplied by `weight`.
 *
 * @param weight - Finite; negative for a penalty, 0 to record without rewarding.
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

/** A reward as environments keep it; a named function becomes one of weight 1. */
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
