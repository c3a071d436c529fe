/** Session of a client of `serveOpenEnv`: answers the frames of one WebSocket. */
import PQueue from "p-queue";
import { z } from "zod";
import { scenarioIdOf } from "../../environment/index.ts";
import { scenarioAt } from "../episode/server.ts";
import { describedTool, ServedEpisode, SUBMIT } from "../episode/served-episode.ts";
import type { ToolEnvironment } from "../episode/tool-environment.ts";
import { frame, RESERVED_TOOL_NAMES } from "./frames.ts";
import { messageOf } from "../../../base/util/values.ts";

/** Response of the server, in the form of a frame. */
export interface Reply {
  readonly type: "observation" | "state" | "error";
  readonly data: object;
}

/** Schema of the data of `reset`. */
const resetData = z.looseObject({
  seed: z.number().int().nullish(),
  episode_id: z.string().nullish(),
  split: z.enum(["train", "eval"]).default("train"),
  index: z.number().int().nonnegative().nullish(),
});

/** Schema of the data of `step`. */
const action = z.discriminatedUnion("type", [
  z.looseObject({ type: z.literal("list_tools") }),
  z.looseObject({ type: z.literal("call_tool"), tool_name: z.string(), arguments: z.record(z.string(), z.unknown()).default({}) }),
]);

/** Schema of the arguments of `submit`. */
const submission = z.object({ answer: z.string() });

/** Session of one client: answers its messages one after the other. */
export class ServedOpenEnvSession<S> {
  readonly #environment: ToolEnvironment<S>;
  /** `episode_id` of episodes for which the client gives none. */
  readonly #id: string;
  readonly #nextIndex: () => number;
  /** Current episode; null before the first `reset`. */
  #episode: ServedEpisode<S> | null = null;
  /** Response to `state`. */
  #state: { readonly episode_id: string | null; step_count: number } = { episode_id: null, step_count: 0 };
  /** Queue of messages, one at a time. */
  readonly #queue = new PQueue({ concurrency: 1 });
  #isClosed = false;

  /** @param nextIndex - Returns the index of the next scenario of the server, for clients that do not select one. */
  constructor(environment: ToolEnvironment<S>, id: string, nextIndex: () => number) {
    this.#environment = environment;
    this.#id = id;
    this.#nextIndex = nextIndex;
  }

  /** Answers a message after the earlier ones. @returns the response; null if the client ends the session. */
  answer(text: string): Promise<Reply | null> {
    return this.#queue.add(() => this.#answer(text));
  }

  /** Ends the session and its episode. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#episode?.close();
  }

  /** Answers a message when the earlier ones are answered. */
  async #answer(text: string): Promise<Reply | null> {
    let message: unknown;
    try {
      message = JSON.parse(text);
    } catch (error) {
      return failed("INVALID_JSON", `Invalid JSON: ${messageOf(error)}`);
    }
    const parsed = frame.safeParse(message);
    if (!parsed.success) return invalid(parsed.error);
    const { type, data } = parsed.data;
    try {
      if (type === "reset") return await this.#reset(data);
      if (type === "step") return await this.#step(data);
      if (type === "state") return { type: "state", data: this.#state };
      if (type === "close") return null;
    } catch (error) {
      return failed("EXECUTION_ERROR", messageOf(error));
    }
    const remedy = type === "mcp" ? "; MCP calls have no rewards, send `step` with the action `call_tool`" : "";
    return failed("UNKNOWN_TYPE", `Unknown message type: ${type}${remedy}`);
  }

  /** Ends the current episode, and starts one with the selected scenario. */
  async #reset(data: unknown): Promise<Reply> {
    const parsed = resetData.safeParse(data);
    if (!parsed.success) return invalid(parsed.error);
    const { seed, split, index, episode_id: episodeId } = parsed.data;
    await this.#episode?.close();
    this.#episode = null;
    // A seed may be negative.
    const position = Math.abs(index ?? seed ?? this.#nextIndex());
    const scenario = scenarioAt<S>(this.#environment.scenarios[split], position, split);
    const episode = await ServedEpisode.start(this.#environment, scenario);
    for (const { function: tool } of episode.tools) {
      if (!RESERVED_TOOL_NAMES.has(tool.name)) continue;
      await episode.close();
      return failed(
        "FACTORY_ERROR",
        `Tool \`${tool.name}\` has a name that OpenEnv reserves (${[...RESERVED_TOOL_NAMES].join(", ")}); rename it`,
      );
    }
    this.#episode = episode;
    // The client may have gone while the episode started.
    if (this.#isClosed) await episode.close();
    this.#state = { episode_id: episodeId ?? this.#id, step_count: 0 };
    return observation({ messages: episode.messages, scenario_id: scenarioIdOf(this.#environment, scenario) });
  }

  /** Lists the tools, calls a tool, or submits the answer. */
  async #step(data: unknown): Promise<Reply> {
    const parsed = action.safeParse(data);
    if (!parsed.success) return invalid(parsed.error);
    const episode = this.#episode;
    if (episode === null) return failed("SESSION_ERROR", "There is no episode; send `reset` first");
    this.#state.step_count++;
    if (parsed.data.type === "list_tools") {
      return observation({ tools: [...episode.tools, { function: SUBMIT }].map(describedTool) });
    }
    const { tool_name: name, arguments: input } = parsed.data;
    if (episode.isDone) return toolFailed(name, "execution_error", "the episode has ended; send `reset`", { reward: null, done: true });
    if (name === SUBMIT.name) return this.#submit(episode, input);
    const result = await episode.call(name, input);
    if (result === null) return toolFailed(name, "tool_not_found", `Unknown tool: '${name}'`);
    if (result.isError) return toolFailed(name, "execution_error", result.text.replace(/^Error: /u, ""));
    return toolDone(name, result.text, { reward: 0, done: false });
  }

  /** Ends the episode with the reward of the submitted answer. */
  async #submit(episode: ServedEpisode<S>, input: object): Promise<Reply> {
    const parsed = submission.safeParse(input);
    if (!parsed.success) return toolFailed(SUBMIT.name, "invalid_args", z.prettifyError(parsed.error));
    const reward = await episode.submit(parsed.data.answer);
    return toolDone(SUBMIT.name, "The episode has ended.", { reward, done: true });
  }
}

/** Reward and end of the episode after a step. */
interface StepEnd {
  readonly reward: number | null;
  readonly done: boolean;
}

/** Returns the response to `reset` or `step`. */
function observation(fields: object, { reward, done }: StepEnd = { reward: null, done: false }): Reply {
  return { type: "observation", data: { observation: fields, reward, done } };
}

/** Returns the response to a successful tool call. */
function toolDone(name: string, text: string, end: StepEnd): Reply {
  const result = { content: [{ type: "text", text }], structured_content: null, meta: null, data: text, is_error: false };
  return observation({ tool_name: name, result, error: null }, end);
}

/** Returns the response to a failed tool call. @param type - Error code of the protocol for tools. */
function toolFailed(name: string, type: string, message: string, end: StepEnd = { reward: 0, done: false }): Reply {
  return observation({ tool_name: name, result: null, error: { error_type: type, message } }, end);
}

/** Returns the error of a frame that does not match its schema. */
function invalid(error: z.ZodError): Reply {
  const errors = error.issues.map(({ path, message, code }) => ({ type: code, loc: path, msg: message }));
  return { type: "error", data: { message: "Invalid message", code: "VALIDATION_ERROR", errors } };
}

/** Returns the error of a request. @param code - Error code of the protocol. */
function failed(code: string, message: string): Reply {
  return { type: "error", data: { message, code } };
}
