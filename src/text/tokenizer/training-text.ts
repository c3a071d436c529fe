/** Splits the text of a conversation into context and the assistant turns to train, by rendering it turn by turn. */

import { DataError } from "../../base/errors.ts";
import type { ChatMessage } from "./chat-tokenizer.ts";

/** A stretch of a conversation's text. */
export interface TextSegment {
  readonly text: string;
  /** Whether the text is a completion to train on; otherwise it is context. */
  readonly trained: boolean;
}

/** Renders the first messages of a conversation, with or without the header of the assistant's turn at the end. */
type Render = (messages: readonly ChatMessage[], options: { readonly addGenerationPrompt: boolean }) => string;

/**
 * Cuts a conversation into alternating contexts and completions. For every trained assistant message it renders the messages before it with
 * the generation header (the prompt), and the messages up to and including it without: the difference is the completion, which is cut off
 * after its last closing text. The context is the part of the prompt after the previous completion.
 *
 * @param render - Renders the first messages of the conversation.
 * @param closings - Texts of the tokens that end a turn; none = a completion is the whole difference.
 * @param isTrained - Whether the assistant message at an index is trained; others are context. Default: all are.
 * @throws DataError `E_DATA` without an assistant message, or if a rendering does not extend the one before it, or the template
 *   leaves out the tool calls of a trained message.
 */
export function trainingSegments(
  messages: readonly ChatMessage[],
  render: Render,
  closings: readonly string[],
  isTrained: (index: number) => boolean = () => true,
): TextSegment[] {
  const segments: TextSegment[] = [];
  let textOfSegments = "";
  for (const [index, message] of messages.entries()) {
    if (message.role !== "assistant" || !isTrained(index)) continue;
    const prompt = render(messages.slice(0, index), { addGenerationPrompt: true });
    const finishedTurn = render(messages.slice(0, index + 1), { addGenerationPrompt: false });
    requireToolCalls(messages, index, finishedTurn, render);
    const context = afterTurns(textOfSegments, prompt, index);
    const withTrailer = afterPrompt(prompt, finishedTurn, index);
    const completion = withTrailer.slice(0, completionEnd(withTrailer, closings));
    if (completion === "") throw new DataError(`messages[${index}]: the chat template renders nothing for this assistant message.`);
    segments.push({ text: context, trained: false }, { text: completion, trained: true });
    textOfSegments = prompt + completion;
  }
  if (segments.length === 0) throw new DataError("Expected at least one assistant message to train on, found none.");
  return segments;
}

/**
 * Requires that the template renders the tool calls of a message: the rendering without them must differ.
 *
 * @param finishedTurn - Rendering of the messages up to and including the one at `index`.
 * @throws DataError `E_DATA` if the template renders the message without its tool calls.
 */
function requireToolCalls(messages: readonly ChatMessage[], index: number, finishedTurn: string, render: Render): void {
  const { tool_calls: calls, ...withoutCalls } = messages[index] as ChatMessage;
  if (calls === undefined || calls === null || calls.length === 0) return;
  let rendered: string;
  try {
    rendered = render([...messages.slice(0, index), withoutCalls], { addGenerationPrompt: false });
  } catch {
    // The template rejects the message without its calls, so it reads them.
    return;
  }
  if (rendered !== finishedTurn) return;
  throw new DataError(
    `messages[${index}]: the chat template renders nothing of its \`tool_calls\`, so they cannot be trained. ` +
      "Use a chat template that renders tool calls; some render them only where `content` is empty.",
  );
}

/** Returns the part of a prompt after the text of the segments so far, with which the prompt must begin. */
function afterTurns(textOfSegments: string, prompt: string, index: number): string {
  if (prompt.startsWith(textOfSegments)) return prompt.slice(textOfSegments.length);
  throw new DataError(
    `The chat template renders the prompt of messages[${index}] so that it does not extend the turns before it, so no token can be assigned ` +
      "to a turn; templates that leave out earlier reasoning do so. Split the conversation so that each line ends with its only trained " +
      "assistant message, or train from sampled token ids.",
  );
}

/** Returns the part of the rendered turn after its prompt, with which it must begin. */
function afterPrompt(prompt: string, finishedTurn: string, index: number): string {
  if (finishedTurn.startsWith(prompt)) return finishedTurn.slice(prompt.length);
  let at = 0;
  while (prompt[at] === finishedTurn[at]) at++;
  const excerpt = (text: string): string => JSON.stringify(text.slice(at, at + 40));
  throw new DataError(
    `The chat template renders messages[${index}] so that it does not extend its own prompt: after the same ${at} characters the prompt ` +
      `continues with ${excerpt(prompt)}, the finished turn with ${excerpt(finishedTurn)}. If the prompt opens the reasoning, give the message ` +
      "a `reasoning_content`, or set the template's variable that disables it (`enable_thinking: false`); else train from sampled token ids, or use a template that renders finished turns as it renders prompts.",
  );
}

/** Returns the end of the last closing text in a completion; the length of a completion without closing text. */
function completionEnd(completion: string, closings: readonly string[]): number {
  let end = -1;
  for (const closing of closings) {
    const at = closing === "" ? -1 : completion.lastIndexOf(closing);
    if (at >= 0) end = Math.max(end, at + closing.length);
  }
  return end < 0 ? completion.length : end;
}
