/** Translation of a chat completion to a message of the Messages API. */
import { createHash } from "node:crypto";
import { omittedSignature } from "./blocks.ts";
import type { ChatCompletion, MessagesAnswer, MessagesBlock, MessagesUsage, ToolCall, Usage } from "../../base/schema/index.ts";
import { cachedTokens, firstChoice, tokenMembers } from "../answer-parts.ts";

/** Returns the identifier of a message from the identifier of its chat completion. */
export function messageId(id: string): string {
  return id.replace(/^chatcmpl-/u, "msg_");
}

/** Returns the signature of a thinking block: a digest of its text; with `isOmitted`, the reasoning itself, which the block does not show. */
export function signatureOf(thinking: string, isOmitted: boolean): string {
  return isOmitted ? omittedSignature(thinking) : createHash("sha256").update(thinking).digest("base64");
}

/** Returns the token counts of the Messages API, where cached prompt tokens are not part of `input_tokens`. */
export function messagesUsageOf(usage: Usage | null | undefined): MessagesUsage {
  const cached = cachedTokens(usage);
  return {
    input_tokens: (usage?.prompt_tokens ?? 0) - cached,
    output_tokens: usage?.completion_tokens ?? 0,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
  };
}

/** Reason for the end of a message. */
export interface MessageEnd {
  readonly stop_reason: string | null;
  readonly stop_sequence: string | null;
}

/**
 * Returns the reason for the end of a message from the end of a choice.
 *
 * @param hasCalls - Whether the message has a `tool_use` block.
 */
export function stopReasonOf(
  { finish_reason: reason, stop_reason: matched }: { readonly finish_reason?: string | null | undefined; readonly stop_reason?: unknown },
  hasCalls: boolean,
): MessageEnd {
  if (reason === "length") return { stop_reason: "max_tokens", stop_sequence: null };
  if (hasCalls) return { stop_reason: "tool_use", stop_sequence: null };
  if (reason === "stop" && typeof matched === "string") return { stop_reason: "stop_sequence", stop_sequence: matched };
  return { stop_reason: reason === "stop" ? "end_turn" : (reason ?? null), stop_sequence: null };
}

function thinkingBlock(reasoning: string, isOmitted: boolean): MessagesBlock {
  return { type: "thinking", thinking: isOmitted ? "" : reasoning, signature: signatureOf(reasoning, isOmitted) };
}

/** Returns the block of a tool call. Truncated arguments become a text block, because the `input` of a `tool_use` block is an object. */
function callBlock({ id, function: called }: ToolCall): MessagesBlock {
  const text = called.arguments ?? "{}";
  try {
    return { type: "tool_use", id: id ?? "", name: called.name, input: JSON.parse(text) as MessagesBlock["input"] };
  } catch {
    return { type: "text", text };
  }
}

/**
 * Returns the answer of a completion.
 *
 * @param omitsThinking - Whether the thinking block has a signature and no text.
 */
export function toMessagesAnswer(completion: ChatCompletion, omitsThinking: boolean): MessagesAnswer {
  const choice = firstChoice(completion);
  const { content, reasoning, tool_calls: calls } = choice.message;
  const blocks = (calls ?? []).map(callBlock);
  return {
    id: messageId(completion.id),
    type: "message",
    role: "assistant",
    model: completion.model,
    content: [
      ...(reasoning ? [thinkingBlock(reasoning, omitsThinking)] : []),
      ...(content ? [{ type: "text", text: content }] : []),
      ...blocks,
    ],
    ...stopReasonOf(
      choice,
      blocks.some(({ type }) => type === "tool_use"),
    ),
    usage: messagesUsageOf(completion.usage),
    ...tokenMembers({ promptIds: completion.prompt_token_ids, ids: choice.token_ids, logprobs: choice.logprobs?.content }),
  };
}
