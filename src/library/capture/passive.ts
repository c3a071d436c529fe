/** Recording of clients that accept no custom fetch, through the diagnostics channels of undici. */
import { channel, type ChannelListener } from "node:diagnostics_channel";
import { promisify } from "node:util";
import { brotliDecompress, gunzip, inflate } from "node:zlib";
import { ConnectionError, HttpError } from "../client/index.ts";
import { UnsupportedError } from "../../base/errors.ts";
import type { DialectName, RecordedAnswer } from "../../dialects/index.ts";
import { dialectOf, missingKwargs, readSamplingCall, type SamplingCall } from "./request.ts";
import { isEventStream, readAnswer } from "./response.ts";
import { scopes, type CaptureScope } from "./scope.ts";
import { watchHandler } from "./undici-handler.ts";

/**
 * Handle of a recording.
 *
 * @example
 * ```ts
 * import { captureAll } from "whetstone/capture";
 *
 * const recording = captureAll();
 * try {
 *   await fetch("https://example.com/v1/chat/completions");
 * } finally {
 *   recording.stop();
 * }
 * ```
 */
export interface PassiveCapture {
  /** Stops recording; pending requests are still recorded. Safe to call twice. */
  stop(): void;
  /**
   * Stops recording at the end of a `using` block.
   *
   * @example
   * ```ts
   * import { captureAll } from "whetstone/capture";
   *
   * using recording = captureAll();
   * ```
   */
  [Symbol.dispose](): void;
}

/** Request in undici's diagnostics messages, with the fields used here. */
interface UndiciRequest {
  readonly origin: unknown;
  readonly path: string;
  readonly method: string;
}

/** Message of one of undici's `undici:request:*` channels; each channel sets some of the fields. */
interface Message {
  readonly request: UndiciRequest;
  readonly chunk?: Uint8Array | string;
  readonly response?: { readonly statusCode: number; readonly headers: readonly (Uint8Array | string)[] };
  readonly error?: unknown;
}

/**
 * State of an observed request. Both sources of its bodies are kept: undici's channels, and the request's handler for versions without such
 * channels. A version with channels reports every chunk twice; the channels then count.
 */
interface ObservedRequest {
  readonly scope: CaptureScope;
  /** Number of the request in its rollout, in start order. */
  readonly order: number;
  readonly dialect: DialectName;
  readonly url: string;
  /** Chunks of the request's body. */
  readonly sent: { readonly channel: Buffer[]; readonly handler: Buffer[] };
  /** Chunks of the response's body. */
  readonly received: { readonly channel: Buffer[]; readonly handler: Buffer[] };
  /** Status and headers; null until they arrive. */
  response: NonNullable<Message["response"]> | null;
  /** Called when the request has ended: with its error, or null after a complete response. */
  end(error: unknown): void;
}

/** Decoders by content encoding. */
const decoders: Readonly<Record<string, (bytes: Buffer) => Promise<Buffer>>> = {
  gzip: promisify<Buffer, Buffer>(gunzip),
  "x-gzip": promisify<Buffer, Buffer>(gunzip),
  deflate: promisify<Buffer, Buffer>(inflate),
  br: promisify<Buffer, Buffer>(brotliDecompress),
  identity: (bytes) => Promise.resolve(bytes),
};

/** Observed requests that have not ended. */
const observedRequests = new WeakMap<UndiciRequest, ObservedRequest>();
/** Recordings that have not been stopped. */
const recordings = new Set<PassiveCapture>();

/**
 * Records the calls of clients that accept no custom fetch but use Node's own fetch or undici. Scopes are set by `capture.trajectory`;
 * outside a scope nothing is recorded.
 *
 * Requests are only observed: `logprobs` and `return_token_ids` cannot be added. Unless the client requests both itself, the choices have
 * neither, turns are matched by their messages, and preflight rejects them. Requests of `node:http` are not recorded.
 *
 * @returns Handle that stops the recording.
 * @example
 * ```ts
 * import { capture } from "whetstone/capture";
 *
 * using recording = captureAll();
 * const recorded = await capture.trajectory(
 *   async () => {
 *     const body = { model: policy.id, messages: [{ role: "user", content: "Hello" }], logprobs: true, return_token_ids: true };
 *     const headers = { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" };
 *     const response = await fetch(`${service.inferenceUrl}/chat/completions`, { method: "POST", headers, body: JSON.stringify(body) });
 *     return { reward: response.ok ? 1 : 0 };
 *   },
 *   { policy },
 * );
 * ```
 */
export function captureAll(): PassiveCapture {
  const recording: PassiveCapture = {
    stop() {
      if (recordings.delete(recording) && recordings.size === 0) listen("unsubscribe");
    },
    [Symbol.dispose]() {
      recording.stop();
    },
  };
  // All recordings share one subscription, so that a request is recorded once.
  if (recordings.size === 0) listen("subscribe");
  recordings.add(recording);
  return recording;
}

