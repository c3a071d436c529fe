/** Fetch that records calls to the policy: reads the request, adds the fields that training needs, sends it, and copies the response. */
import { HttpError } from "../client/index.ts";
import type { RecordedAnswer } from "../../dialects/index.ts";
import { deferred } from "../../base/util/deferred.ts";
import { dialectOf, readSamplingCall, recordedBody, type SamplingCall } from "./request.ts";
import { watchResponse } from "./response.ts";
import { scopes, type CaptureScope } from "./scope.ts";

/** Function with the signature of the WHATWG `fetch`. */
export type Fetch = typeof globalThis.fetch;
type FetchInput = Parameters<Fetch>[0];
type FetchInit = NonNullable<Parameters<Fetch>[1]>;

/**
 * Creates a fetch that sends all requests through `baseFetch` and records the calls to the policy while a capture scope runs. Outside a scope,
 * and for every other request, it is `baseFetch`.
 *
 * @param baseFetch - Fetch that sends the requests. @default globalThis.fetch, looked up at each call
 * @returns Recording fetch.
 */
export function captureFetch(baseFetch?: Fetch): Fetch {
  return async (input, init) => {
    const send = baseFetch ?? globalThis.fetch;
    const scope = scopes.getStore();
    if (scope === undefined || scope.isClosed) return send(input, init);
    const order = scope.nextOrder();
    const parsing = readCall(input, init);
    // Registered at once, because an agent may return while its call is pending.
    scope.hold(parsing.then(ignore, ignore));
    const call = await parsing;
    // Runs outside the scope, so that an outer capturing fetch does not record the call again.
    return scopes.run(undefined, () => record(scope, order, call, { send, input, init }));
  };
}

function ignore(): void {}

/** Arguments of a call of the recording fetch, and the fetch that sends it. */
interface Sending {
  readonly send: Fetch;
  readonly input: FetchInput;
  readonly init: FetchInit | undefined;
}

/**
 * Sends a request and records it if it belongs to the scope.
 *
 * @param order - Number of the request in its rollout, in start order.
 * @param call - Parsed request; null if it does not sample.
 */
async function record(scope: CaptureScope, order: number, call: SamplingCall | null, sending: Sending): Promise<Response> {
  const { send, input, init } = sending;
  const signal = joinedSignal(scope.signal, init?.signal ?? (input instanceof Request ? input.signal : undefined));
  if (call === null || !scope.accepts(call)) return send(input, { ...init, ...signal });
  const sent = { ...call, body: recordedBody(call, scope) };
  const answer = deferred<RecordedAnswer>();
  void scope.track(order, sent, answer.promise);
  try {
    const response = await send(...withBody(input, { ...init, ...signal }, JSON.stringify(sent.body)));
    return watchedResponse(response, sent, answer);
  } catch (error) {
    answer.reject(error);
    throw error;
  }
}

/** Returns the response for the agent, and settles `answer` with the answer in it. */
function watchedResponse(response: Response, call: SamplingCall, answer: ReturnType<typeof deferred<RecordedAnswer>>): Response {
  if (!response.ok) {
    // A failed attempt is not a turn; retrying is up to the client.
    answer.reject(new HttpError(`The service answered ${response.status}`, { status: response.status }));
    return response;
  }
  const { response: passedOn, answer: received } = watchResponse(response, call);
  answer.resolve(received);
  return passedOn;
}

/** Returns the option `signal` of a request that aborts with either of the signals; no option without signals. */
function joinedSignal(ofScope: AbortSignal | undefined, ofRequest: AbortSignal | null | undefined): { readonly signal?: AbortSignal } {
  if (ofScope === undefined) return ofRequest ? { signal: ofRequest } : {};
  return { signal: ofRequest ? AbortSignal.any([ofScope, ofRequest]) : ofScope };
}

/** Parses a request that samples; null for other requests. The request can still be sent afterwards. */
async function readCall(input: FetchInput, init: FetchInit | undefined): Promise<SamplingCall | null> {
  const isRequest = input instanceof Request;
  const url = isRequest ? input.url : String(input);
  const dialect = dialectOf(init?.method ?? (isRequest ? input.method : "GET"), url);
  if (dialect === undefined) return null;
  const text = await readText(init?.body ?? (isRequest ? input : null));
  return text === null ? null : readSamplingCall(dialect, url, text);
}

/** Returns the body of a request as text; null for no body, and for kinds of bodies that are not read. */
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
