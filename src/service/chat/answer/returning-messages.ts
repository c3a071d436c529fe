import { parseJson } from "../../../base/util/values.ts";
import type { ChatMessage } from "../../../text/tokenizer/index.ts";
import type { ChoiceMessage } from "./shape.ts";

/**
 * Returns the messages as which a response may be sent back, if the template may render them differently from its text: clients return
 * reasoning or leave it out, and a template writes the tags of reasoning in its own way, some also by whether another message follows. A
 * call that was cut short cannot be sent back, because its arguments are not valid JSON.
 *
 * @param hasTags - Whether the turn has tags of reasoning.
 * @returns Each variant of the message, with the messages that follow it.
 */
export function returningMessages(
  { content, reasoning, toolCalls }: ChoiceMessage,
  text: string,
  hasTags: boolean,
): [ChatMessage, ...ChatMessage[]][] {
  if (toolCalls.length === 0 && content === text && !hasTags) return [];
  if (toolCalls.some((call) => parseJson(call.function.arguments) === undefined)) return [];
  const plain = { role: "assistant", content: content ?? "", ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }) };
  const variants = reasoning === null ? [plain] : [plain, { ...plain, reasoning, reasoning_content: reasoning }];
  const results = toolCalls.map(({ id }) => ({ role: "tool", content: "", tool_call_id: id }));
  return variants.flatMap((variant) => (hasTags && results.length > 0 ? [[variant], [variant, ...results]] : [[variant]]));
}
