/** Messages of a chat request: their schema, and their conversion to the messages that a chat template receives. */
import { z } from "zod";
import { ArgumentError } from "../../../base/errors.ts";
import { requestMessage } from "../../../base/schema/index.ts";
import type { ChatMessage } from "../../../text/tokenizer/index.ts";
import { shown } from "../../../base/util/shown.ts";

/** Content part types and the key of their text. */
const TEXT_PARTS = new Map([
  ["text", "text"],
  ["input_text", "text"],
  ["output_text", "text"],
  ["refusal", "refusal"],
  ["thinking", "thinking"],
]);
/** Keys of the text in a content part without a `type`; the first one that the part has counts. */
const TEXT_KEYS = ["text", "refusal", "thinking"];

/** Whether a value is an object that is not an array. */
export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Whether a value is content of a message: a text, a list of texts and parts, or null. */
function isContent(value: unknown): boolean {
  if (value === null || typeof value === "string") return true;
  return Array.isArray(value) && value.every((part) => typeof part === "string" || isObject(part));
}

/** Content of a message: a text, or a list of texts and content parts. */
const content = z
  .custom<string | readonly (string | Record<string, unknown>)[] | null>(isContent, {
    error: (issue) => `expected a string or an array of content parts, got ${shown(issue.input)}`,
  })
  .meta({
    anyOf: [{ type: "string" }, { type: "array", items: { anyOf: [{ type: "string" }, { type: "object" }] } }, { type: "null" }],
  });

/** Message of a chat request: {@link requestMessage} with chat-specific rules for `content`, `name` and `tools`. */
export const wireMessage = requestMessage
  .extend({
    content: content.optional(),
    name: z.unknown().optional(),
    tools: z.array(z.unknown()).nullish(),
  })
  .superRefine((message, context) => {
    if (message.content !== null || message.role === "assistant" || message.role === "function") return;
    context.addIssue({
      code: "custom",
      path: ["content"],
      message: `expected a string or an array of content parts, got null, which only assistant and function messages may have`,
    });
  });

/** Message of a chat request, after its validation. */
export type WireMessage = z.infer<typeof wireMessage>;

/**
 * Returns the text of a content part; null for a part whose text is null.
 *
 * @throws ArgumentError `E_ARGUMENT` for a part that is not text.
 */
function partText(part: string | Record<string, unknown>): string | null {
  if (typeof part === "string") return part;
  const key = part["type"] === undefined ? TEXT_KEYS.find((name) => name in part) : TEXT_PARTS.get(String(part["type"]));
  if (key === undefined) {
    const kind = part["type"] === undefined ? `with the keys ${shown(Object.keys(part))}` : `of type ${shown(part["type"])}`;
    throw new ArgumentError(
      `A message has a content part ${kind}; this model reads text alone (types ${[...TEXT_PARTS.keys()].join(", ")})`,
    );
  }
  const text = part[key] ?? null;
  if (text === null || typeof text === "string") return text;
  throw new ArgumentError(`Expected \`${key}\` of a content part to be a string, got ${shown(text)}`);
}

/** Returns content as one string: parts joined with line breaks, empty for missing content. */
function contentText(content: WireMessage["content"]): string {
  if (typeof content === "string") return content;
  const texts = (content ?? []).map(partText);
  return texts.filter((text) => text !== null).join("\n");
}

/**
 * Returns a message with only the keys that chat templates receive: content as one string, empty `tool_calls` dropped, reasoning also under
 * its older name.
 *
 * @throws ArgumentError `E_ARGUMENT` for a content part that is not text.
 */
export function toTemplateMessage(message: WireMessage): ChatMessage {
  const { role, name, tool_calls: calls, tool_call_id: callId, tools } = message;
  const reasoning = message.reasoning ?? message.reasoning_content;
  return {
    role,
    content: contentText(message.content),
    ...(typeof name === "string" ? { name } : {}),
    ...(calls?.length ? { tool_calls: calls } : {}),
    ...(typeof callId === "string" ? { tool_call_id: callId } : {}),
    ...(typeof reasoning === "string" ? { reasoning, reasoning_content: reasoning } : {}),
    ...(role === "developer" && tools ? { tools } : {}),
  };
}
