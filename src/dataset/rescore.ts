import { ArgumentError } from "../errors.ts";
import type { Trajectory } from "../trajectory/index.ts";

/** Input of a reward for a stored trajectory. */
export interface RescoreInput<S> {
  /** Result of the option `scenario` for this trajectory. */
  readonly scenario: S;
  /** Text of the last item. */
  readonly text: string;
  readonly trajectory: Trajectory;
  readonly signal: AbortSignal;
}

/** Reward function; returns a finite number or a boolean (1 or 0). */
export type RescoreFunction<S> = (input: RescoreInput<S>) => number | boolean | Promise<number | boolean>;

/** Reward as in environments; a named function counts as a reward of weight 1. */
export type RescoreReward<S> =
  | RescoreFunction<S>
  | { readonly name: string; readonly weight?: number | undefined; readonly score: RescoreFunction<S> };

/** Options of `Dataset.rescore`. */
export interface RescoreOptions<S> {
  /** Returns the scenario of a stored trajectory for rewards that read it, e.g. found by `metadata.scenario_id`. @default undefined */
  readonly scenario?: ((trajectory: Trajectory) => S | Promise<S>) | undefined;
  readonly signal?: AbortSignal | undefined;
}

interface NamedReward<S> {
  readonly name: string;
  readonly weight: number;
  readonly score: RescoreFunction<S>;
}

const PREFIX = "reward/";

/**
 * Checks rewards before any record is read.
 *
 * @throws ArgumentError `E_ARGUMENT` for an empty list, a reward without name or function, a weight that is not finite, or a duplicate
 *   name.
 */
export function checkedRewards<S>(rewards: readonly RescoreReward<S>[]): readonly NamedReward<S>[] {
  const refuse = (message: string) => new ArgumentError(message, { param: "rewards" });
  if (!Array.isArray(rewards) || rewards.length === 0) throw refuse("Expected `rewards` to be an array of at least one reward");
  const names = new Set<string>();
  return (rewards as readonly RescoreReward<S>[]).map((reward) => {
    const { name, weight = 1, score } = typeof reward === "function" ? { name: reward.name, score: reward } : reward;
    if (typeof score !== "function") throw refuse("Expected each reward to be a named function or `{ name, weight, score }`");
    if (typeof name !== "string" || name === "") throw refuse("Expected each reward to have a name; write `{ name, weight: 1, score }`");
    if (!Number.isFinite(weight)) throw refuse(`Expected reward \`${name}\` to have a finite weight, got \`${String(weight)}\``);
    if (names.has(name)) throw refuse(`Expected rewards to have different names, got \`${name}\` twice`);
    names.add(name);
    return { name, weight, score };
  });
}

/**
 * Returns the trajectory with the reward `Σ weight·value` and each raw value as the metric `reward/<name>`. Metrics of earlier rewards are
 * removed, because they no longer contribute to the total.
 *
 * @throws ArgumentError `E_ARGUMENT` for a value that is not finite.
 * @throws Any error of a reward, unchanged.
 */
export async function rescored<S>(
  trajectory: Trajectory,
  rewards: readonly NamedReward<S>[],
  { scenario, signal = new AbortController().signal }: RescoreOptions<S>,
): Promise<Trajectory> {
  signal.throwIfAborted();
  const input: RescoreInput<S> = {
    // The types require this option for rewards that read a scenario.
    scenario: (await scenario?.(trajectory)) as S,
    text: trajectory.lastText,
    trajectory,
    signal,
  };
  const metrics: Record<string, number | boolean | undefined> = {};
  for (const name of Object.keys(trajectory.metrics)) if (name.startsWith(PREFIX)) metrics[name] = undefined;
  let total = 0;
  for (const { name, weight, score } of rewards) {
    const value = Number(await score(input));
    if (!Number.isFinite(value)) {
      throw new ArgumentError(`Expected reward \`${name}\` to give a finite number or a boolean, got \`${value}\``, { param: "rewards" });
    }
    metrics[PREFIX + name] = value;
    total += weight * value;
  }
  return trajectory.with({ reward: total, metrics });
}
