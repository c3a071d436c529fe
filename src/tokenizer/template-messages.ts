/** From messages as clients write them to messages as chat templates read them. */

import { DataError, UnsupportedError, WhetstoneError } from "../errors.ts";
import type { ChatMessage, ChatToolCall } from "./chat-tokenizer.ts";
import { Dict, parseJson } from "./jinja/index.ts";

const TEXT_PARTS: ReadonlySet<string> = new Set(["text", "input_text", "output_text", "refusal", "thinking"]);

/**
 * Copies of `messages` with content as one text, tool call arguments as objects, and reasoning under both of its names.
 * Keys this function does not know are kept.
 *
 * @throws DataError `E_DATA` for tool call arguments that are not the JSON text of an object.
 * @throws UnsupportedError `E_UNSUPPORTED` for content that is not text.
 */
export function templateMessages(messages: readonly ChatMessage[]): Record<string, unknown>[] {
  return messages.map((message, index) => {
    const where = `messages[${index}]`;
    const { tool_calls: toolCalls, content, ...rest } = message;
    const result: Record<string, unknown> = { ...rest, content: contentText(content, `${where}.content`) };
    for (const [key, value] of Object.entries(rest)) {
      // Templates ask `is defined`: what a client wrote as null or undefined must look absent.
      if (value === undefined || value === null) delete result[key];
    }
    // As transformers does: templates read the reasoning under one of these names.
    const reasoning: unknown = message["reasoning_content"] ?? message["thinking"] ?? message.reasoning;
    if (typeof reasoning === "string") {
      result["reasoning_content"] = reasoning;
      result["thinking"] ??= reasoning;
    }
    if (toolCalls !== undefined && toolCalls !== null && toolCalls.length > 0) {
      result["tool_calls"] = toolCalls.map((call, callIndex) => templateToolCall(call, `${where}.tool_calls[${callIndex}]`));
    }
    return result;
  });
}

function contentText(content: ChatMessage["content"], where: string): string {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  const texts: string[] = [];
  for (const [index, part] of content.entries()) {
    if (typeof part === "string") {
      texts.push(part);
      continue;
    }
    const type = part.type ?? "text";
    if (!TEXT_PARTS.has(type)) {
      throw new UnsupportedError(`${where}[${index}]: this model reads text only, got a part of type \`${type}\`.`, { param: "messages" });
    }
    // A refusal or a thought has its text under its own name.
    const own: unknown = (part as Readonly<Record<string, unknown>>)[type];
    const text = part.text ?? own;
    if (typeof text === "string") texts.push(text);
  }
  return texts.join("\n");
}

function templateToolCall(call: ChatToolCall, where: string): Record<string, unknown> {
  return {
    ...call,
    type: call.type ?? "function",
    function: { ...call.function, arguments: argumentsObject(call.function.arguments, where) },
  };
}

function argumentsObject(value: unknown, where: string): unknown {
  if (value === undefined || value === null || value === "") return {};
  let parsed: unknown = value;
  if (typeof value === "string") {
    try {
      parsed = parseJson(value);
    } catch (error) {
      if (WhetstoneError.isInstance(error))
        throw new DataError(`${where}.function.arguments: ${error.message}`, { cause: error, param: "messages" });
      throw new DataError(`${where}.function.arguments: expected the JSON text of an object, got text that is not JSON.`, {
        cause: error,
        param: "messages",
      });
    }
  }
  if (parsed instanceof Dict) return parsed;
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    const kind = parsed === null ? "null" : Array.isArray(parsed) ? "an array" : typeof parsed;
    throw new DataError(`${where}.function.arguments: expected the JSON text of an object, got ${kind}.`, { param: "messages" });
  }
  return parsed;
}
