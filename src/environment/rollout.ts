import { ArgumentError, isAbort } from "../errors.ts";
import { isRetryable, type Rollout } from "../rollout/index.ts";
import { Trajectory, TrajectoryBuilder } from "../trajectory/index.ts";
import type { Environment } from "./environment.ts";
import { RewardError } from "./errors.ts";
import type { RewardInput } from "./reward.ts";
import { scenarioIdOf } from "./scenarios.ts";

/** Prefix of the metrics with the raw values of rewards. */
export const METRIC_PREFIX = "reward/";

/**
 * Returns a rollout for `gatherTrajectoryGroups` that plays the scenario, scores it and finishes the trajectory. The total reward is
 * `Σ weight · value`; each raw value is recorded as the metric `reward/<name>`, and the metadata get `scenario_id`.
 *
 * A reward that throws or is not finite fails only its own rollout with a `RewardError`; the other rollouts of the group continue.
 *
 * @param environment - Environment to play and score.
 * @example
 * ```ts
 * const groups = await gatherTrajectoryGroups(environment.scenarios.eval, environmentRollout(environment), { policy, groupSize: 4 });
 * ```
 */
export function environmentRollout<S>(environment: Environment<S>): Rollout<S> {
  return async (scenario, context) => {
    const played: unknown = await environment.rollout(scenario, context);
    return scored(environment, scenario, finished(environment, played), context.signal);
  };
}

/** Converts the return value of an environment's rollout to a trajectory that is not scored yet. @throws ArgumentError `E_ARGUMENT`. */
function finished<S>({ name, rewards }: Environment<S>, played: unknown): Trajectory {
  if (played instanceof Trajectory) return played;
  if (!(played instanceof TrajectoryBuilder)) {
    throw new ArgumentError(
      `Expected the rollout of environment \`${name}\` to return its trajectory, got ${typeof played}: end it with \`return t\``,
    );
  }
  if (rewards.length > 0) return played.finish({ reward: 0 });
  throw new ArgumentError(
    `Environment \`${name}\` has no rewards, so its rollout must give one: \`return t.finish({ reward })\`, or list \`rewards\``,
  );
}

/** Returns a scored copy of a trajectory. Reward metrics of an earlier scoring are removed because they are not part of the new total. */
export async function scored<S>(environment: Environment<S>, scenario: S, played: Trajectory, signal: AbortSignal): Promise<Trajectory> {
  const changes = { metadata: { scenario_id: scenarioIdOf(environment, scenario) } };
  if (environment.rewards.length === 0) return played.with(changes);
  const values = await rewardValues(environment, scenario, { scenario, text: played.lastText, trajectory: played, signal });
  const stale = Object.keys(played.metrics).filter((name) => name.startsWith(METRIC_PREFIX));
  const metrics = {
    ...Object.fromEntries(stale.map((name) => [name, undefined])),
    ...Object.fromEntries(values.map(({ name, value }) => [METRIC_PREFIX + name, value])),
  };
  return played.with({ ...changes, metrics, reward: values.reduce((sum, { weight, value }) => sum + weight * value, 0) });
}

/** Raw value of one reward. */
interface RewardValue {
  readonly name: string;
  readonly weight: number;
  readonly value: number;
}

/** Computes all rewards sequentially, in the order of the list. */
async function rewardValues<S>(environment: Environment<S>, scenario: S, input: RewardInput<S>): Promise<RewardValue[]> {
  const values: RewardValue[] = [];
  for (const { name, weight, score } of environment.rewards) {
    input.signal.throwIfAborted();
    const where = () => `Reward \`${name}\` of environment \`${environment.name}\`, scenario \`${scenarioIdOf(environment, scenario)}\`,`;
    let value: unknown;
    try {
      value = await score(input);
    } catch (error) {
      if (isAbort(error)) throw error;
      throw new RewardError(`${where()} failed with ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`, {
        cause: error,
        // For example, a judge model that was overloaded may succeed on a retry.
        retryable: isRetryable(error),
      });
    }
    if (typeof value !== "boolean" && !(typeof value === "number" && Number.isFinite(value))) {
      throw new RewardError(`${where()} must give a finite number or a boolean, got \`${String(value)}\` (${typeof value})`);
    }
    values.push({ name, weight, value: Number(value) });
  }
  return values;
}
