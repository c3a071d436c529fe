/** Definition of an environment: the task that training, evaluation, validation and rescoring have in common. */
import { ConfigError } from "../../base/errors.ts";
import type { RolloutContext } from "../rollout/index.ts";
import type { RequestMessage } from "../../base/schema/index.ts";
import type { Trajectory, TrajectoryBuilder } from "../../base/trajectory/index.ts";
import { normalizedGroupRewards, type GroupReward, type GroupRewardLike } from "../../base/trajectory/group-scoring.ts";
import { normalizedRewards, type Reward, type RewardLike } from "../../base/trajectory/scoring.ts";
import { isRecord } from "../../base/util/values.ts";

/**
 * Scenarios: a list, or for an unlimited supply a function of the index. The function is pure, so that a resumed run gets the same
 * scenarios.
 */
export type ScenarioSource<S> = readonly S[] | ((index: number) => S);

/** Second argument of an environment's rollout: the rollout context. Its `policy` is the policy that is trained or evaluated. */
export type EnvironmentContext = RolloutContext;

/** Task that a policy is trained and evaluated on: scenarios, a rollout that plays a scenario, and rewards. */
export interface Environment<S> {
  /** Name, recorded with evaluations and run configurations. */
  readonly name: string;
  /** Scenarios to train on, and scenarios held out for evaluation. */
  readonly scenarios: {
    /** Scenarios to train on. */
    readonly train: ScenarioSource<S>;
    /** Scenarios to evaluate on, not trained. */
    readonly eval: readonly S[];
  };
  /**
   * Plays a scenario. Returns its trajectory as an unfinished builder, which the rewards then finish, or finished. If the environment has
   * `rewards` or `groupRewards`, they replace the reward of a finished trajectory.
   */
  readonly rollout: (scenario: S, context: EnvironmentContext) => Promise<TrajectoryBuilder | Trajectory>;
  /** Reward components; the total reward is the weighted sum of them and of the group rewards. */
  readonly rewards: readonly Reward<S>[];
  /** Reward components that compare the rollouts of a scenario with each other. */
  readonly groupRewards: readonly GroupReward<S>[];
  /** Returns the right answer, for `validate`: the text of the last assistant turn, or the messages after the prompt. */
  readonly gold?: ((scenario: S) => string | readonly RequestMessage[]) | undefined;
  /**
   * File that defines the environment, as a path or URL: `import.meta.url`. Its content hash identifies the version of the environment for
   * workers; see `contentHash`. @default unknown; the commands use the file that they load
   */
  readonly source?: string | undefined;
  /** Returns a stable id of a scenario. @default its string `id`, else the first 16 hex digits of the SHA-256 of its JSON */
  readonly scenarioId?: ((scenario: S) => string) | undefined;
}

/** Environment with scenarios of any type. It receives only its own scenarios. */
export type AnyEnvironment = Omit<Environment<never>, "scenarios"> & Pick<Environment<unknown>, "scenarios">;

/** Input of {@link defineEnvironment}: as {@link Environment}, except that rewards may also be plain named functions. */
export interface EnvironmentDefinition<S> extends Omit<Environment<S>, "rewards" | "groupRewards"> {
  /**
   * Reward components. A named function is a reward of its name with weight 1. TypeScript infers the type of `scenario` for functions and
   * `{ name, score }` written here, but not inside a call such as `reward(…)`: annotate the argument with `RewardInput<S>`.
   *
   * @default [] (the rollout sets its own reward)
   */
  readonly rewards?: readonly RewardLike<NoInfer<S>>[] | undefined;
  /**
   * Reward components that are computed from all successful rollouts of a scenario, such as a ranking by a judge. Each returns one value
   * per trajectory. The total reward is `Σ weight · value` over `rewards` and `groupRewards`; the part of `rewards` (without any, the
   * reward that the rollout set itself) is recorded as the metric `independent_reward`.
   *
   * @default []
   */
  readonly groupRewards?: readonly GroupRewardLike<NoInfer<S>>[] | undefined;
}

/**
 * Defines a task for `trainRl`, `evaluate`, `validate` and `rescore`.
 *
 * @param definition - Name, scenarios, rollout and rewards. Checked here; the rollout and the rewards are not called.
 * @returns The frozen environment, with every reward as a {@link Reward}.
 * @throws ConfigError `E_CONFIG` for an empty name, invalid scenarios, a `rollout`, `gold` or `scenarioId` that is not a function, or
 *   rewards without a name or with the same name.
 * @example
 * ```ts
 * import { trajectory } from "whetstone";
 *
 * const environment = defineEnvironment({
 *   name: "sums",
 *   scenarios: { train: (index) => ({ a: index % 10, b: (index * 7) % 10 }), eval: [{ a: 2, b: 3 }] },
 *   async rollout({ a, b }, { policy, sampling }) {
 *     const t = trajectory({ messages: [{ role: "user", content: `${a}+${b}=` }] });
 *     await t.sample(policy, { maxCompletionTokens: 8, ...sampling });
 *     return t;
 *   },
 *   rewards: [{ name: "correct", score: ({ scenario, text }) => text.trim() === String(scenario.a + scenario.b) }],
 *   gold: ({ a, b }) => String(a + b),
 * });
 * ```
 */
export function defineEnvironment<S>(definition: EnvironmentDefinition<S>): Environment<S> {
  const { name, scenarios, rollout, gold, scenarioId, source } = definition;
  if (typeof name !== "string" || name.trim() === "") throw new ConfigError("Expected an environment to have a `name`", { param: "name" });
  checkScenarios(name, scenarios);
  checkFunction(name, "rollout", rollout);
  if (gold !== undefined) checkFunction(name, "gold", gold);
  if (scenarioId !== undefined) checkFunction(name, "scenarioId", scenarioId);
  if (source !== undefined && (typeof source !== "string" || source === ""))
    throw new ConfigError(`Expected \`source\` of environment \`${name}\` to be a path or URL, such as \`import.meta.url\``, {
      param: "source",
    });
  const owner = `environment \`${name}\``;
  const rewards = normalizedRewards<S>(definition.rewards ?? [], owner);
  const names = rewards.map((reward) => reward.name);
  const groupRewards = normalizedGroupRewards<S>(definition.groupRewards ?? [], owner, names);
  return Object.freeze({ name, scenarios, rollout, rewards, groupRewards, gold, scenarioId, ...(source === undefined ? {} : { source }) });
}

/** @throws ConfigError `E_CONFIG` if the scenarios of the environment `name` have the wrong types. */
function checkScenarios(name: string, scenarios: unknown): void {
  const { train, eval: heldOut } = isRecord(scenarios) ? scenarios : {};
  if (typeof train !== "function" && !(Array.isArray(train) && train.length > 0)) {
    const message = `Expected \`scenarios.train\` of environment \`${name}\` to be a list with scenarios, or a function of an index`;
    throw new ConfigError(message, { param: "scenarios.train" });
  }
  if (!Array.isArray(heldOut)) {
    const message = `Expected \`scenarios.eval\` of environment \`${name}\` to be a list of scenarios; \`[]\` if there are none`;
    throw new ConfigError(message, { param: "scenarios.eval" });
  }
}

/** @throws ConfigError `E_CONFIG` if the property `param` of the environment `name` is not a function. */
function checkFunction(name: string, param: string, value: unknown): void {
  if (typeof value === "function") return;
  throw new ConfigError(`Expected \`${param}\` of environment \`${name}\` to be a function, got ${typeof value}`, { param });
}
