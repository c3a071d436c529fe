/** Chat messages in the form that a client of chat completions sends. */
import type { RequestMessage, ToolCall } from "../base/schema/index.ts";

/** Part of the content of a message. */
export interface ContentPart {
  readonly type?: unknown;
  readonly text?: unknown;
  readonly [name: string]: unknown;
}

/** Types of parts that are plain text. */
const TEXT_TYPES = new Set<unknown>(["text", "input_text", "output_text"]);

/** Returns the content of a message: a text if the parts are one text, otherwise the parts. */
export function chatContent(parts: readonly ContentPart[]): NonNullable<RequestMessage["content"]> {
  const [first] = parts;
  if (first === undefined) return "";
  if (parts.length === 1 && TEXT_TYPES.has(first.type) && typeof first.text === "string") return first.text;
  return parts.map((part) => ({ ...part })) as NonNullable<RequestMessage["content"]>;
}

/** Returns a message of the assistant. Absent text is null in a message with tool calls. */
export function assistantMessage(content: NonNullable<RequestMessage["content"]>, calls: ToolCall[], reasoning: string): RequestMessage {
  return {
    role: "assistant",
    content: content === "" && calls.length > 0 ? null : content,
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(reasoning === "" ? {} : { reasoning }),
  };
}
