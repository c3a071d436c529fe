import type { ChatMessage } from "../../../tokenizer/index.ts";
import type { ChoiceMessage } from "./shape.ts";

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns the messages as which a response may be sent back, if they differ from its text: clients return reasoning or leave it out. A call
 * that was cut short cannot be sent back, because its arguments are not valid JSON.
 */
export function returningMessages({ content, reasoning, toolCalls }: ChoiceMessage, text: string): ChatMessage[] {
  if (toolCalls.length === 0 && content === text) return [];
  if (!toolCalls.every((call) => isJson(call.function.arguments))) return [];
  const plain = { role: "assistant", content: content ?? "", ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }) };
  return reasoning === null ? [plain] : [plain, { ...plain, reasoning, reasoning_content: reasoning }];
}
