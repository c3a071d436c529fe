import type { ChatCompletion, ChatCompletionChunk, ChatCompletionRequest } from "../schema/index.ts";
import { LONG_CALL_MS, type Api, type CallOptions } from "./api.ts";
import { parseCompletion } from "./completion.ts";
import { readChatStream } from "./sse.ts";

/** Body of a chat request. */
export type ChatParams = ChatCompletionRequest;

/** The `chat.completions` resource. Field names are exactly those on the wire. */
export interface ChatCompletions {
  /**
   * Streams the chunks of a completion. The request starts with the first `next`; leaving the loop aborts it.
   *
   * @throws HttpError `E_HTTP` for an error status or an error event inside the stream.
   * @throws ConnectionError `E_CONNECTION` if the stream is cut; a started stream is never repeated.
   * @throws ProtocolError `E_PROTOCOL` if a chunk does not match the schema.
   */
  create(params: ChatParams & { readonly stream: true }, options?: CallOptions): AsyncIterable<ChatCompletionChunk>;
  /**
   * Returns one completion. Retried only if the service has certainly not started: after 429, 503 or a failed connection.
   *
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` if there was no complete response.
   * @throws ProtocolError `E_PROTOCOL` if the response does not match the schema.
   */
  create(params: ChatParams & { readonly stream?: false | null | undefined }, options?: CallOptions): Promise<ChatCompletion>;
}

/** The `chat` resource. */
export interface Chat {
  readonly completions: ChatCompletions;
}

const PATH = "/v1/chat/completions";

export function chatResource(api: Api): Chat {
  function create(params: ChatParams, options: CallOptions = {}): Promise<ChatCompletion> | AsyncIterable<ChatCompletionChunk> {
    return params.stream === true ? stream(api, params, options) : complete(api, params, options);
  }
  return { completions: { create: create as ChatCompletions["create"] } };
}

async function complete(api: Api, params: ChatParams, options: CallOptions): Promise<ChatCompletion> {
  const answer = await api.transport.json("POST", api.baseUrl + PATH, {
    ...options,
    json: params,
    retry: "unsent",
    headersTimeoutMs: LONG_CALL_MS,
  });
  return parseCompletion(answer);
}

function stream(api: Api, params: ChatParams, options: CallOptions): AsyncIterable<ChatCompletionChunk> {
  return readChatStream(
    api.transport.stream("POST", api.baseUrl + PATH, {
      ...options,
      json: params,
      retry: "unsent",
      headers: { accept: "text/event-stream" },
      headersTimeoutMs: LONG_CALL_MS,
    }),
  );
}
