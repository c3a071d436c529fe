/** One episode that a client of a server plays, for both protocols: tool calls, the submitted answer, and its score. */
import { scoreRollout } from "../../environment/rollout.ts";
import { ConfigError } from "../../../base/errors.ts";
import type { AgentTool, ToolResult } from "../../rollout/agent/index.ts";
import type { RequestMessage, Tool } from "../../../base/schema/index.ts";
import { trajectory, type TrajectoryBuilder } from "../../../base/trajectory/index.ts";
import type { Episode, ToolEnvironment } from "./tool-environment.ts";

/** Tool by which a client submits its final answer; it ends the episode. A server adds it to the tools of every episode. */
export const SUBMIT = {
  name: "submit",
  /** Parameter with the answer. */
  arg: "answer",
  description: "Submits the final answer and ends the episode.",
  parameters: {
    type: "object",
    properties: { answer: { type: "string", description: "The final answer." } },
    required: ["answer"],
    additionalProperties: false,
  },
} as const;

/** Returns the description of a tool in the form that OpenEnv and the Open Reward Standard share. */
export function describedTool({
  function: { name, description = "", parameters },
}: Pick<Tool, "function"> | { readonly function: typeof SUBMIT }) {
  return { name, description, input_schema: parameters };
}

/** Episode that the client of a server plays. Records its calls and results as messages, for the rewards. Calls must not overlap. */
export class ServedEpisode<S> {
  readonly #environment: ToolEnvironment<S>;
  readonly #scenario: S;
  readonly #episode: Episode;
  /** Messages so far. */
  readonly #record: TrajectoryBuilder;
  /** Aborts the episode's tools and rewards when the episode is closed. */
  readonly #abort: AbortController;
  /** Number of calls so far, for their ids. */
  #calls = 0;
  /** Whether an answer was submitted. */
  #isDone = false;
  /** Whether the episode's resources were released. */
  #isClosed = false;

  private constructor(environment: ToolEnvironment<S>, scenario: S, episode: Episode, abort: AbortController) {
    this.#environment = environment;
    this.#scenario = scenario;
    this.#episode = episode;
    this.#abort = abort;
    this.#record = trajectory({ messages: [...episode.messages], tools: [...episode.tools] });
  }

  /** Starts an episode. @throws ConfigError `E_CONFIG` for a tool named `submit`, and the errors of `start`. */
  static async start<S>(environment: ToolEnvironment<S>, scenario: S): Promise<ServedEpisode<S>> {
    const abort = new AbortController();
    const episode = await environment.start(scenario, { signal: abort.signal });
    const served = new ServedEpisode(environment, scenario, episode, abort);
    if (episode.tools.every((tool) => tool.function.name !== SUBMIT.name)) return served;
    await served.close();
    throw new ConfigError(
      `Environment \`${environment.name}\` has a tool \`${SUBMIT.name}\`, the name of the tool that ends a served episode; rename it`,
    );
  }

  /** Initial messages. */
  get messages(): readonly RequestMessage[] {
    return this.#episode.messages;
  }

  /** Tools without `submit`. */
  get tools(): readonly AgentTool[] {
    return this.#episode.tools;
  }

  /** Whether an answer was submitted. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** Calls a tool. @returns its result; null for an unknown name. */
  async call(name: string, input: object): Promise<ToolResult | null> {
    const tool = this.tools.find((each) => each.function.name === name);
    if (tool === undefined) return null;
    const id = `call-${this.#calls}`;
    this.#calls++;
    const args = JSON.stringify(input);
    this.#record.add({ role: "assistant", content: "", tool_calls: [{ id, type: "function", function: { name, arguments: args } }] });
    const result = await tool.call(args, { signal: this.#abort.signal, callId: id });
    this.#record.add({ role: "tool", content: result.text, tool_call_id: id });
    return result;
  }

  /**
   * Submits the answer, which ends the episode, and scores it.
   *
   * @returns the total reward.
   * @throws RewardError `E_REWARD` if a reward fails.
   */
  async submit(answer: string): Promise<number> {
    this.#isDone = true;
    this.#record.add({ role: "assistant", content: answer });
    const played = this.#record.finish({ reward: 0 });
    return (await scoreRollout(this.#environment, this.#scenario, played, this.#abort.signal)).reward;
  }

  /** Aborts a tool or reward in progress and releases the resources of the episode; may be called twice. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#abort.abort(new DOMException("The session was closed", "AbortError"));
    await this.#episode.close?.();
  }
}
