/** The loop of an agent: samples a turn, runs the tools that it calls, and repeats. */
import { ArgumentError } from "../../../base/errors.ts";
import { activeTracing, withSpan, type Tracing } from "../../../base/util/tracing.ts";
import { checkInteger } from "../../../base/util/values.ts";
import type { Tool, ToolCall } from "../../../base/schema/index.ts";
import type { HistoryBuilder, Policy, SampleOptions } from "../../../base/trajectory/index.ts";
import { failure, type AgentTool, type ToolResult } from "./tool.ts";

/** Options of {@link runAgent}; the options of `sample` apply to every turn. */
export interface RunAgentOptions extends Omit<SampleOptions, "tools"> {
  /**
   * Tools to offer. Each has to be one of `trajectory({ tools })`, so that the trajectory records every offered tool.
   *
   * @default all tools of the trajectory
   */
  readonly tools?: readonly AgentTool[] | undefined;
  /** Maximum number of sampled turns, at least 1. @default 8 */
  readonly maxTurns?: number | undefined;
  /**
   * Whether the task has ended; called after the tools of each turn. True ends the run without another turn, e.g. because a tool call has
   * ended the episode of an environment.
   *
   * @default never
   */
  readonly isDone?: (() => boolean) | undefined;
}

/** Result of an agent run. */
export interface AgentRun {
  /**
   * Reason for the end. `answer`: the last turn called no tool. `max-turns`: the last allowed turn called tools, which were not run.
   * `length`: the last turn was cut off; its calls were not run. `done`: `isDone` returned true.
   */
  readonly stopReason: "answer" | "max-turns" | "length" | "done";
  /** Text of the last sampled turn. */
  readonly text: string;
  /** Number of sampled turns. */
  readonly turns: number;
  /** Number of tool calls run. */
  readonly toolCalls: number;
  /** Number of tool calls that returned an error to the model: unknown tool, invalid arguments, or an error thrown. */
  readonly toolErrors: number;
}

/**
 * Samples turns and runs the tools they call, until a turn calls none. The calls of one turn run concurrently; their results are appended
 * in call order.
 *
 * Adds to the metrics `turns`, `tool_calls`, `tool_errors`, and the seconds `sample_duration`, `tools_duration` and `tool/<name>_duration`.
 * Several runs in one rollout add up.
 *
 * @param t - Trajectory, or an additional history for a sub-agent.
 * @param policy - Policy to sample from.
 * @param options - Tools, maximum number of turns and sampling settings.
 * @returns Reason for the end, final text and counts.
 * @throws ArgumentError `E_ARGUMENT`, before anything is sampled, for tools that cannot be run, share a name or are missing in the
 *   conversation, or `maxTurns` below 1.
 * @throws the signal's reason, once running tools have settled, or any error of the policy.
 * @example
 * ```ts
 * import { trajectory } from "whetstone";
 * import { defineTool } from "whetstone/agent";
 * import { z } from "zod";
 *
 * const add = defineTool({ name: "add", schema: z.object({ a: z.number(), b: z.number() }), run: ({ a, b }) => a + b });
 * const t = trajectory({ messages: [{ role: "user", content: "What is 12 + 30?" }], tools: [add] });
 * const run = await runAgent(t, policy, { maxTurns: 4, maxCompletionTokens: 64, temperature: 1 });
 * const finished = t.finish({ reward: run.text.includes("42") ? 1 : 0 });
 * ```
 */
export async function runAgent(
  t: HistoryBuilder,
  policy: Policy,
  { tools, maxTurns = 8, isDone = () => false, ...sampling }: RunAgentOptions = {},
): Promise<AgentRun> {
  checkInteger("maxTurns", maxTurns, 1);
  const offered = toolsByName(t.tools, tools);
  const signal = sampling.signal ?? new AbortController().signal;
  const counts = { turns: 0, toolCalls: 0, toolErrors: 0 };
  // Every run has all three metrics, even if it samples nothing.
  for (const name of Object.values(METRICS)) addToMetric(t, name, 0);
  for (;;) {
    const turn = await t.track("sample", () => t.sample(policy, { ...sampling, tools: [...offered.values()] }));
    count(t, counts, "turns", 1);
    const ended = (stopReason: AgentRun["stopReason"]): AgentRun => ({ stopReason, text: turn.text, ...counts });
    if (turn.finishReason === "length") return ended("length");
    if (turn.toolCalls.length === 0) return ended("answer");
    if (counts.turns === maxTurns) return ended("max-turns");
    const results = await t.track("tools", () => runCalls(t, turn.toolCalls, offered, signal));
    count(t, counts, "toolCalls", results.length);
    count(t, counts, "toolErrors", results.filter(({ isError }) => isError).length);
    results.forEach(({ text }, index) => t.add(toolMessage(turn.toolCalls[index] as ToolCall, text)));
    if (isDone()) return ended("done");
  }
}