/** Listeners by the name of their channel, `undici:request:<name>`. A request causes `create`, then its chunks, then `trailers` or `error`. */
const listeners: Readonly<Record<string, (message: Message) => void>> = {
  create: onCreate,
  bodyChunkSent: ({ request, chunk }) => append(observedRequests.get(request)?.sent.channel, chunk),
  bodyChunkReceived: ({ request, chunk }) => append(observedRequests.get(request)?.received.channel, chunk),
  headers: ({ request, response }) => {
    const state = observedRequests.get(request);
    if (state !== undefined) state.response = response ?? null;
  },
  trailers: ({ request }) => observedRequests.get(request)?.end(null),
  error: ({ request, error }) => observedRequests.get(request)?.end(error ?? new ConnectionError("The request failed")),
};
const channels = Object.entries(listeners).map(([name, listener]) => ({
  source: channel(`undici:request:${name}`),
  listener: listener as ChannelListener,
}));

/** Subscribes to all channels, or unsubscribes from them. */
function listen(verb: "subscribe" | "unsubscribe"): void {
  for (const { source, listener } of channels) source[verb](listener);
}

/** Adds a chunk to a list; does nothing for a request that is not observed. */
function append(chunks: Buffer[] | undefined, chunk: Uint8Array | string | undefined): void {
  // Copied because the owner of the buffer may transfer or reuse it.
  if (chunk !== undefined) chunks?.push(Buffer.from(chunk as Uint8Array));
}

/** Starts observing a request. Runs in the async context that makes the request, so the caller's scope is available. */
function onCreate({ request }: Message): void {
  const scope = scopes.getStore();
  if (scope === undefined || scope.isClosed) return;
  const url = String(request.origin) + request.path;
  const dialect = dialectOf(request.method, url);
  if (dialect === undefined) return;
  const order = scope.nextOrder();
  const end = new Promise<unknown>((resolve) => {
    const state: ObservedRequest = {
      scope,
      order,
      dialect,
      url,
      sent: { channel: [], handler: [] },
      received: { channel: [], handler: [] },
      response: null,
      end: resolve,
    };
    observedRequests.set(request, state);
    watchHandler(request, {
      onSent: (chunk) => append(state.sent.handler, chunk),
      onReceived: (chunk) => append(state.received.handler, chunk),
    });
  });
  scope.hold(end.then((error) => recordEnded(request, error)));
}

/** Records an ended request if it was a call to the policy. Only the complete sent body names the model. */
async function recordEnded(request: UndiciRequest, error: unknown): Promise<void> {
  const state = observedRequests.get(request);
  if (state === undefined) return;
  observedRequests.delete(request);
  const { scope, order, dialect, url } = state;
  const call = readSamplingCall(dialect, url, bodyOf(state.sent).toString("utf8"));
  if (call === null || !scope.accepts(call)) return;
  const [missingName] = missingKwargs(call, scope.chatTemplateKwargs);
  if (missingName === undefined) return scope.track(order, call, receivedAnswer(state, error, call));
  scope.drop(
    call.model,
    `\`chatTemplateKwargs\` sets \`${missingName}\`, which cannot be added to a call that is only observed; use \`capture.fetch\`, or let the client set it`,
  );
}

/** Parses the answer of an ended request. @param error - Error of the request; null after a complete response. */
async function receivedAnswer({ response, received }: ObservedRequest, error: unknown, call: SamplingCall): Promise<RecordedAnswer> {
  if (response !== null && (response.statusCode < 200 || response.statusCode > 299)) {
    throw new HttpError(`The service answered ${response.statusCode}`, { status: response.statusCode });
  }
  const type = headerOf(response, "content-type");
  // A stream abandoned after its choices have ended is complete; any other truncated response is not.
  if (response === null || (error !== null && !isEventStream(type))) throw error ?? new ConnectionError("There was no answer");
  const bytes = await decode(bodyOf(received), headerOf(response, "content-encoding"));
  return readAnswer(isEventStream(type), onceIterable(bytes), call);
}

/** Decodes a body. @param encodings - Value of `content-encoding`; null for none. */
async function decode(bytes: Buffer, encodings: string | null): Promise<Buffer> {
  // Encodings are listed in order of application and decoded in reverse.
  const names = (encodings ?? "")
    .split(",")
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== "");
  let plain = bytes;
  for (const name of names.toReversed()) {
    const decoder = decoders[name];
    if (decoder === undefined)
      throw new UnsupportedError(`Expected a content encoding of ${Object.keys(decoders).join(", ")}, got \`${name}\``);
    plain = await decoder(plain);
  }
  return plain;
}

/** Returns an iterable of one chunk, the form that `readAnswer` expects. */
async function* onceIterable(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield await Promise.resolve(bytes);
}

/** Returns a body: the chunks of the channel, or without any the chunks of the handler. */
function bodyOf({ channel: chunks, handler }: ObservedRequest["sent"]): Buffer {
  return Buffer.concat(chunks.length > 0 ? chunks : handler);
}

/** Returns a header of undici's list, in which names and values alternate; null if it is absent. */
function headerOf(response: ObservedRequest["response"], name: string): string | null {
  const fields = (response?.headers ?? []).map((part) => Buffer.from(part as Uint8Array).toString("latin1"));
  for (let index = 0; index + 1 < fields.length; index += 2) if (fields[index]?.toLowerCase() === name) return fields[index + 1] ?? null;
  return null;
}
