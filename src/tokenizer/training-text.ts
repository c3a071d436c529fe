/** Which parts of a rendered conversation the assistant says, found by rendering it turn by turn. */

import { DataError } from "../errors.ts";
import type { ChatMessage } from "./chat-tokenizer.ts";

/** A stretch of a conversation's text. */
export interface TextSegment {
  readonly text: string;
  /** Whether the assistant says it. */
  readonly trained: boolean;
}

/**
 * Cuts a conversation into context and completions, in turns. For every assistant message, the messages before it are
 * rendered with the generation header (the prompt) and the messages up to it without: the difference is the completion.
 * It ends at its last closing text; what the template writes after that belongs to the next context.
 *
 * @param render - Renders the first messages of the conversation.
 * @param closings - Texts of the tokens that end a turn; none = a completion is the whole difference.
 * @param isTrained - Whether the assistant message at an index is trained; others are context. Default: all are.
 * @throws DataError `E_DATA` when there is no assistant message, or a rendering does not extend the one before it.
 */
export function trainingSegments(
  messages: readonly ChatMessage[],
  render: (messages: readonly ChatMessage[], addGenerationPrompt: boolean) => string,
  closings: readonly string[],
  isTrained: (index: number) => boolean = () => true,
): TextSegment[] {
  const segments: TextSegment[] = [];
  let done = "";
  let context = "";
  for (const [index, message] of messages.entries()) {
    if (message.role !== "assistant" || !isTrained(index)) continue;
    const prompt = render(messages.slice(0, index), true);
    const whole = render(messages.slice(0, index + 1), false);
    context += rest(done, prompt, `the prompt of messages[${index}]`, "the turns before it");
    const completion = rest(prompt, whole, `messages[${index}]`, "its own prompt");
    const end = completionEnd(completion, closings);
    if (end === 0) throw new DataError(`messages[${index}]: the chat template renders nothing for this assistant message.`);
    segments.push({ text: context, trained: false }, { text: completion.slice(0, end), trained: true });
    context = completion.slice(end);
    done = whole;
  }
  if (segments.length === 0) throw new DataError("Expected at least one assistant message to train on, found none.");
  return segments;
}

function rest(start: string, text: string, what: string, before: string): string {
  if (!text.startsWith(start)) {
    throw new DataError(
      `The chat template renders ${what} so that it does not extend ${before}, so no token can be assigned to a turn. ` +
        "Split the conversation so that each line ends with its only trained assistant message, or train from sampled token ids.",
    );
  }
  return text.slice(start.length);
}

function completionEnd(completion: string, closings: readonly string[]): number {
  let end = -1;
  for (const closing of closings) {
    const at = closing === "" ? -1 : completion.lastIndexOf(closing);
    if (at >= 0) end = Math.max(end, at + closing.length);
  }
  return end < 0 ? completion.length : end;
}
