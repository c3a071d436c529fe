import { ConfigError } from "../errors.ts";
import type { RolloutContext } from "../rollout/index.ts";
import type { RequestMessage } from "../schema/index.ts";
import type { Trajectory, TrajectoryBuilder } from "../trajectory/index.ts";
import { normalizedReward, type Reward, type RewardLike } from "./reward.ts";

/** Scenarios: a list, or an endless supply as a pure function of the index (so that a resumed run gets the same ones). */
export type ScenarioSource<S> = readonly S[] | ((index: number) => S);

/** What an environment's rollout gets beside its scenario: a rollout's context. Its policy is the one that is trained or evaluated. */
export type EnvironmentContext = RolloutContext;

/** A task that a policy is trained and measured on: scenarios, how to play one, and what it is worth. */
export interface Environment<S> {
  readonly name: string;
  readonly scenarios: { readonly train: ScenarioSource<S>; readonly eval: readonly S[] };
  /** Gives the unfinished builder (the rewards finish it), or a finished trajectory (its reward is replaced when there are rewards). */
  readonly rollout: (scenario: S, context: EnvironmentContext) => Promise<TrajectoryBuilder | Trajectory>;
  /** What the total reward is the weighted sum of. */
  readonly rewards: readonly Reward<S>[];
  /** The right answer, for `validate`: the text of the last assistant turn, or the messages after the prompt. */
  readonly gold?: ((scenario: S) => string | readonly RequestMessage[]) | undefined;
  /** A name for a scenario that never changes. @default its string `id`, else the first 16 hex digits of the SHA-256 of its JSON */
  readonly scenarioId?: ((scenario: S) => string) | undefined;
}

/** What {@link defineEnvironment} takes: as {@link Environment}, but a plain named function is a reward too. */
export interface EnvironmentDefinition<S> extends Omit<Environment<S>, "rewards"> {
  /**
   * A named function counts as a reward of its name with weight 1. Functions and `{ name, score }` written here know the type of
   * `scenario`; inside a call such as `reward(…)` TypeScript cannot pass it on: annotate with `RewardInput<S>`.
   *
   * @default [] (the rollout gives its own reward)
   */
  readonly rewards?: readonly RewardLike<NoInfer<S>>[] | undefined;
}

/**
 * Describes a task once; `trainRl`, `evaluate`, `validate` and `rescore` all take it.
 *
 * @throws ConfigError `E_CONFIG` for an empty name, scenarios that are none, or rewards without a name of their own.
 * @example
 * ```ts
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
  const { name, scenarios, rollout, gold, scenarioId } = definition;
  if (typeof name !== "string" || name.trim() === "") throw new ConfigError("Expected an environment to have a `name`", { param: "name" });
  checkScenarios(name, scenarios);
  checkFunction(name, "rollout", rollout);
  if (gold !== undefined) checkFunction(name, "gold", gold);
  if (scenarioId !== undefined) checkFunction(name, "scenarioId", scenarioId);
  const rewards = (definition.rewards ?? []).map((each) => normalizedReward<S>(each));
  const twice = rewards.find((each, index) => rewards.findIndex((other) => other.name === each.name) !== index);
  if (twice !== undefined) {
    throw new ConfigError(
      `Environment \`${name}\` has two rewards named \`${twice.name}\`; give each its own name with \`reward(name, fn)\``,
      { param: "rewards" },
    );
  }
  return Object.freeze({ name, scenarios, rollout, rewards: Object.freeze(rewards), gold, scenarioId });
}

function checkScenarios(name: string, scenarios: unknown): void {
  const { train, eval: held } = (typeof scenarios === "object" && scenarios !== null ? scenarios : {}) as {
    readonly train?: unknown;
    readonly eval?: unknown;
  };
  if (typeof train !== "function" && !(Array.isArray(train) && train.length > 0)) {
    throw new ConfigError(
      `Expected \`scenarios.train\` of environment \`${name}\` to be a list with scenarios, or a function of an index`,
      {
        param: "scenarios.train",
      },
    );
  }
  if (!Array.isArray(held)) {
    throw new ConfigError(`Expected \`scenarios.eval\` of environment \`${name}\` to be a list of scenarios; \`[]\` if there are none`, {
      param: "scenarios.eval",
    });
  }
}

function checkFunction(name: string, param: string, value: unknown): void {
  if (typeof value === "function") return;
  throw new ConfigError(`Expected \`${param}\` of environment \`${name}\` to be a function, got ${typeof value}`, { param });
}
