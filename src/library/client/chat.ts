/** The `chat.completions` resource of the client: one completion, or a stream of its chunks. */
import type { ChatCompletion, ChatCompletionChunk, ChatCompletionRequest } from "../../base/schema/index.ts";
import { LONG_CALL_MS, type Api, type CallOptions } from "./api.ts";
import { traceChat } from "./chat-span.ts";
import { parseCompletion } from "./completion.ts";
import { readChatStream } from "./sse.ts";

/** Body of a chat request. */
export type ChatParams = ChatCompletionRequest;

/**
 * The `chat.completions` resource. Field names are exactly those on the wire.
 *
 * @example
 * ```ts
 * const messages = [{ role: "user" as const, content: "Hello" }];
 * const { choices } = await service.chat.completions.create({ model: "whetstone-tiny", messages });
 * for await (const chunk of service.chat.completions.create({ model: "whetstone-tiny", messages, stream: true })) {
 *   process.stdout.write(chunk.choices[0]?.delta.content ?? "");
 * }
 * ```
 */
export interface ChatCompletions {
  /**
   * Streams the chunks of a completion. The request starts with the first `next`; leaving the loop aborts it.
   *
   * @param params - Body of the request.
   * @param options - Signal and time limit.
   * @returns the chunks; an iterable can be iterated once.
   * @throws HttpError `E_HTTP` for an error status or an error event inside the stream.
   * @throws ConnectionError `E_CONNECTION` if the stream is cut; a started stream is never repeated.
   * @throws ProtocolError `E_PROTOCOL` if a chunk does not match the schema.
   */
  create(params: ChatParams & { readonly stream: true }, options?: CallOptions): AsyncIterable<ChatCompletionChunk>;
  /**
   * Returns one completion. Retried only if the service has certainly not started to sample: after 429, 503 or a failed connection.
   *
   * @param params - Body of the request.
   * @param options - Signal and time limit. `onRateLimit` is called after a 429 response with the wait in milliseconds that the service
   *   requires, or null; it resolves to true when the request may be sent again, which does not count towards the client's `maxRetries`, and
   *   to false otherwise.
   * @returns the completion with all choices.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` if there was no complete response.
   * @throws ProtocolError `E_PROTOCOL` if the response does not match the schema.
   */
  create(
    params: ChatParams & { readonly stream?: false | null | undefined },
    options?: CallOptions & { readonly onRateLimit?: ((retryAfterMs: number | null) => Promise<boolean>) | undefined },
  ): Promise<ChatCompletion>;
}

/** The `chat` resource of a {@link Service}, in the layout of OpenAI clients. */
export interface Chat {
  /** Completions, whole or streamed. */
  readonly completions: ChatCompletions;
}

/** Creates the `chat` resource of a connection. */
export function chatResource(api: Api): Chat {
  function create(params: ChatParams, options: CallOptions = {}): Promise<ChatCompletion> | AsyncIterable<ChatCompletionChunk> {
    const url = `${api.baseUrl}/v1/chat/completions`;
    const request = { ...options, json: params, retry: "unsent", headersTimeoutMs: LONG_CALL_MS } as const;
    if (params.stream !== true) return traceChat(params, url, () => api.transport.json("POST", url, request).then(parseCompletion));
    return readChatStream(api.transport.stream("POST", url, { ...request, headers: { accept: "text/event-stream" } }));
  }
  return { completions: { create: create as ChatCompletions["create"] } };
}