/** Counts of one run. */
type Counts = Record<keyof typeof METRICS, number>;

/** Metrics of the trajectory by the members of {@link AgentRun} that they count. */
const METRICS = { turns: "turns", toolCalls: "tool_calls", toolErrors: "tool_errors" } as const;

/** Adds to a count of this run, and to its metric, which several runs of a rollout share. */
function count(t: HistoryBuilder, counts: Counts, name: keyof Counts, by: number): void {
  counts[name] += by;
  addToMetric(t, METRICS[name], by);
}

/** Adds to a metric of the trajectory. */
function addToMetric(t: HistoryBuilder, metric: string, by: number): void {
  t.metrics[metric] = Number(t.metrics[metric] ?? 0) + by;
}

/** Returns the tools to offer by name: `chosen`, by default `all` tools of the conversation. @throws ArgumentError `E_ARGUMENT`. */
function toolsByName(all: readonly Tool[], chosen: readonly AgentTool[] | undefined): ReadonlyMap<string, AgentTool> {
  const byName = new Map<string, AgentTool>();
  for (const tool of chosen ?? all) {
    const { name } = tool.function;
    if (!("call" in tool) || typeof tool["call"] !== "function") {
      throw new ArgumentError(`Tool \`${name}\` has nothing to run; make it with \`defineTool\` or \`mcpTools\``, { param: "tools" });
    }
    if (byName.has(name)) {
      const message = `Two tools are named \`${name}\`; rename one, those of MCP servers with \`mcpTools(client, { rename })\``;
      throw new ArgumentError(message, { param: "tools" });
    }
    if (!all.some((other) => other.function.name === name)) {
      const message = `Tool \`${name}\` is not one of the conversation's; give it to \`trajectory({ messages, tools })\`, so that the record says what was offered`;
      throw new ArgumentError(message, { param: "tools" });
    }
    byName.set(name, tool as AgentTool);
  }
  return byName;
}

/**
 * Runs all calls concurrently and waits for every one, even if the signal aborts.
 *
 * @throws the signal's reason, or the first error that fails the rollout.
 */
async function runCalls(
  t: HistoryBuilder,
  calls: readonly ToolCall[],
  tools: ReadonlyMap<string, AgentTool>,
  signal: AbortSignal,
): Promise<ToolResult[]> {
  const settled = await Promise.allSettled(calls.map((call) => runCall(t, call, tools, signal)));
  signal.throwIfAborted();
  return settled.map((outcome) => {
    if (outcome.status === "fulfilled") return outcome.value;
    throw outcome.reason;
  });
}

/** Runs one call, and records its duration as a metric. An unknown tool is an error for the model. */
async function runCall(
  t: HistoryBuilder,
  { id, function: { name, arguments: args } }: ToolCall,
  tools: ReadonlyMap<string, AgentTool>,
  signal: AbortSignal,
): Promise<ToolResult> {
  const call: WrittenCall = { id, name, args: args ?? "" };
  const tracing = activeTracing();
  const run = () => runTool(t, call, tools, signal);
  return tracing === null ? run() : traceCall(tracing, call, run);
}

/** Call of a tool, as the model wrote it. */
interface WrittenCall {
  readonly id: string | null | undefined;
  readonly name: string;
  /** JSON text of the arguments; `""` if absent. */
  readonly args: string;
}

/** Runs one call without a span. */
async function runTool(
  t: HistoryBuilder,
  { id, name, args }: WrittenCall,
  tools: ReadonlyMap<string, AgentTool>,
  signal: AbortSignal,
): Promise<ToolResult> {
  const tool = tools.get(name);
  if (tool === undefined) return failure(`there is no tool \`${name}\`; the tools are: ${[...tools.keys()].join(", ") || "none"}`);
  return t.track(`tool/${name}`, () => tool.call(args, { signal, callId: id ?? "" }));
}

/** Runs a tool in a span. */
function traceCall(tracing: Tracing, { id, name, args }: WrittenCall, run: () => Promise<ToolResult>): Promise<ToolResult> {
  const start = {
    kind: "internal",
    attributes: {
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": name,
      "gen_ai.tool.type": "function",
      "gen_ai.tool.call.id": id ?? undefined,
      "gen_ai.tool.call.arguments": tracing.hasContent ? args : undefined,
    },
  } as const;
  return withSpan(tracing, `execute_tool ${name}`, start, async (span) => {
    const result = await run();
    span.set({
      "error.type": result.isError ? "tool_error" : undefined,
      "gen_ai.tool.call.result": tracing.hasContent ? result.text : undefined,
    });
    return result;
  });
}

/** Returns the message with the result of a call. */
function toolMessage({ id }: ToolCall, text: string) {
  return { role: "tool", content: text, ...(id === null || id === undefined ? {} : { tool_call_id: id }) };
}
