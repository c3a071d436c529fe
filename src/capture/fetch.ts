/** Fetch that records calls to the policy. */
import { HttpError } from "../client/index.ts";
import type { ChatCompletion, ChatCompletionRequest } from "../schema/index.ts";
import { deferred } from "../util/deferred.ts";
import { isChatAddress, parseRequest, readChatCall, trainableBody, type ChatCall } from "./request.ts";
import { watchResponse } from "./response.ts";
import { scopes, type CaptureScope } from "./scope.ts";

/** Function with the signature of the WHATWG `fetch`. */
export type Fetch = typeof globalThis.fetch;
type FetchInput = Parameters<Fetch>[0];
type FetchInit = NonNullable<Parameters<Fetch>[1]>;

/**
 * Creates a fetch that sends all requests through `inner` and records the calls to the policy while a capture scope runs. Outside a scope,
 * and for every other request, it is `inner`.
 *
 * @param inner - Fetch that sends the requests. @default globalThis.fetch, looked up at each call
 * @returns Recording fetch.
 */
export function captureFetch(inner?: Fetch): Fetch {
  return async (input, init) => {
    const send = inner ?? globalThis.fetch;
    const scope = scopes.getStore();
    if (scope === undefined || scope.isClosed) return send(input, init);
    const order = scope.nextOrder();
    const reading = readCall(input, init);
    // Registered at once, because an agent may return while its call is pending.
    scope.hold(reading.then(nothing, nothing));
    const call = await reading;
    // Runs outside the scope, so that an outer capturing fetch does not record the call again.
    return scopes.run(undefined, () => record(scope, order, call, { send, input, init }));
  };
}

function nothing(): void {}

interface Sending {
  readonly send: Fetch;
  readonly input: FetchInput;
  readonly init: FetchInit | undefined;
}

async function record(scope: CaptureScope, order: number, call: ChatCall | null, sending: Sending): Promise<Response> {
  const { send, input, init } = sending;
  const signal = joined(scope.signal, init?.signal ?? (input instanceof Request ? input.signal : undefined));
  if (call === null || !scope.accepts(call.url, call.model)) return send(input, { ...init, ...signal });
  const body = trainableBody(call.body, scope.chatTemplateKwargs);
  const request = parseRequest(body);
  const sent = () => send(...withBody(input, { ...init, ...signal }, JSON.stringify(body)));
  if (request === null) {
    scope.log(`capture: a call to ${call.model} is no turn: its messages have no known shape`);
    return sent();
  }
  const answer = deferred<ChatCompletion>();
  void scope.track(order, request, answer.promise);
  try {
    return watched(await sent(), request, answer);
  } catch (error) {
    answer.reject(error);
    throw error;
  }
}

function watched(response: Response, request: ChatCompletionRequest, answer: ReturnType<typeof deferred<ChatCompletion>>): Response {
  if (!response.ok) {
    // A failed attempt is not a turn; retrying is up to the client.
    answer.reject(new HttpError(`The service answered ${response.status}`, { status: response.status }));
    return response;
  }
  const { response: copy, completion } = watchResponse(response, request.n ?? 1);
  answer.resolve(completion);
  return copy;
}

function joined(scope: AbortSignal | undefined, own: AbortSignal | null | undefined): { readonly signal?: AbortSignal } {
  if (scope === undefined) return own ? { signal: own } : {};
  return { signal: own ? AbortSignal.any([scope, own]) : scope };
}

/** Parses the chat call of a request; null for other requests. The request can still be sent afterwards. */
async function readCall(input: FetchInput, init: FetchInit | undefined): Promise<ChatCall | null> {
  const isRequest = input instanceof Request;
  const url = isRequest ? input.url : String(input);
  if (!isChatAddress(init?.method ?? (isRequest ? input.method : "GET"), url)) return null;
  const text = await readText(init?.body ?? (isRequest ? input : null));
  return text === null ? null : readChatCall(url, text);
}

async function readText(body: NonNullable<FetchInit["body"]> | Request | null): Promise<string | null> {
  if (typeof body === "string") return body;
  if (body instanceof Request) return body.clone().text();
  if (ArrayBuffer.isView(body) || body instanceof ArrayBuffer || body instanceof Blob) return new Response(body).text();
  // A stream can be read only once and is left to the request.
  return null;
}

/** Returns the arguments of the same request with another body. */
function withBody(input: FetchInput, init: FetchInit, body: string): Parameters<Fetch> {
  const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : undefined));
  // The old body's length no longer applies.
  headers.delete("content-length");
  return [input instanceof Request ? input.clone() : input, { ...init, headers, body }];
}
