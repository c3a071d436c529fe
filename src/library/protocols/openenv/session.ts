/** Client of an OpenEnv server: a session with one environment, and its tools for `runAgent`. `socket.ts` is its connection. */
import PQueue from "p-queue";
import { checkCount, readBaseUrl } from "../../client/address.ts";
import { ProtocolError } from "../../client/errors.ts";
import { agentTool, failure, type AgentTool, type ToolResult } from "../../rollout/agent/tool.ts";
import { resultFromMcp } from "../../rollout/agent/mcp.ts";
import type { JsonObject } from "../../../base/schema/index.ts";
import { shown } from "../../../base/util/shown.ts";
import { observationData, toolList, toolObservation } from "./frames.ts";
import { OpenEnvSocket } from "./socket.ts";

/** Options of {@link connectOpenEnv}. */
export interface OpenEnvOptions {
  /** Additional headers of the WebSocket's handshake, such as `authorization` of a private Space. @default {} */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Timeout of the connection and of each request in milliseconds, at least 1. A request that takes longer ends the session. @default 60000 */
  readonly timeoutMs?: number | undefined;
  /** Ends the session; requests in progress reject with the signal's reason. Pass the rollout's signal. */
  readonly signal?: AbortSignal | undefined;
}

/** Response of an OpenEnv environment to `reset` or `step`. */
export interface OpenEnvStep {
  /** Observation without reward and metadata; its fields are the environment's own. */
  readonly observation: JsonObject;
  /** Reward of the step; null if the environment gave none. */
  readonly reward: number | null;
  /** Whether the episode has ended. */
  readonly done: boolean;
}

/**
 * Opens a session with an environment on an OpenEnv server (WebSocket protocol of openenv-core 0.3). One session is one environment; close
 * it at the end of the rollout.
 *
 * @param baseUrl - Address of the server, http or https, such as `https://<org>-<name>.hf.space`.
 * @param options - Headers, timeout and signal.
 * @returns the open session, before its first `reset`.
 * @throws ConfigError `E_CONFIG` for an invalid address or timeout.
 * @throws ConnectionError `E_CONNECTION` if the server is unreachable.
 * @throws the signal's reason, or a TimeoutError.
 * @see https://github.com/huggingface/OpenEnv
 * @example
 * ```ts
 * import { trajectory } from "whetstone";
 * import { runAgent } from "whetstone/agent";
 *
 * await using session = await connectOpenEnv("http://127.0.0.1:8000");
 * const { observation } = await session.reset({ seed: 1 });
 * const messages = [{ role: "user", content: JSON.stringify(observation) }];
 * const t = trajectory({ messages, tools: await session.tools() });
 * await runAgent(t, policy, { isDone: () => session.isDone });
 * const finished = t.finish({ reward: session.reward });
 * ```
 */
export async function connectOpenEnv(baseUrl: string, options: OpenEnvOptions = {}): Promise<OpenEnvSession> {
  const { headers = {}, timeoutMs = 60_000, signal = new AbortController().signal } = options;
  checkCount("timeoutMs", timeoutMs, 1);
  return new OpenEnvSession(await OpenEnvSocket.connect({ baseUrl: readBaseUrl(baseUrl, "baseUrl"), headers, timeoutMs, signal }));
}

/**
 * Session with an environment on an OpenEnv server. Requests are sent one at a time, in call order. After a lost connection or a timeout
 * every request fails, because the environment has ended with its session.
 *
 * @example
 * ```ts
 * const session: OpenEnvSession = await connectOpenEnv("http://127.0.0.1:8000");
 * await session.reset();
 * const { reward, done } = await session.step({ message: "hello" });
 * session.close();
 * ```
 */
export class OpenEnvSession {
  readonly #socket: OpenEnvSocket;
  /** Reward of the episode so far. */
  #reward = 0;
  /** Whether the episode has ended. */
  #isDone = false;
  /** Queue of tool calls, one at a time, because each may end the episode. */
  readonly #calls = new PQueue({ concurrency: 1 });

  /**
   * Created by {@link connectOpenEnv}.
   *
   * @internal
   */
  constructor(socket: OpenEnvSocket) {
    this.#socket = socket;
  }

  /** Sum of the rewards of all steps since the last reset. */
  get reward(): number {
    return this.#reward;
  }

  /** Whether the last step ended the episode. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /**
   * Starts an episode.
   *
   * @param params - Parameters of the environment's `reset`: `seed`, `episode_id`, and its own ones.
   * @returns the first observation.
   * @throws EnvironmentError `E_ENVIRONMENT` if the environment fails, OverloadedError `E_OVERLOADED` if the server has no free session,
   *   ArgumentError `E_ARGUMENT` for invalid parameters, ConnectionError `E_CONNECTION` for a lost session, ProtocolError `E_PROTOCOL` for
   *   an invalid response, a TimeoutError, or the signal's reason.
   */
  async reset(params: JsonObject = {}): Promise<OpenEnvStep> {
    const start = this.#stepOf("reset", await this.#socket.exchange("reset", params, "observation"));
    this.#reward = 0;
    this.#isDone = start.done;
    return start;
  }

