/** Rewards of single rollouts: their forms, and the weighted total of a trajectory. `group-scoring.ts` has the rewards of whole groups. */

import { ConfigError, isAbort, WhetstoneError, type WhetstoneErrorOptions } from "../errors.ts";
import type { AssistantChoice, RequestMessage } from "../schema/index.ts";
import { isRetryable } from "../util/retryable.ts";
import type { Scalar, Trajectory } from "./trajectory.ts";

/** Prefix of the metrics with the raw values of rewards. */
export const REWARD_PREFIX = "reward/";

/**
 * Read-only view of a rollout for reward functions.
 *
 * @example
 * ```ts
 * const assistantTurns = ({ trajectory }: RewardInput<unknown>): number =>
 *   trajectory.messages().filter(({ role }) => role === "assistant").length;
 * ```
 */
export interface ScoredTrajectory {
  /**
   * Returns the conversation as plain messages.
   *
   * @returns a new array, oldest first; choices are assistant messages without token ids.
   */
  messages(): RequestMessage[];
  /** Sampled turns, oldest first. */
  readonly choices: readonly AssistantChoice[];
  /** Text of the last item; `""` for an empty conversation. */
  readonly lastText: string;
  /** Metrics of the rollout by name. */
  readonly metrics: Readonly<Record<string, number | boolean>>;
  /** Metadata of the rollout by name. */
  readonly metadata: Readonly<Record<string, Scalar>>;
}

/** Argument of a reward function. */
export interface RewardInput<S> {
  /** Scenario that was played. */
  readonly scenario: S;
  /** Text of the conversation's last item; in most tasks, the answer. */
  readonly text: string;
  /** Rollout to score, with the messages, choices and metrics of the whole conversation. */
  readonly trajectory: ScoredTrajectory;
  /** Aborts with the run. Pass it to every operation that waits. */
  readonly signal: AbortSignal;
}

/** Value of a reward for one rollout, with additional data for its trajectory. */
export interface RewardScore {
  /** Finite number, or a boolean (1 or 0). */
  readonly value: number | boolean;
  /** Metrics added to the trajectory. Numbers of the same name from several rewards are added up. @default {} */
  readonly metrics?: Readonly<Record<string, number | boolean>> | undefined;
  /** Log lines appended to the trajectory. @default [] */
  readonly logs?: readonly string[] | undefined;
}

/** Result of a reward function: a finite number, a boolean (1 or 0), or either with metrics and log lines. */
export type RewardResult = number | boolean | RewardScore;

/** Function that scores a rollout. */
export type RewardFunction<S> = (input: RewardInput<S>) => RewardResult | Promise<RewardResult>;

/** Named component of the total reward. */
export interface Reward<S> {
  /** Name of the reward; its raw value is recorded as the metric `reward/<name>`. */
  readonly name: string;
  /** Factor of the raw value in the total reward; finite. 0 records the value without rewarding it. */
  readonly weight: number;
  /** Returns the raw value for one rollout, alone or with metrics and log lines. */
  readonly score: RewardFunction<S>;
}

/** Accepted forms of a reward: a {@link Reward} with an optional weight (default 1), or a named function (its name, weight 1). */
export type RewardLike<S> =
  | RewardFunction<S>
  | (Omit<Reward<S>, "weight"> & {
      /** Factor of the raw value in the total reward; finite. @default 1 */
      readonly weight?: number | undefined;
    });

/**
 * A reward function threw, or did not return a finite number or a boolean. During a run only the scored rollout fails, recorded as data;
 * the other rollouts of the group continue. Rescoring of stored trajectories stops. `cause` is the value thrown by the reward.
 */
export class RewardError extends WhetstoneError {
  readonly code = "E_REWARD";

  /**
   * Created by the scorer; the stack of an error in `cause` is appended to its own.
   *
   * @internal
   */
  constructor(message: string, options: WhetstoneErrorOptions = {}) {
    super(message, options);
    // A recorded exception keeps only the stack, and the relevant location is inside the reward function.
    if (options.cause instanceof Error) this.stack = `${this.stack}\n[cause] ${options.cause.stack}`;
  }
}

/** Converts a {@link RewardLike} to a {@link Reward}; the default weight is 1. @throws ConfigError `E_CONFIG` if invalid. */
export function normalizedReward<S>(part: RewardLike<S>): Reward<S> {
  const { name, weight = 1, score } = typeof part === "function" ? { name: part.name, score: part } : part;
  if (typeof name !== "string" || name.trim() === "") {
    throw new ConfigError("Expected a reward to have a name; write `{ name, score }` for a function without one", { param: "name" });
  }
  if (typeof score !== "function") {
    throw new ConfigError(`Expected reward \`${name}\` to be a function of \`{ scenario, text, trajectory }\`, got ${typeof score}`, {
      param: "rewards",
    });
  }
  if (Number.isFinite(weight)) return Object.freeze({ name, weight, score });
  throw new ConfigError(`Expected the weight of reward \`${name}\` to be finite, got \`${String(weight)}\``, { param: "rewards" });
}

/**
 * Converts a list of rewards.
 *
 * @param rewards - List; may be empty.
 * @param owner - Object that the rewards belong to, for the message of an error.
 * @throws ConfigError `E_CONFIG` if the value is not a list, a reward is invalid, or two rewards have the same name.
 */
