/** Conversion of messages from the form of requests to the forms that chat templates read. */

import { DataError, UnsupportedError, WhetstoneError } from "../../base/errors.ts";
import type { ChatMessage, ChatToolCall } from "./chat-tokenizer.ts";
import { Dict, jsonText, parseJsonValue } from "./jinja/index.ts";
import { formRole, type MessageForms, textPart } from "./message-forms.ts";

/** Types of content parts that are text. */
const TEXT_PART_TYPES: ReadonlySet<string> = new Set(["text", "input_text", "output_text", "refusal", "thinking"]);

/**
 * Returns copies of `messages` in the forms that a template renders: content as one text or as parts, tool call arguments as objects or as
 * JSON text, and reasoning under each of its names. Unknown keys are kept.
 *
 * @param forms - Forms that the template renders.
 * @throws DataError `E_DATA` for tool call arguments that are not the JSON text of an object.
 * @throws UnsupportedError `E_UNSUPPORTED` for content that is not text.
 */
export function templateMessages(messages: readonly ChatMessage[], forms: MessageForms): Record<string, unknown>[] {
  return messages.map((message, index) => {
    const where = `messages[${index}]`;
    const { tool_calls: toolCalls, content, ...rest } = message;
    const { texts, thoughts } = contentTexts(content, message.role, `${where}.content`);
    // Templates test `is defined`: members that are null or undefined must be absent.
    const members = Object.entries(rest).filter(([, value]) => value !== undefined && value !== null);
    const result: Record<string, unknown> = { ...Object.fromEntries(members), content: "" };
    const reasoning = addReasoning(result, thoughts);
    result["content"] = contentForm(texts, message.role, forms, forms.reasoning === "part" ? reasoning : undefined);
    if (toolCalls !== undefined && toolCalls !== null && toolCalls.length > 0) {
      if (result["content"] === "") result["content"] = forms.emptyContent;
      result["tool_calls"] = toolCalls.map((call, at) => templateToolCall(call, `${where}.tool_calls[${at}]`, forms));
    }
    return result;
  });
}

/**
 * Writes the reasoning of a message under all three names that templates read, and returns it; undefined if the message has none. The
 * message's own fields take precedence over thoughts among the parts of its content.
 */
function addReasoning(result: Record<string, unknown>, thoughts: readonly string[]): string | undefined {
  const ownField = result["reasoning_content"] ?? result["thinking"] ?? result["reasoning"];
  const reasoning: unknown = ownField ?? (thoughts.length > 0 ? thoughts.join("\n") : undefined);
  if (typeof reasoning !== "string") return undefined;
  result["reasoning_content"] = reasoning;
  result["thinking"] ??= reasoning;
  result["reasoning"] ??= reasoning;
  return reasoning;
}

/**
 * Returns content as the template reads it for this role: a text, or a list of parts.
 *
 * @param reasoning - Reasoning for a part at the start of the content; undefined for a message without reasoning, or with reasoning in
 *   fields of its own.
 */
function contentForm(texts: string | readonly string[], role: string, forms: MessageForms, reasoning: string | undefined): unknown {
  const form = formRole(role);
  const isList = typeof texts !== "string";
  if (reasoning !== undefined && form === "assistant") {
    const answer = (isList ? texts : [texts]).filter((text) => text !== "");
    return [{ type: "thinking", thinking: reasoning }, ...answer.map(textPart)];
  }
  if (isList) return texts.length > 0 && forms.readsParts[form] ? texts.map(textPart) : texts.join("\n");
  return forms.readsText[form] ? texts : [textPart(texts)];
}

/** Content of a message, taken apart. */
interface ContentTexts {
  /** Text of the content, or texts of its parts. */
  readonly texts: string | readonly string[];
  /** Texts of the parts of type `thinking` in an assistant message. */
  readonly thoughts: readonly string[];
}

/** Takes content apart; `where` names it in messages. */
function contentTexts(content: ChatMessage["content"], role: string, where: string): ContentTexts {
  if (content === null || content === undefined) return { texts: "", thoughts: [] };
  if (typeof content === "string") return { texts: content, thoughts: [] };
  const texts: string[] = [];
  const thoughts: string[] = [];
  for (const [index, part] of content.entries()) {
    if (typeof part === "string") {
      texts.push(part);
      continue;
    }
    const type = part.type ?? "text";
    if (!TEXT_PART_TYPES.has(type)) {
      throw new UnsupportedError(`${where}[${index}]: this model reads text only, got a part of type \`${type}\`.`, { param: "messages" });
    }
    // A refusal or a thought has its text under the name of its type: `{ type: "refusal", refusal: "…" }`.
    const text = part.text ?? (part as Readonly<Record<string, unknown>>)[type];
    if (typeof text !== "string") continue;
    if (type === "thinking" && role === "assistant") thoughts.push(text);
    else texts.push(text);
  }
  return { texts, thoughts };
}

/** Returns a tool call with its arguments in the form that the template reads; `where` names the call in messages. */
function templateToolCall(call: ChatToolCall, where: string, forms: MessageForms): Record<string, unknown> {
  const parsed = argumentsObject(call.function.arguments, where);
  return {
    ...call,
    type: call.type ?? "function",
    function: {
      ...call.function,
      arguments: forms.toolArguments === "object" ? parsed : argumentsText(call.function.arguments, parsed, where),
    },
  };
}

/** Returns the JSON text of arguments: the client's own text if it sent a text, otherwise of the parsed object. */
function argumentsText(given: unknown, parsed: unknown, where: string): string {
  if (typeof given === "string" && given !== "") return given;
  try {
    return jsonText(parsed);
  } catch (error) {
    throw argumentsError(where, (error as Error).message, error);
  }
}

/** Returns the error of a tool call's arguments. */
function argumentsError(where: string, problem: string, cause: unknown): DataError {
  return new DataError(`${where}.function.arguments: ${problem}`, { cause, param: "messages" });
}

/** Returns the object of tool call arguments that are an object or its JSON text; `{}` if absent or empty. */
function argumentsObject(value: unknown, where: string): unknown {
  if (value === undefined || value === null || value === "") return {};
  let parsed: unknown = value;
  if (typeof value === "string") {
    try {
      parsed = parseJsonValue(value);
    } catch (error) {
      const isTooDeep = WhetstoneError.isInstance(error);
      throw argumentsError(where, isTooDeep ? error.message : "expected the JSON text of an object, got text that is not JSON.", error);
    }
  }
  if (parsed instanceof Dict) return parsed;
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    const objectKind = parsed === null ? "null" : "an array";
    const kind = typeof parsed === "object" ? objectKind : typeof parsed;
    throw new DataError(`${where}.function.arguments: expected the JSON text of an object, got ${kind}.`, { param: "messages" });
  }
  return parsed;
}
