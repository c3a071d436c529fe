/** Environment whose rollouts are played on a server of the Open Reward Standard. */
import { checkCount, readBaseUrl } from "../../client/address.ts";
import type { z } from "zod";
import { defineEnvironment, type Environment, type GroupRewardInput } from "../../environment/index.ts";
import { ConfigError } from "../../../base/errors.ts";
import { refuse } from "../../../base/util/values.ts";
import { runAgent } from "../../rollout/agent/index.ts";
import { trajectory } from "../../../base/trajectory/index.ts";
import type { EnvironmentAgentOptions } from "../episode/client-options.ts";
import { callOrs, type OrsServer } from "./http.ts";
import { toOrsMessages } from "./messages.ts";
import { OrsSession, type OrsTask } from "./session.ts";
import * as wire from "./wire.ts";

/** Metric with the reward of a rollout, computed from the rewards that the server gave its calls. */
const EPISODE_REWARD = "episode_reward";

/** Arguments of {@link orsEnvironment}. */
export interface OrsEnvironmentOptions {
  /** Address of the server, http or https. */
  readonly baseUrl: string;
  /** Name of the environment on the server. @default the first one in the server's list */
  readonly environment?: string | undefined;
  /** Name of the split to train on. @default the first split of type `train` */
  readonly trainSplit?: string | undefined;
  /** Name of the split to evaluate on; null for none. @default the first split of type `validation` or `test`, if there is one */
  readonly evalSplit?: string | null | undefined;
  /**
   * Reward of a rollout from the rewards of its calls: the last one, as TRL computes it, or their sum. 0 if no call gave a reward.
   *
   * @default "last"
   */
  readonly reward?: "last" | "sum" | undefined;
  /**
   * Weight of the server's `score_group` in the total reward, if the environment has one; finite. 0 does not call it.
   *
   * @default 1
   */
  readonly groupWeight?: number | undefined;
  /** API key, sent as `X-API-Key`. @default none */
  readonly apiKey?: string | undefined;
  /** Secrets of the environment by name, sent as `X-Secrets`. @default {} */
  readonly secrets?: Readonly<Record<string, string>> | undefined;
  /** Timeout of each request in milliseconds, at least 1; of a tool call, until its result. @default 60000 */
  readonly timeoutMs?: number | undefined;
  /** Settings of the agent, for every rollout. @default {} */
  readonly agent?: EnvironmentAgentOptions | undefined;
  /** Aborts the requests of this call; rollouts have their own signals. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Returns an environment that is played on an Open Reward Standard server. The scenarios are the server's tasks. Each rollout calls the
 * server's tools in a session of its own, which ends with the rollout. If the environment has a terminal tool, the agent's final message is
 * passed to it. If the environment has `score_group`, it becomes a group reward.
 *
 * The total reward is `episode + groupWeight · score_group`; the option `reward` defines `episode`. The parts are the metrics
 * `reward/episode` and `reward/score_group`.
 *
 * @param options - Server, environment, splits and rewards.
 * @returns an environment for `trainRl` and `evaluate`. Its rollouts fail with `E_ENVIRONMENT` for a failed tool, `E_HTTP`,
 *   `E_CONNECTION` or `E_PROTOCOL` for the server, and `E_UNSUPPORTED` for tasks with images.
 * @throws ConfigError `E_CONFIG` for an invalid address, and names of an environment or a split that the server does not have.
 * @throws HttpError `E_HTTP`, ConnectionError `E_CONNECTION` or ProtocolError `E_PROTOCOL` if the server's lists cannot be read.
 * @throws the signal's reason, or a TimeoutError.
 * @see https://openrewardstandard.io
 * @example
 * ```ts
 * const sums = await orsEnvironment({ baseUrl: "http://127.0.0.1:8080", agent: { maxTurns: 6, maxCompletionTokens: 256 } });
 * console.log(sums.name, sums.scenarios.eval.length);
 * ```
 */
export async function orsEnvironment(options: OrsEnvironmentOptions): Promise<Environment<OrsTask>> {
  const { reward = "last", groupWeight = 1, agent = {} } = options;
  const server = serverOf(options);
  if (reward !== "last" && reward !== "sum") refuse("reward", '"last" or "sum"', reward, ConfigError);
  const names = await callOrs(server, "/list_environments", wire.environments);
  const name = chosen("environment", options.environment?.toLowerCase() ?? names[0], names);
  const path = `/${encodeURIComponent(name)}`;
  const { train: trainSplit, eval: evalSplit } = chosenSplits(options, await callOrs(server, `${path}/splits`, wire.splits));
  const { supports_score_group: hasGroupScore, message_block_types: blockTypes } = await callOrs(server, `${path}/tools`, wire.tools);
  const tasksOf = async (split: string): Promise<OrsTask[]> => {
    const { num_tasks: count } = await callOrs(server, `${path}/num_tasks`, wire.taskCount, { split });
    return Array.from({ length: count }, (_, index) => ({ id: `${split}/${index}`, split, index }));
  };
  const groupReward = {
    name: "score_group",
    weight: groupWeight,
    async scoreGroup({ scenario, trajectories, signal: groupSignal }: GroupRewardInput<OrsTask>) {
      await using session = await OrsSession.open({ ...server, signal: groupSignal }, name, scenario);
      return session.scoreGroup(trajectories.map((each) => toOrsMessages(each.messages(), blockTypes ?? ["text", "image"])));
    },
  };
  return defineEnvironment<OrsTask>({
    name,
    scenarios: { train: await tasksOf(trainSplit), eval: evalSplit === null ? [] : await tasksOf(evalSplit) },
    async rollout(task, { policy, sampling }) {
      await using session = await OrsSession.open({ ...server, signal: sampling.signal }, name, task);
      const t = trajectory({ messages: await session.messages(), tools: await session.tools() });
      const { stopReason, text } = await runAgent(t, policy, { ...agent, ...sampling, isDone: () => session.isDone });
      if (stopReason === "answer") await session.answer(text);
      t.metrics[EPISODE_REWARD] = reward === "last" ? (session.rewards.at(-1) ?? 0) : sumOf(session.rewards);
      return t;
    },
    rewards: [{ name: "episode", score: ({ trajectory: played }) => Number(played.metrics[EPISODE_REWARD]) }],
    groupRewards: hasGroupScore === true && groupWeight !== 0 ? [groupReward] : [],
  });
}

/** Returns the server of the options. @throws ConfigError `E_CONFIG` for an invalid address or timeout. */
function serverOf({ baseUrl, apiKey, secrets = {}, timeoutMs = 60_000, signal }: OrsEnvironmentOptions): OrsServer {
  checkCount("timeoutMs", timeoutMs, 1);
  return {
    baseUrl: readBaseUrl(baseUrl, "baseUrl"),
    headers: { ...(apiKey === undefined ? {} : { "x-api-key": apiKey }), ...secretsHeader(secrets) },
    timeoutMs,
    signal: signal ?? new AbortController().signal,
  };
}

/** Returns the sum of rewards. */
function sumOf(rewards: readonly number[]): number {
  return rewards.reduce((sum, each) => sum + each, 0);
}

/** Returns the names of the splits to train and to evaluate on. @throws ConfigError `E_CONFIG` for a split that the server does not have. */
function chosenSplits(
  { trainSplit, evalSplit }: Pick<OrsEnvironmentOptions, "trainSplit" | "evalSplit">,
  splits: z.output<typeof wire.splits>,
): { readonly train: string; readonly eval: string | null } {
  const names = splits.map((split) => split.name);
  const defaultTrain = splits.find(({ type }) => type === "train")?.name;
  const defaultEval = splits.find(({ type }) => type !== "train")?.name ?? null;
  const requestedEval = evalSplit === undefined ? defaultEval : evalSplit;
  return {
    train: chosen("trainSplit", trainSplit ?? defaultTrain, names),
    eval: requestedEval === null ? null : chosen("evalSplit", requestedEval, names),
  };
}

/** Returns `value` if it is one of the server's names. @throws ConfigError `E_CONFIG` otherwise. */
function chosen(param: string, value: string | undefined, names: readonly string[]): string {
  if (value !== undefined && names.includes(value)) return value;
  const got = value === undefined ? "none" : `\`${value}\``;
  const list = names.map((each) => `\`${each}\``).join(", ") || "none";
  throw new ConfigError(`Expected \`${param}\` to be one of the server's: ${list}; got ${got}`, { param });
}

/** Returns the header with secrets: base64 of `{ <name>: { value } }`. */
function secretsHeader(secrets: Readonly<Record<string, string>>): Record<string, string> {
  const entries = Object.entries(secrets).map(([key, value]) => [key, { value }] as const);
  if (entries.length === 0) return {};
  return { "x-secrets": Buffer.from(JSON.stringify(Object.fromEntries(entries))).toString("base64") };
}
