/** Whether a conversation that comes back is the one that was said, as far as messages can tell. */
import { isDeepStrictEqual } from "node:util";
import type { RequestMessage, ToolCall } from "../schema/index.ts";
import { textOf } from "../trajectory/messages.ts";

/** Whether `messages` begin with `before` and then `answer`. */
export function startsWithTurn(messages: readonly RequestMessage[], before: readonly RequestMessage[], answer: RequestMessage): boolean {
  const said = [...before, answer];
  return messages.length >= said.length && said.every((message, index) => isSameMessage(message, messages[index]!));
}

/**
 * Where the messages after a turn begin: behind the assistant message that comes after those of `before`. Counted by assistant
 * messages, because clients join and split the ones between; null when there is none.
 */
export function endOfAnswer(messages: readonly RequestMessage[], before: readonly RequestMessage[]): number | null {
  let left = before.filter(isAssistant).length;
  const at = messages.findIndex((message) => isAssistant(message) && left-- === 0);
  return at === -1 ? null : at + 1;
}

function isAssistant({ role }: RequestMessage): boolean {
  return role === "assistant";
}

/**
 * Clients write one thing in several ways: absent text as null, `""` or nothing, text as parts, arguments with other spaces; and they
 * leave out reasoning. None of that makes another message.
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

function valueOf(given: string | null | undefined): unknown {
  if (given === null || given === undefined || given === "") return {};
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
}
