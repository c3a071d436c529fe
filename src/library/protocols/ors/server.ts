/** Server of an environment by the Open Reward Standard: validates the options, and connects the routes with the sessions. */
import { getRequestListener } from "@hono/node-server";
import { checkCount } from "../../client/address.ts";
import type { Environment } from "../../environment/index.ts";
import { ConfigError } from "../../../base/errors.ts";
import { listenForEpisodes, type EnvironmentServer, type ServeOptions } from "../episode/server.ts";
import { checkServable } from "../episode/tool-environment.ts";
import { ServedSessions } from "./served-sessions.ts";
import { orsRoutes } from "./routes.ts";

/** Default of the option `maxSessions`. */
const MAX_SESSIONS = 64;

/** Options of {@link serveOrs}. */
export interface ServeOrsOptions extends ServeOptions {
  /**
   * Number of training tasks to list, at least 1. Required if `scenarios.train` is a function of the index.
   *
   * @default the length of the list
   */
  readonly trainTasks?: number | undefined;
  /** Time without a request after which a session ends, in milliseconds, at least 1. @default 900000 */
  readonly idleTimeoutMs?: number | undefined;
}

/**
 * Serves an environment by the Open Reward Standard (openreward 0.1), so that trainers in Python can use it.
 *
 * The scenarios are the splits `train` and `eval` (type `validation`). Clients see a task only as its position, `{ id, split, index }`: the
 * scenario itself, which may have the answer, stays on the server. The terminal tool `submit` gets the final message and gives the total
 * reward of the environment's `rewards`; other tools give none. Group rewards are `score_group`: `Σ weight · value` per candidate. Images
 * and toolsets are rejected. Web pages are rejected, too: a request with an `Origin` header, or on a loopback address with another `Host`,
 * is answered 403.
 *
 * @param environment - Environment of `defineToolEnvironment`.
 * @param options - Address, limits and number of training tasks.
 * @returns the running server.
 * @throws ConfigError `E_CONFIG` for an environment with a rollout of its own, an unlimited supply of scenarios without `trainTasks`, and
 *   invalid options.
 * @example
 * ```ts
 * import { defineToolEnvironment } from "whetstone/protocols";
 *
 * const echo = defineToolEnvironment({
 *   name: "echo",
 *   scenarios: { train: (index: number) => `word${index}`, eval: [] },
 *   start: (word) => ({ messages: [{ role: "user", content: `Repeat "${word}".` }], tools: [] }),
 *   rewards: [{ name: "same", score: ({ scenario, text }) => text === scenario }],
 * });
 * await using server = await serveOrs(echo, { port: 8080, trainTasks: 1000 });
 * console.log(server.url);
 * ```
 */
export async function serveOrs<S>(environment: Environment<S>, options: ServeOrsOptions = {}): Promise<EnvironmentServer> {
  const served = checkServable(environment);
  const { maxSessions = MAX_SESSIONS, trainTasks, idleTimeoutMs = 900_000 } = options;
  checkCount("trainTasks", trainTasks, 1);
  checkCount("idleTimeoutMs", idleTimeoutMs, 1);
  const { train, eval: heldOut } = served.scenarios;
  const trainCount = typeof train === "function" ? trainTasks : Math.min(train.length, trainTasks ?? train.length);
  if (trainCount === undefined) {
    const message = `Environment \`${served.name}\` has an unlimited supply of scenarios; set \`trainTasks\` to the number to list`;
    throw new ConfigError(message, { param: "trainTasks" });
  }
  const sessions = new ServedSessions(served, { maxSessions, idleTimeoutMs, counts: { train: trainCount, eval: heldOut.length } });
  const listener = getRequestListener(orsRoutes(served, sessions).fetch);
  const { server } = await listenForEpisodes(options, listener, () => sessions.close());
  return server;
}
