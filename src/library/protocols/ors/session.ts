/** Client of a server of the Open Reward Standard: a session that plays one task, and its tools for `runAgent`. */
import PQueue from "p-queue";
import { z } from "zod";
import { HttpError } from "../../client/errors.ts";
import { agentTool, failure, type AgentTool, type ToolResult } from "../../rollout/agent/tool.ts";
import type { JsonObject, RequestMessage } from "../../../base/schema/index.ts";
import { EnvironmentError } from "../episode/errors.ts";
import { callOrs, callStream, createSession, type OrsServer } from "./http.ts";
import { fromOrsMessages, outputText, type OrsMessage } from "./messages.ts";
import * as wire from "./wire.ts";

/** Interval of the requests that keep a session alive, in milliseconds. */
const PING_INTERVAL_MS = 10_000;

/** Timeout of the requests that end a session, in milliseconds. */
const CLOSE_TIMEOUT_MS = 5000;

/** Task of an environment: its position in a split. */
export interface OrsTask {
  /** Split and position as `<split>/<index>`, such as `train/0`; the scenario id in records. */
  readonly id: string;
  /** Name of the split. */
  readonly split: string;
  /** Position in the split, from 0. */
  readonly index: number;
}

/** Session with an environment on an Open Reward Standard server, playing one task. */
export class OrsSession {
  readonly #server: OrsServer;
  /** Path of the environment's routes. */
  readonly #path: string;
  readonly #pingTimer: NodeJS.Timeout;
  /** Tool that takes the final message, in its parameter `arg` if it has one; null if the task has none, and before `tools`. */
  #terminal: { readonly name: string; readonly arg?: string | null | undefined } | null = null;
  /** Queue of tool calls, one at a time, because each may end the episode. */
  readonly #calls = new PQueue({ concurrency: 1 });
  /** Rewards of the calls so far, in order; a call without a reward adds none. */
  readonly rewards: number[] = [];
  #isDone = false;

  private constructor(server: OrsServer, environment: string) {
    this.#server = server;
    this.#path = `/${encodeURIComponent(environment)}`;
    this.#pingTimer = setInterval(() => {
      // A lost session is reported by the next request.
      callOrs(server, "/ping", z.unknown(), {}).catch(() => undefined);
    }, PING_INTERVAL_MS).unref();
  }

  /** Opens a session for a task. @throws as `callOrs`. */
  static async open(server: OrsServer, environment: string, { split, index }: OrsTask): Promise<OrsSession> {
    const id = await createSession(server);
    const session = new OrsSession({ ...server, headers: { ...server.headers, "x-session-id": id } }, environment);
    try {
      await callOrs(session.#server, "/create", z.unknown(), { env_name: environment, split, index });
      return session;
    } catch (error) {
      await session.close();
      throw error;
    }
  }

  /** Whether a call ended the episode. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** Returns the initial messages of the task. */
  async messages(): Promise<RequestMessage[]> {
    try {
      return fromOrsMessages(await callOrs(this.#server, `${this.#path}/messages`, wire.messages));
    } catch (error) {
      // Servers older than openreward 0.1.157 have only the route of the prompt.
      if (!(error instanceof HttpError && error.status === 404)) throw error;
      const prompt = await callOrs(this.#server, `${this.#path}/prompt`, wire.blocks);
      return fromOrsMessages([{ role: "user", blocks: prompt }]);
    }
  }

  /**
   * Returns the tools of the task. A call that the server rejects, e.g. for its arguments, becomes text for the model; a failure of the
   * tool, the server or the session fails the rollout.
   */
  async tools(): Promise<AgentTool[]> {
    const { tools, terminal_tool: terminal } = await callOrs(this.#server, `${this.#path}/task_tools`, wire.tools);
    this.#terminal = terminal ?? null;
    return tools.map(({ name, description, input_schema: schema }) => {
      const parameters = (schema ?? { type: "object", properties: {} }) as JsonObject;
      const run = (input: Record<string, unknown>) => this.#calls.add(() => this.#call(name, input));
      return agentTool({ name, description: description ?? undefined, parameters }, run, { isFatal: () => true });
    });
  }

  /** Passes the agent's final message to the task's terminal tool, if the task has one and has not ended. Call `tools` first. */
  async answer(text: string): Promise<void> {
    if (this.#terminal === null || this.#isDone) return;
    const { name, arg } = this.#terminal;
    const input = arg === null || arg === undefined ? {} : { [arg]: text };
    const result = await this.#calls.add(() => this.#call(name, input));
    if (result.isError)
      throw new EnvironmentError(`Terminal tool \`${name}\` rejected the answer: ${result.text}`, { reason: "input_validation" });
  }

  /** Scores several conversations about the task relative to each other. @returns one reward per candidate. */
  async scoreGroup(candidates: readonly (readonly OrsMessage[])[]): Promise<number[]> {
    const body = { candidates: candidates.map((messages) => ({ messages })) };
    const { scores } = await callStream(this.#server, `${this.#path}/score_group`, wire.groupResult, body);
    return scores.map(({ reward }) => reward);
  }

  /** Ends the session, also after an abort. Errors are ignored: the server ends abandoned sessions itself. */
  async close(): Promise<void> {
    clearInterval(this.#pingTimer);
    const server = { ...this.#server, timeoutMs: CLOSE_TIMEOUT_MS, signal: new AbortController().signal };
    // The episode ends first, then its session.
    await callOrs(server, "/delete", z.unknown(), {}).catch(() => undefined);
    await callOrs(server, "/delete_session", z.unknown(), {}).catch(() => undefined);
  }

  /** Ends the session. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Calls a tool, unless the episode has ended, and records its reward. */
  async #call(name: string, input: Record<string, unknown>): Promise<ToolResult> {
    if (this.#isDone) return failure("the episode has ended");
    const result = await callStream(this.#server, `${this.#path}/call`, wire.callResult, { name, input });
    if (result.ok) {
      const { blocks, reward, finished } = result.output;
      if (reward !== null && reward !== undefined) this.rewards.push(reward);
      this.#isDone = finished;
      return { text: outputText(blocks), isError: false };
    }
    if (result.reason === "name_collision") {
      const message = `Tool \`${name}\` failed: ${result.error}; rename one of the environment's tools`;
      throw new EnvironmentError(message, { reason: "name_collision" });
    }
    if (result.reason === "episode_finished") this.#isDone = true;
    return failure(result.error);
  }
}
