/** Messages in which a client may send a response back; their rendered prompts are mapped to the sampled ids, see `rememberTurn`. */
import { parseJson } from "../../../base/util/values.ts";
import type { ChatMessage } from "../../../text/tokenizer/index.ts";
import type { ChoiceMessage } from "./shape.ts";

/**
 * Returns the forms in which clients may send a response back as a message of their next request. The template may render each form
 * differently from the sampled text: clients return the reasoning or leave it out, and templates write the tags of reasoning in their own
 * way, some depending on whether another message follows.
 *
 * Empty if the template renders the message as its text, and for a tool call that was cut short: its arguments are not valid JSON, so that
 * it cannot be sent back.
 *
 * @param text - The sampled text, of which the message was parsed.
 * @param hasTags - Whether the turn has tags of reasoning.
 * @returns Each form of the message, alone or with the tool results that may follow it.
 */
export function returningMessages(
  { content, reasoning, toolCalls }: ChoiceMessage,
  text: string,
  hasTags: boolean,
): [ChatMessage, ...ChatMessage[]][] {
  if (toolCalls.length === 0 && content === text && !hasTags) return [];
  if (toolCalls.some((call) => parseJson(call.function.arguments) === undefined)) return [];
  const withoutReasoning = { role: "assistant", content: content ?? "", ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }) };
  const forms: ChatMessage[] = [withoutReasoning];
  if (reasoning !== null) forms.push({ ...withoutReasoning, reasoning, reasoning_content: reasoning });
  const results = toolCalls.map(({ id }) => ({ role: "tool", content: "", tool_call_id: id }));
  // Only the tags of reasoning depend on the messages after the turn.
  const dependsOnResults = hasTags && results.length > 0;
  return forms.flatMap((form) => (dependsOnResults ? [[form], [form, ...results]] : [[form]]));
}
