/** Chat messages in the form that a client of chat completions sends. */
import type { RequestMessage, ToolCall } from "../base/schema/index.ts";

/** Part of the content of a message. */
export interface ContentPart {
  readonly type?: unknown;
  readonly text?: unknown;
  readonly [name: string]: unknown;
}

/** Types of parts that a string can replace. */
const TEXT_TYPES = new Set<unknown>(["text", "input_text", "output_text"]);

/** Returns the content of a message: a string for no part or a single text part, otherwise copies of the parts. */
export function chatContent(parts: readonly ContentPart[]): NonNullable<RequestMessage["content"]> {
  const [firstPart] = parts;
  if (firstPart === undefined) return "";
  if (parts.length === 1 && TEXT_TYPES.has(firstPart.type) && typeof firstPart.text === "string") return firstPart.text;
  return parts.map((part) => ({ ...part })) as NonNullable<RequestMessage["content"]>;
}

/** Returns a message of the assistant. Empty content is null in a message with tool calls; empty reasoning is left out. */
export function assistantMessage(content: NonNullable<RequestMessage["content"]>, calls: ToolCall[], reasoning: string): RequestMessage {
  return {
    role: "assistant",
    content: content === "" && calls.length > 0 ? null : content,
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(reasoning === "" ? {} : { reasoning }),
  };
}
