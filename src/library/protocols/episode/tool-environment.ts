/** Environments that are defined by their tools, so that both this package and the clients of a server can play them. */
import { defineEnvironment, type Environment, type EnvironmentDefinition } from "../../environment/index.ts";
import { ConfigError } from "../../../base/errors.ts";
import { runAgent, type AgentTool } from "../../rollout/agent/index.ts";
import type { RequestMessage } from "../../../base/schema/index.ts";
import { trajectory } from "../../../base/trajectory/index.ts";
import type { EnvironmentAgentOptions } from "./client-options.ts";

/** Play of a scenario: its prompt and its tools, which share the state of this play. */
export interface Episode {
  /** Initial messages; at least one. */
  readonly messages: readonly RequestMessage[];
  /** Tools of the agent; may be empty. */
  readonly tools: readonly AgentTool[];
  /** Releases the resources of the episode; called once, also after a failure. @default nothing to release */
  readonly close?: (() => void | Promise<void>) | undefined;
}

/** Input of {@link defineToolEnvironment}: as of `defineEnvironment`, with `start` in place of the rollout. */
export interface ToolEnvironmentDefinition<S> extends Omit<EnvironmentDefinition<S>, "rollout"> {
  /** Starts an episode. Called for each rollout, and for each session of a server; `signal` aborts with it. */
  readonly start: (scenario: S, context: { readonly signal: AbortSignal }) => Episode | Promise<Episode>;
  /** Settings of the agent in rollouts of this package; clients of a server have their own agent. @default {} */
  readonly agent?: EnvironmentAgentOptions | undefined;
}

/** Environment defined by tools and rewards. `runAgent` plays its rollouts; on a server, a client does. */
export interface ToolEnvironment<S> extends Environment<S> {
  /** Starts an episode. */
  readonly start: ToolEnvironmentDefinition<S>["start"];
}

/**
 * Defines an environment by its tools and rewards: for `trainRl` and `evaluate`, where `runAgent` plays the rollouts, and for
 * {@link serveOpenEnv} and {@link serveOrs}, where a client of another framework does.
 *
 * On a server, rewards see the messages of the episode, without token ids: `choices` is empty, and `text` is the submitted answer.
 *
 * @param definition - Name, scenarios, start of an episode, and at least one reward.
 * @returns the frozen environment.
 * @throws ConfigError `E_CONFIG` without rewards, for a `start` that is not a function, and as `defineEnvironment`.
 * @example
 * ```ts
 * import { defineTool } from "whetstone/agent";
 * import { z } from "zod";
 *
 * const sums = defineToolEnvironment({
 *   name: "sums",
 *   scenarios: { train: [{ a: 2, b: 3 }], eval: [{ a: 4, b: 5 }] },
 *   start: ({ a, b }) => ({
 *     messages: [{ role: "user", content: `What is ${a} + ${b}?` }],
 *     tools: [defineTool({ name: "add", schema: z.object({ x: z.number(), y: z.number() }), run: ({ x, y }) => x + y })],
 *   }),
 *   rewards: [{ name: "correct", score: ({ scenario, text }) => text.includes(String(scenario.a + scenario.b)) }],
 * });
 * ```
 */
export function defineToolEnvironment<S>({ start, agent = {}, ...definition }: ToolEnvironmentDefinition<S>): ToolEnvironment<S> {
  const { name } = definition;
  if (typeof start !== "function") {
    throw new ConfigError(`Expected \`start\` of environment \`${name}\` to be a function, got ${typeof start}`, { param: "start" });
  }
  const environment = defineEnvironment<S>({
    ...definition,
    async rollout(scenario, { policy, sampling }) {
      const episode = await start(scenario, { signal: sampling.signal });
      try {
        const t = trajectory({ messages: [...episode.messages], tools: [...episode.tools] });
        await runAgent(t, policy, { ...agent, ...sampling });
        return t;
      } finally {
        await episode.close?.();
      }
    },
  });
  if (environment.rewards.length > 0) return Object.freeze({ ...environment, start });
  const message = `Expected environment \`${name}\` to have \`rewards\`: a rollout of tools does not set its own`;
  throw new ConfigError(message, { param: "rewards" });
}

/** Checks that an environment can be served. @throws ConfigError `E_CONFIG` that names the environment and the reason. */
export function checkServable<S>(environment: Environment<S>): ToolEnvironment<S> {
  if ("start" in environment && typeof environment.start === "function") return environment as ToolEnvironment<S>;
  const message = `Environment \`${environment.name}\` cannot be served: its rollout is code that samples from a model itself, so a client could not; define it with \`defineToolEnvironment\``;
  throw new ConfigError(message, { param: "environment" });
}
