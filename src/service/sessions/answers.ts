/** Answers of recorded turns, without the parts that the agent did not ask for. */
import type { ChatCompletion, ChatCompletionChunk } from "../../base/schema/index.ts";
import { chunkStream } from "../chat/answer/chunk-source.ts";
import type { ChatAnswer } from "../chat/pipeline.ts";
import type { Asked } from "../chat/request/effective-request.ts";

/**
 * Returns the answer for the agent: token ids and log-probabilities that it did not ask for are null. A session records both for every
 * request.
 */
export function withoutUnasked(completion: ChatCompletion, { logprobs, tokenIds }: Asked): ChatCompletion {
  if (logprobs && tokenIds) return completion;
  const choices = completion.choices.map((choice) => ({
    ...choice,
    ...(logprobs ? {} : { logprobs: null }),
    ...(tokenIds ? {} : { token_ids: null }),
  }));
  return { ...completion, choices, ...(tokenIds ? {} : { prompt_token_ids: null }) };
}

/**
 * Returns a chunk for the agent, like {@link withoutUnasked}.
 *
 * @returns null for a chunk that has only parts that the agent did not ask for.
 */
export function chunkWithoutUnasked(chunk: ChatCompletionChunk, { logprobs, tokenIds }: Asked): ChatCompletionChunk | null {
  if (logprobs && tokenIds) return chunk;
  const choices = chunk.choices.map((choice) => ({
    ...choice,
    ...(logprobs || !choice.logprobs ? {} : { logprobs: null }),
    ...(tokenIds || !choice.token_ids ? {} : { token_ids: null }),
  }));
  const isEmpty = choices.length > 0 && !tokenIds && choices.every((choice) => isEmptyChoice(choice));
  if (isEmpty) return null;
  return { ...chunk, choices, ...(tokenIds || !chunk.prompt_token_ids ? {} : { prompt_token_ids: null }) };
}

/** Whether a choice of a chunk has nothing that the agent asked for. */
function isEmptyChoice({ delta, finish_reason: end, logprobs }: ChatCompletionChunk["choices"][number]): boolean {
  return !end && !logprobs && Object.values(delta).every((value) => value === "" || value === null);
}

/** Returns the answer of a recorded turn, as JSON or as a stream. */
export function recordedAnswer(completion: ChatCompletion, asked: Asked): ChatAnswer {
  const answer = withoutUnasked(completion, asked);
  if (!asked.isStream) return { kind: "whole", answer: { completion: () => answer, json: () => JSON.stringify(answer) } };
  const batch = { chunks: chunksOf(answer, asked), failure: null, isLast: true };
  return { kind: "stream", stream: chunkStream({ next: () => Promise.resolve(batch), cancel: () => Promise.resolve() }) };
}

/** Returns the chunks of a stream with a completion: per choice its role, and the whole message with its end. */
function chunksOf(
  { id, created, model, choices, usage, prompt_token_ids: promptIds }: ChatCompletion,
  asked: Asked,
): ChatCompletionChunk[] {
  const head = { id, object: "chat.completion.chunk" as const, created, model };
  const opening = choices.map(({ index, message }, at) => ({
    ...head,
    choices: [{ index, delta: { role: message.role, content: "" }, logprobs: null, finish_reason: null }],
    prompt_token_ids: at === 0 ? (promptIds ?? null) : null,
  }));
  const whole = choices.map(({ index, message, logprobs, finish_reason: reason, stop_reason: stop, token_ids: ids }) => {
    const { role: _role, content, tool_calls: calls, reasoning } = message as typeof message & { readonly reasoning?: string | null };
    const delta = {
      ...(reasoning ? { reasoning } : {}),
      ...(content ? { content } : {}),
      ...(calls?.length ? { tool_calls: calls.map((call, position) => ({ index: position, ...call })) } : {}),
    };
    return { ...head, choices: [{ index, delta, logprobs, finish_reason: reason, stop_reason: stop, token_ids: ids }] };
  });
  return [...opening, ...whole, ...(asked.usage ? [{ ...head, choices: [], usage }] : [])];
}
