/** Comparison of the messages that a client sends with recorded messages, for conversations whose token ids are unknown. */
import { isDeepStrictEqual } from "node:util";
import type { RequestMessage, ToolCall } from "../schema/index.ts";
import { textOf } from "./messages.ts";
import { itemAt } from "../util/values.ts";

/** Whether `messages` begin with `before`, followed by `answer`. */
export function startsWithTurn(messages: readonly RequestMessage[], before: readonly RequestMessage[], answer: RequestMessage): boolean {
  const recorded = [...before, answer];
  return messages.length >= recorded.length && recorded.every((message, index) => isSameMessage(message, itemAt(messages, index)));
}

/**
 * Returns the index in `messages` after the answer to `before`. If `before` has `n` assistant messages, the answer is assistant message `n`
 * (from 0) of `messages`. Only assistant messages are counted, because clients join and split the messages between them. Null without such
 * a message.
 */
export function endOfAnswer(messages: readonly RequestMessage[], before: readonly RequestMessage[]): number | null {
  const assistantIndexes = messages.flatMap((message, index) => (isAssistant(message) ? [index] : []));
  const answerIndex = assistantIndexes[before.filter(isAssistant).length];
  return answerIndex === undefined ? null : answerIndex + 1;
}

/** Whether a message is an answer of the model. */
function isAssistant({ role }: RequestMessage): boolean {
  return role === "assistant";
}

/**
 * Whether two messages have the same meaning. Clients write absent text as null, `""` or nothing, text as parts, and arguments with other
 * whitespace, and omit reasoning; these differences are ignored.
 */
function isSameMessage(a: RequestMessage, b: RequestMessage): boolean {
  return (
    a.role === b.role &&
    textOf(a) === textOf(b) &&
    (a.tool_call_id ?? null) === (b.tool_call_id ?? null) &&
    isDeepStrictEqual(callsOf(a), callsOf(b))
  );
}

/** Returns the parts of a message's tool calls that are compared. */
function callsOf({ tool_calls: calls }: RequestMessage): object[] {
  return (calls ?? []).map(({ id, function: called }: ToolCall) => ({
    id: id ?? null,
    name: called.name,
    arguments: parsedArguments(called.arguments),
  }));
}

/** Parses tool-call arguments; text that is not JSON is compared as it is. */
function parsedArguments(text: string | null | undefined): unknown {
  if (text === null || text === undefined || text === "") return {};
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
