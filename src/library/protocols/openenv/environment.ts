/** Environment whose rollouts are played on an OpenEnv server. */
import { defineEnvironment, type Environment, type ScenarioSource } from "../../environment/index.ts";
import { runAgent } from "../../rollout/agent/index.ts";
import type { JsonObject, RequestMessage } from "../../../base/schema/index.ts";
import { trajectory } from "../../../base/trajectory/index.ts";
import type { EnvironmentAgentOptions } from "../episode/client-options.ts";
import { connectOpenEnv, type OpenEnvOptions } from "./session.ts";

/** Arguments of {@link openEnvEnvironment}. */
export interface OpenEnvEnvironmentOptions extends Omit<OpenEnvOptions, "signal"> {
  /** Name of the environment, for records. */
  readonly name: string;
  /** Address of the server, http or https. */
  readonly baseUrl: string;
  /** Parameters of `reset`, one object per scenario, such as `{ seed: 1 }`. */
  readonly scenarios: {
    /** Scenarios to train on. */
    readonly train: ScenarioSource<JsonObject>;
    /** Scenarios to evaluate on. */
    readonly eval: readonly JsonObject[];
  };
  /**
   * Returns the initial messages of a rollout from the observation of `reset`, in which many environments state the task; its fields are
   * the environment's own.
   */
  readonly messages: (observation: JsonObject, scenario: JsonObject) => readonly RequestMessage[];
  /** Settings of the agent, for every rollout. @default {} */
  readonly agent?: EnvironmentAgentOptions | undefined;
}

/**
 * Returns an environment that is played on an OpenEnv server: one session per rollout, the tools of the server, and
 * the sum of the rewards of all steps as reward. The session is closed when the rollout ends, fails or is aborted.
 *
 * @param options - Server, scenarios and messages.
 * @returns an environment for `trainRl` and `evaluate`; its rollouts fail with the errors of {@link OpenEnvSession}.
 * @throws ConfigError `E_CONFIG` as `defineEnvironment`.
 * @example
 * ```ts
 * const counter = openEnvEnvironment({
 *   name: "counter",
 *   baseUrl: "http://127.0.0.1:8000",
 *   scenarios: { train: (index) => ({ seed: index }), eval: [{ seed: -1 }] },
 *   messages: () => [{ role: "user", content: "Count to 3 with the tool." }],
 * });
 * ```
 */
export function openEnvEnvironment(options: OpenEnvEnvironmentOptions): Environment<JsonObject> {
  const { name, baseUrl, scenarios, messages, agent = {}, headers, timeoutMs } = options;
  return defineEnvironment<JsonObject>({
    name,
    scenarios,
    async rollout(scenario, { policy, sampling }) {
      await using session = await connectOpenEnv(baseUrl, { headers, timeoutMs, signal: sampling.signal });
      const { observation } = await session.reset(scenario);
      const t = trajectory({ messages: [...messages(observation, scenario)], tools: await session.tools() });
      await runAgent(t, policy, { ...agent, ...sampling, isDone: () => session.isDone });
      return t.finish({ reward: session.reward });
    },
  });
}