  /**
   * Executes an action.
   *
   * @param action - Fields of the environment's action type; `GET /schema` of the server describes them.
   * @returns observation, reward and end of the episode.
   * @throws EnvironmentError `E_ENVIRONMENT` if the environment fails, ArgumentError `E_ARGUMENT` for an invalid action, ConnectionError
   *   `E_CONNECTION` for a lost session, ProtocolError `E_PROTOCOL` for an invalid response.
   * @throws the signal's reason, or a TimeoutError.
   * @example
   * ```ts
   * import { connectOpenEnv } from "whetstone/protocols";
   *
   * await using session = await connectOpenEnv("http://127.0.0.1:8000");
   * const { observation, reward, done } = await session.step({ message: "hello" });
   * console.log(observation, reward, done);
   * ```
   */
  async step(action: JsonObject): Promise<OpenEnvStep> {
    const step = this.#stepOf("step", await this.#socket.exchange("step", action, "observation"));
    this.#reward += step.reward ?? 0;
    this.#isDone = step.done;
    return step;
  }

  /**
   * Returns the state of the environment: `episode_id`, `step_count`, and its own fields.
   *
   * @returns the state as the server sent it.
   * @throws EnvironmentError `E_ENVIRONMENT` if the environment fails, ConnectionError `E_CONNECTION` for a lost session.
   * @throws the signal's reason, or a TimeoutError.
   * @example
   * ```ts
   * import { connectOpenEnv } from "whetstone/protocols";
   *
   * await using session = await connectOpenEnv("http://127.0.0.1:8000");
   * console.log((await session.state())["step_count"]);
   * ```
   */
  async state(): Promise<JsonObject> {
    return (await this.#socket.exchange("state", undefined, "state")) as JsonObject;
  }

  /**
   * Returns the tools of a tool environment for `runAgent`. A call is a step: its reward is added to `reward`, and it may end the episode.
   * Errors of a tool become text for the model; errors of the session fail the rollout. A call after the end is not sent; the model gets an
   * error.
   *
   * @returns the tools in the order of the server.
   * @throws ProtocolError `E_PROTOCOL` if the environment has no tools; then send its actions with `step`.
   * @throws EnvironmentError `E_ENVIRONMENT` if the environment fails, ConnectionError `E_CONNECTION` for a lost session.
   * @throws the signal's reason, or a TimeoutError.
   * @example
   * ```ts
   * import { connectOpenEnv } from "whetstone/protocols";
   *
   * await using session = await connectOpenEnv("http://127.0.0.1:8000");
   * await session.reset();
   * console.log((await session.tools()).map((tool) => tool.function.name));
   * ```
   */
  async tools(): Promise<AgentTool[]> {
    const { observation } = this.#stepOf("step", await this.#socket.exchange("step", { type: "list_tools" }, "observation"));
    const parsed = toolList.safeParse(observation);
    if (!parsed.success) {
      throw new ProtocolError(
        `Expected the environment to list its tools, got the observation ${shown(observation)}; send actions of an environment without tools with \`step\``,
      );
    }
    return parsed.data.tools.map(({ name, description, input_schema, inputSchema }) => {
      const parameters = (input_schema ?? inputSchema ?? { type: "object", properties: {} }) as JsonObject;
      const call = (input: unknown) => this.#calls.add(() => this.#call(name, input as JsonObject));
      // Every error that `#call` throws is one of the session; errors of the tool are results.
      return agentTool({ name, description: description ?? undefined, parameters }, call, { isFatal: () => true });
    });
  }

  /** Ends the session; may be called twice. */
  close(): void {
    this.#socket.close();
  }

  /**
   * Ends the session at the end of an `await using` block.
   *
   * @example
   * ```ts
   * import { connectOpenEnv } from "whetstone/protocols";
   *
   * await using session = await connectOpenEnv("http://127.0.0.1:8000");
   * await session.reset();
   * ```
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  /** Calls a tool, unless the episode has ended. */
  async #call(name: string, input: JsonObject): Promise<ToolResult> {
    if (this.#isDone) return failure("the episode has ended");
    const { observation } = await this.step({ type: "call_tool", tool_name: name, arguments: input });
    const parsed = toolObservation.safeParse(observation);
    if (!parsed.success) throw new ProtocolError(`Expected the result of tool \`${name}\`, got the observation ${shown(observation)}`);
    const { result, error } = parsed.data;
    if (error !== null && error !== undefined) return failure(error.message);
    if (isMcpResult(result)) return resultFromMcp({ content: result.content, isError: result.is_error ?? false });
    return { text: typeof result === "string" ? result : (JSON.stringify(result) ?? ""), isError: false };
  }

  /** Converts the data of a response to `reset` or `step`. @throws ProtocolError `E_PROTOCOL` for other data. */
  #stepOf(request: string, data: unknown): OpenEnvStep {
    const parsed = observationData.safeParse(data);
    if (!parsed.success) throw new ProtocolError(`Expected an observation in the answer to \`${request}\`, got ${shown(data)}`);
    const { observation, reward, done } = parsed.data;
    return { observation: observation as JsonObject, reward: reward === null || reward === undefined ? null : Number(reward), done };
  }
}

/** Whether a tool's result is an MCP result, which most environments return. */
function isMcpResult(result: unknown): result is { readonly content: readonly unknown[]; readonly is_error?: boolean } {
  return typeof result === "object" && result !== null && "content" in result && Array.isArray(result.content);
}
