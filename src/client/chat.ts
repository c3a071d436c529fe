import type { ChatCompletion, ChatCompletionChunk, ChatCompletionRequest } from "../schema/index.ts";
import { LONG_CALL_MS, type Api, type CallOptions } from "./api.ts";
import { parseCompletion } from "./completion.ts";
import { readChatStream } from "./sse.ts";

/** A chat body as its writer may have it: arrays and objects need not be mutable. */
export type ChatParams = ChatCompletionRequest;

/** `chat.completions`: the wire's own names, one to one. */
export interface ChatCompletions {
  /**
   * Streams chunks. The request starts with the first `next`; leaving the loop aborts it.
   *
   * @throws HttpError `E_HTTP`, also for an error inside the stream.
   * @throws ConnectionError `E_CONNECTION` when the stream is cut; it is never repeated.
   */
  create(params: ChatParams & { readonly stream: true }, options?: CallOptions): AsyncIterable<ChatCompletionChunk>;
  /**
   * One completion. Repeated only while the service has surely not begun: 429, 503, no connection.
   *
   * @throws HttpError `E_HTTP`; ConnectionError `E_CONNECTION`; ProtocolError `E_PROTOCOL`.
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
