/** Items of a conversation: plain messages and sampled choices. */

import type { AssistantChoice, MessageOrChoice, RequestMessage } from "../schema/index.ts";

/** Whether an item of a history is a sampled turn (choice); all other items are context. */
export function isChoice(item: MessageOrChoice): item is AssistantChoice {
  return "message" in item && typeof item.message === "object" && item.message !== null;
}

/**
 * Converts an item to the message that the next request should carry.
 *
 * Text, tool calls and reasoning are kept exactly, so that a service that stores its own turns recognizes them. Absent text becomes null if
 * the turn has tool calls, else `""`.
 */
export function requestMessageOf(item: MessageOrChoice): RequestMessage {
  if (!isChoice(item)) return item;
  const { content, tool_calls: toolCalls, reasoning } = item.message;
  const calls = toolCalls ?? [];
  return {
    role: "assistant",
    content: content ?? (calls.length > 0 ? null : ""),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(reasoning === null || reasoning === undefined ? {} : { reasoning }),
  };
}

/** Returns a history as plain messages. */
export function toMessages(items: readonly MessageOrChoice[]): RequestMessage[] {
  return items.map(requestMessageOf);
}

/** Returns the text of an item: the text parts of a list content are joined, other kinds of parts are skipped. */
export function textOf(item: MessageOrChoice): string {
  const { content } = isChoice(item) ? item.message : item;
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  return content.map((part) => (typeof part === "string" ? part : (part.text ?? ""))).join("");
}
