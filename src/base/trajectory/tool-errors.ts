/** Tool calls that returned an error to the model, read from recorded conversations. */
import type { MessageOrChoice } from "../schema/index.ts";
import { getOrInsert } from "../util/values.ts";
import type { TrajectoryGroup } from "./group.ts";
import { isChoice, textOf } from "./messages.ts";
import type { Trajectory } from "./trajectory.ts";

/** Start of the text with which a tool reports an error to the model. */
export const TOOL_ERROR_PREFIX = "Error: ";
/** Min number of calls of a tool before {@link toolErrorWarnings} judges it. */
const MIN_CALLS = 4;

/** Calls of one tool. */
interface ToolErrors {
  readonly tool: string;
  readonly calls: number;
  readonly errors: number;
  /** Most frequent error; null without errors. */
  readonly message: string | null;
}

/** Counts calls and errors of each tool. A call is an error if its result starts with {@link TOOL_ERROR_PREFIX}. */
export function toolErrors(trajectories: Iterable<Trajectory>): ToolErrors[] {
  /** Number of calls, and number of occurrences of each error message, by tool. */
  const tools = new Map<string, { calls: number; readonly messages: Map<string, number> }>();
  for (const { messagesAndChoices, additionalHistories } of trajectories) {
    for (const items of [messagesAndChoices, ...additionalHistories.map((history) => history.messagesAndChoices)]) {
      for (const { tool, text } of resultsOf(items)) {
        const counts = getOrInsert(tools, tool, () => ({ calls: 0, messages: new Map<string, number>() }));
        counts.calls++;
        if (!text.startsWith(TOOL_ERROR_PREFIX)) continue;
        const message = text.slice(TOOL_ERROR_PREFIX.length);
        counts.messages.set(message, (counts.messages.get(message) ?? 0) + 1);
      }
    }
  }
  return [...tools].map(([tool, { calls, messages }]) => {
    const [mostFrequent] = [...messages].sort(([, countA], [, countB]) => countB - countA);
    const errors = [...messages.values()].reduce((sum, count) => sum + count, 0);
    return { tool, calls, errors, message: mostFrequent?.[0] ?? null };
  });
}

/** Returns the results of tool calls. The results of a turn's calls follow the turn in the order of the calls. */
function* resultsOf(items: readonly MessageOrChoice[]): Generator<{ readonly tool: string; readonly text: string }> {
  /** Tools of the latest turn's calls that have no result yet. */
  let pendingTools: string[] = [];
  for (const item of items) {
    if (isChoice(item)) pendingTools = (item.message.tool_calls ?? []).map((call) => call.function.name);
    else if (item.role === "tool") {
      const tool = pendingTools.shift();
      if (tool !== undefined) yield { tool, text: textOf(item) };
    }
  }
}

/** Returns a warning for each tool if more than half of its calls fail. `count` is the number of failed calls. */
export function toolErrorWarnings(groups: readonly TrajectoryGroup[]): { readonly count: number; readonly message: string }[] {
  return toolErrors(groups.flatMap(({ trajectories }) => trajectories))
    .filter(({ calls, errors }) => calls >= MIN_CALLS && errors > calls / 2)
    .map(({ tool, calls, errors, message }) => ({
      count: errors,
      message: `${errors} of ${calls} calls of the tool \`${tool}\` failed, most often with: ${message}. Correct the tool, or let its errors fail the rollout with \`isFatal\` of \`defineTool\`.`,
    }));
}