export function normalizedRewards<S>(rewards: readonly RewardLike<S>[], owner: string): readonly Reward<S>[] {
  if (!Array.isArray(rewards)) {
    throw new ConfigError(`Expected the rewards of ${owner} to be a list, got ${typeof rewards}`, { param: "rewards" });
  }
  const names = new Set<string>();
  return Object.freeze(
    (rewards as readonly RewardLike<S>[]).map((part) => {
      const reward = normalizedReward(part);
      const isNew = !names.has(reward.name);
      names.add(reward.name);
      if (isNew) return reward;
      throw new ConfigError(`Expected the rewards of ${owner} to have different names, got \`${reward.name}\` twice`, { param: "rewards" });
    }),
  );
}

/** Parameters of {@link scored}. */
export interface ScoreParams<S> {
  /** At least one reward. */
  readonly rewards: readonly Reward<S>[];
  readonly scenario: S;
  /** Returns the description of the scored trajectory for the message of an error. */
  readonly subject: () => string;
  readonly signal: AbortSignal;
}

/**
 * Returns a copy of a trajectory with the reward `Σ weight · value` and each raw value as the metric `reward/<name>`. Calls the rewards one
 * after the other, in the order of the list. Reward metrics of an earlier scoring are removed because they are not part of the new total.
 *
 * @throws RewardError `E_REWARD` for the first reward that throws, or returns no valid {@link RewardResult}.
 * @throws the signal's reason.
 */
export async function scored<S>(trajectory: Trajectory, { rewards, scenario, subject, signal }: ScoreParams<S>): Promise<Trajectory> {
  const input: RewardInput<S> = { scenario, text: trajectory.lastText, trajectory, signal };
  const metrics: Record<string, number | boolean> = {};
  const logs: string[] = [];
  let total = 0;
  for (const reward of rewards) {
    signal.throwIfAborted();
    const score = await scoreOf(reward, input, subject);
    addMetrics(metrics, score.metrics);
    metrics[REWARD_PREFIX + reward.name] = score.value;
    logs.push(...score.logs);
    total += reward.weight * score.value;
  }
  return withScore(trajectory, { total, metrics, logs });
}

/**
 * Returns a copy of a trajectory with a new total reward, and with its metrics and logs added.
 *
 * @param isStale - Selects the recorded reward metrics that are removed. @default all
 */
export function withScore(
  trajectory: Trajectory,
  { total, metrics, logs }: { readonly total: number } & Pick<CheckedScore, "metrics" | "logs">,
  isStale: (name: string) => boolean = () => true,
): Trajectory {
  const staleNames = Object.keys(trajectory.metrics).filter((name) => name.startsWith(REWARD_PREFIX) && isStale(name));
  // `with` removes metrics that are undefined.
  const removals: Record<string, undefined> = Object.fromEntries(staleNames.map((name) => [name, undefined]));
  return trajectory.with({ reward: total, metrics: { ...removals, ...metrics }, logs });
}

/** Calls a reward and checks its result. @throws RewardError `E_REWARD` if the reward fails; the signal's reason if aborted. */
async function scoreOf<S>({ name, score }: Reward<S>, input: RewardInput<S>, subject: () => string): Promise<CheckedScore> {
  let value: unknown;
  try {
    value = await score(input);
  } catch (error) {
    if (isAbort(error) || (input.signal.aborted && error === input.signal.reason)) throw error;
    throw rewardFailure(`Reward \`${name}\` of ${subject()},`, error);
  }
  const checked = checkedScore(value);
  if (typeof checked !== "string") return checked;
  throw new RewardError(`Reward \`${name}\` of ${subject()}, ${checked}`);
}

/**
 * Returns the error of a reward that failed with `error`.
 *
 * @param site - Reward and scored object, as the start of the message.
 */
export function rewardFailure(site: string, error: unknown): RewardError {
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  // For example, a judge model that was overloaded may succeed on a retry.
  return new RewardError(`${site} failed with ${message}`, { cause: error, retryable: isRetryable(error) });
}

/** Valid result of a reward for one rollout. */
export interface CheckedScore {
  readonly value: number;
  readonly metrics: Readonly<Record<string, number | boolean>>;
  readonly logs: readonly string[];
}

/** Checks the result of a reward for one rollout. Returns the problem as the end of a sentence if the result is invalid. */
export function checkedScore(result: unknown): CheckedScore | string {
  const isDetailed = typeof result === "object" && result !== null && "value" in result;
  const { value, metrics, logs } = (isDetailed ? result : { value: result }) as Partial<Record<keyof RewardScore, unknown>>;
  if (typeof value !== "boolean" && !(typeof value === "number" && Number.isFinite(value))) {
    return `must give a finite number or a boolean, got \`${String(value)}\` (${typeof value})`;
  }
  const checkedMetrics = (metrics ?? {}) as Readonly<Record<string, number | boolean>>;
  for (const [name, metric] of Object.entries(checkedMetrics)) {
    if (typeof metric !== "boolean" && !Number.isFinite(metric))
      return `must give metrics that are finite numbers or booleans, got \`${String(metric)}\` for \`${name}\``;
  }
  return { value: Number(value), metrics: checkedMetrics, logs: (logs ?? []) as readonly string[] };
}

/** Adds metrics to `target`: numbers of the same name are added up, any other value replaces the present one. */
export function addMetrics(target: Record<string, number | boolean>, metrics: Readonly<Record<string, number | boolean>>): void {
  for (const [name, value] of Object.entries(metrics)) {
    const present = target[name];
    target[name] = typeof present === "number" && typeof value === "number" ? present + value : value;
  }
}
