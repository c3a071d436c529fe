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
 * Returns the index after the answer to `before`. If `before` has `n` assistant messages, the answer is assistant message `n` (from 0) of
 * `messages`. Only assistant messages are counted, because clients join and split the messages between them. Null without such a message.
 */
export function endOfAnswer(messages: readonly RequestMessage[], before: readonly RequestMessage[]): number | null {
  let remaining = before.filter(isAssistant).length;
  const index = messages.findIndex((message) => isAssistant(message) && remaining-- === 0);
  return index === -1 ? null : index + 1;
}

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

function callsOf({ tool_calls: calls }: RequestMessage): object[] {
  return (calls ?? []).map(({ id, function: called }: ToolCall) => ({
    id: id ?? null,
    name: called.name,
    given: valueOf(called.arguments),
  }));
}

/** Parses tool-call arguments; text that is not JSON is compared as it is. */
function valueOf(given: string | null | undefined): unknown {
  if (given === null || given === undefined || given === "") return {};
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
}
