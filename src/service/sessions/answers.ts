/**
 * Answers of the turns of a session, without the parts that the agent did not request. A session records token ids and log-probabilities
 * for every request.
 */
import type { ChatCompletion, ChatCompletionChunk, ResponseMessage } from "../../base/schema/index.ts";
import { chunkStream } from "../chat/answer/chunk-source.ts";
import type { ChatAnswer } from "../chat/pipeline.ts";
import type { RequestedParts } from "../chat/request/effective-request.ts";

/** Returns the answer for the agent: token ids and log-probabilities that the agent did not request are null. */
export function withRequestedParts(completion: ChatCompletion, { logprobs, tokenIds }: RequestedParts): ChatCompletion {
  if (logprobs && tokenIds) return completion;
  const choices = completion.choices.map((choice) => ({
    ...choice,
    ...(logprobs ? {} : { logprobs: null }),
    ...(tokenIds ? {} : { token_ids: null }),
  }));
  return { ...completion, choices, ...(tokenIds ? {} : { prompt_token_ids: null }) };
}

/**
 * Returns a chunk for the agent, like {@link withRequestedParts}.
 *
 * @returns null for a chunk of which no part was requested.
 */
export function chunkWithRequestedParts(chunk: ChatCompletionChunk, { logprobs, tokenIds }: RequestedParts): ChatCompletionChunk | null {
  if (logprobs && tokenIds) return chunk;
  const choices = chunk.choices.map((choice) => ({
    ...choice,
    ...(logprobs || !choice.logprobs ? {} : { logprobs: null }),
    ...(tokenIds || !choice.token_ids ? {} : { token_ids: null }),
  }));
  // With token ids, every chunk of a choice has requested parts.
  if (!tokenIds && choices.length > 0 && choices.every((choice) => isEmptyChoice(choice))) return null;
  return { ...chunk, choices, ...(tokenIds || !chunk.prompt_token_ids ? {} : { prompt_token_ids: null }) };
}

/** Whether a choice of a chunk has no output besides token ids. */
function isEmptyChoice({ delta, finish_reason: finishReason, logprobs }: ChatCompletionChunk["choices"][number]): boolean {
  return !finishReason && !logprobs && Object.values(delta).every((value) => value === "" || value === null);
}

/** Returns the answer of a recorded turn, as JSON or as a stream. */
export function recordedAnswer(completion: ChatCompletion, requested: RequestedParts): ChatAnswer {
  const answer = withRequestedParts(completion, requested);
  if (!requested.isStream) return { kind: "whole", answer: { completion: () => answer, json: () => JSON.stringify(answer) } };
  const batch = { chunks: chunksOf(answer, requested), failure: null, isLast: true };
  return { kind: "stream", stream: chunkStream({ next: () => Promise.resolve(batch), cancel: () => Promise.resolve() }) };
}

/** Returns a completion as the chunks of a stream: one with the role of each choice, then one with each whole message and its end. */
function chunksOf(
  { id, created, model, choices, usage, prompt_token_ids: promptIds }: ChatCompletion,
  requested: RequestedParts,
): ChatCompletionChunk[] {
  const head = { id, object: "chat.completion.chunk" as const, created, model };
  const roleChunks = choices.map(({ index, message }, position) => ({
    ...head,
    choices: [{ index, delta: { role: message.role, content: "" }, logprobs: null, finish_reason: null }],
    prompt_token_ids: position === 0 ? (promptIds ?? null) : null,
  }));
  const messageChunks = choices.map(({ index, message, logprobs, finish_reason, stop_reason, token_ids }) => ({
    ...head,
    choices: [{ index, delta: deltaOf(message), logprobs, finish_reason, stop_reason, token_ids }],
  }));
  const usageChunks = requested.usage ? [{ ...head, choices: [], usage }] : [];
  return [...roleChunks, ...messageChunks, ...usageChunks];
}

/** Returns the whole output of a message as the delta of a chunk. */
function deltaOf({ content, tool_calls: calls, reasoning }: ResponseMessage): ChatCompletionChunk["choices"][number]["delta"] {
  return {
    ...(reasoning ? { reasoning } : {}),
    ...(content ? { content } : {}),
    ...(calls?.length ? { tool_calls: calls.map((call, index) => ({ index, ...call })) } : {}),
  };
}
