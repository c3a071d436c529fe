/**
 * The request handlers shared by the routes of all dialects: `answerDialect` for requests that sample, `answerRendered` for requests about
 * tokens.
 */
import { setMaxListeners } from "node:events";
import { EngineError } from "../../base/errors.ts";
import type { Charged } from "../quotas/quotas.ts";
import { retryHeaders } from "../http/errors.ts";
import { readBytes, type ServiceRequest } from "../http/body.ts";
import { callerOf } from "../http/caller.ts";
import { principalOf } from "../http/principal.ts";
import { requestIdOf } from "../http/request-id.ts";
import type { RequestScope } from "../observability/observer.ts";
import { sourceOf, type ChatAnswer, type ChatPipeline, type ChatCall, type RenderedCall } from "../chat/pipeline.ts";
import type { AnswerStream } from "../chat/answer/chunk-source.ts";
import { checkMediaType } from "../chat/request/request.ts";
import { shapedStream } from "./chunks.ts";
import type { Dialect, OpenRequest } from "./dialect.ts";
import type { OpenedChat, ChatReadOptions } from "../chat/request/opened-chat.ts";
import { newGroup } from "../../base/util/request-group.ts";
import type { TimeSlices } from "../../base/util/time-slices.ts";
import type { DialectName } from "../../dialects/index.ts";
import type { Opened, Translated, TranslationName } from "./translations.ts";
import type { Translator } from "./translator.ts";
import { first } from "../../base/util/values.ts";

/** Headers of an event stream. `x-accel-buffering` keeps nginx from collecting events before it sends them. */
const STREAM_HEADERS = { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no" };

/** Name of a dialect whose requests sample. Other translations, such as `tokenize`, only render a prompt. */
export type SampledName = DialectName & TranslationName;

/** A request of any dialect whose body was read. */
interface ReadRequest {
  /** Body of the request. */
  readonly bytes: Uint8Array;
  /** Options for reading the body. */
  readonly options: ChatReadOptions;
  /** Members that the pipeline calls of all chat completions of the request have in common. */
  readonly shared: Omit<ChatCall, "request" | "source">;
}

/** Dependencies of the routes of all dialects. */
export interface DialectContext {
  readonly pipeline: ChatPipeline;
  readonly translator: Translator;
  /** Time slices of the event loop that the second and later calls of a request enter: one request may have a thousand. */
  readonly slices: TimeSlices;
}

/** Returns a response with a JSON body: an object, or JSON as text or as a stream. */
function jsonResponse(body: unknown): Response {
  const isJson = typeof body === "string" || body instanceof ReadableStream;
  const json = isJson ? (body as string | ReadableStream<Uint8Array>) : JSON.stringify(body);
  return new Response(json, { headers: { "content-type": "application/json" } });
}

/** Returns the scope of a request's logs, metrics and traces. */
function scopeOf(c: ServiceRequest): RequestScope {
  const { incoming } = c.env;
  return { id: requestIdOf(incoming), entity: callerOf(c).entity, headers: incoming.headers };
}

/** Reads the body of a request. @throws BodyError `E_ARGUMENT` for another media type than JSON. */
async function readRequest(pipeline: ChatPipeline, scope: RequestScope, c: ServiceRequest): Promise<ReadRequest> {
  const { req } = c;
  const bytes = await readBytes(c);
  checkMediaType(req.header("content-type"));
  const principal = principalOf(c);
  return {
    bytes,
    options: await pipeline.readOptions(principal),
    shared: {
      group: newGroup(scope.entity),
      scope,
      requestId: req.header("x-request-id"),
      principal,
      charged: (c.get("charged") as Charged | undefined) ?? null,
      signal: req.raw.signal,
    },
  };
}

/** Marker of a whole answer, which the builder of the response has already taken. */
const PUSHED = { kind: "pushed" } as const;

/** Result of a call, once the call is finished or its stream has started. */
type StartedAnswer = Exclude<ChatAnswer, { kind: "whole" }> | typeof PUSHED;

/** Returns the first refusal among answers. */
function refusalIn(answers: readonly StartedAnswer[]): Extract<StartedAnswer, { kind: "refusal" }> | undefined {
  return answers.find((answer) => answer.kind === "refusal");
}

/**
 * Starts all completions of a request, and passes whole answers to the builder of the response. If one fails or is refused, the streams of
 * the others are cancelled.
 */
async function startAll(
  { calls, answer: builder }: OpenRequest,
  complete: (call: OpenedChat, index: number) => Promise<ChatAnswer>,
): Promise<readonly StartedAnswer[]> {
  const start = async (call: OpenedChat, index: number): Promise<StartedAnswer> => {
    const answer = await complete(call, index);
    if (answer.kind !== "whole") return answer;
    await builder.push(answer.answer, index);
    return PUSHED;
  };
  const settled = await Promise.allSettled(calls.map(start));
  const answers = settled.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const failure = settled.find((each) => each.status === "rejected");
  if (failure !== undefined || refusalIn(answers) !== undefined) {
    for (const answer of answers) if (answer.kind === "stream") await answer.stream.chunks().cancel();
  }
  if (failure !== undefined) throw failure.reason;
  return answers;
}

/** Returns the streams of answers, in the order of the calls; none for a request without streaming. */
function streamsOf(answers: readonly StartedAnswer[], { shaper }: OpenRequest): AnswerStream[] {
  const streams = answers.flatMap((answer) => (answer.kind === "stream" ? [answer.stream] : []));
  // The dialect of chat completions does not read `stream` itself, so that its answer decides.
  if (shaper === "chunks") return streams;
  const expected = shaper === null ? 0 : answers.length;
  if (streams.length === expected) return streams;
  throw new EngineError(`Expected ${expected} of ${answers.length} answers to be streams, got ${streams.length}`);
}

/** Returns the response to a refusal of the server to which the request was forwarded. */
function refusedResponse({ status, body, retryAfter }: Extract<StartedAnswer, { kind: "refusal" }>): Response {
  return Response.json(body, { status, headers: retryAfter === null ? {} : { "retry-after": retryAfter } });
}

/** Returns the response to a failure in the format of chat completions. */
function failedResponse(pipeline: ChatPipeline, error: unknown, scope: RequestScope): Response {
  const { status, body } = pipeline.explain(error, scope);
  const headers = status === 429 || status === 503 ? retryHeaders(error) : {};
  return Response.json(body, { status, headers });
}

/** Checks that a request of a caller could be admitted. @throws OverloadedError `E_OVERLOADED`, RateLimitError `E_RATE_LIMIT` */
function requireAdmission(pipeline: ChatPipeline, { principal, charged }: ReadRequest["shared"]): void {
  pipeline.requireRoom(principal);
  // A repeated turn of a session is answered from its record, even if its accounts are at their limits.
  if (principal.sessionKey !== null) return;
  for (const account of charged?.accounts ?? []) account.require(1);
}

/** Translates, parses and opens a request of a dialect. */
async function openDialect<N extends SampledName>(
  { pipeline, translator, slices }: DialectContext,
  dialect: Dialect<Opened<Translated<N>>, N>,
  { bytes, options, shared }: ReadRequest,
): Promise<OpenRequest> {
  const { principal, signal, group } = shared;
  const translated = await translator.open(dialect.name, bytes, options, signal);
  return dialect.open(translated, {
    owner: principal.owner,
    open: (body) => translator.openChat(body, options, signal),
    render: async (request) => {
      await slices.enter(group);
      return pipeline.render({ ...shared, request });
    },
  });
}

/** Answers a request of a dialect: translates it, runs its chat completions, and shapes their answer. */
export async function answerDialect<N extends SampledName>(
  context: DialectContext,
  dialect: Dialect<Opened<Translated<N>>, N>,
  c: ServiceRequest,
): Promise<Response> {
  const { pipeline, slices } = context;
  const scope = scopeOf(c);
  try {
    const read = await readRequest(pipeline, scope, c);
    const { bytes, shared } = read;
    const { signal } = shared;
    requireAdmission(pipeline, shared);
    // Computed before the request is opened, which may transfer the bytes to another thread.
    const source = sourceOf(dialect.name, bytes, c.req.header("x-stainless-retry-count"));
    const sourceOfCall = (index: number) => (index === 0 ? source : { ...source, digest: `${source.digest}:${index}` });
    const opened = await openDialect(context, dialect, read);
    // Each call adds listeners to the signal, and Node warns of more than ten.
    if (opened.calls.length > 1) setMaxListeners(0, signal);
    const answers = await startAll(opened, async (request, index) => {
      if (index > 0) await slices.enter(shared.group);
      return pipeline.complete({ ...shared, request, source: sourceOfCall(index) });
    });
    const refusal = refusalIn(answers);
    if (refusal !== undefined) return refusedResponse(refusal);
    const streams = streamsOf(answers, opened);
    // No streams: the builder has all answers.
    if (streams.length === 0) return jsonResponse(await opened.answer.end());
    return new Response(eventsOf(streams, opened, { pipeline, dialect, scope }), { headers: STREAM_HEADERS });
  } catch (error) {
    return failedResponse(pipeline, error, scope);
  }
}

/** Parts of a request that its event stream needs. */
interface EventContext {
  readonly pipeline: ChatPipeline;
  readonly dialect: Pick<Dialect<never>, "ping">;
  readonly scope: RequestScope;
}

/** Returns the server-sent events of the response. `streams` has at least one stream. */
function eventsOf(
  streams: readonly AnswerStream[],
  { shaper }: OpenRequest,
  { pipeline, dialect, scope }: EventContext,
): ReadableStream<Uint8Array> {
  // A request of the dialect of chat completions has one call, whose events are sent unchanged.
  if (shaper === "chunks" || shaper === null) return first(streams).events();
  const explain = (error: unknown) => pipeline.explain(error, scope).body;
  return shapedStream(
    streams.map((each) => each.chunks()),
    { shaper, ping: dialect.ping, explain },
  );
}

/** Kind of request that is rendered and not sampled. */
export interface RenderedRequest<N extends TranslationName> {
  /** Name of the translation. It has one call. */
  readonly name: N;
  /** Returns the response body. */
  readonly answer: (rendered: RenderedCall, translated: Opened<Translated<N>>) => unknown;
}

/** Answers a request about tokens, for which the prompt is rendered and encoded, and nothing is sampled. */
export async function answerRendered<N extends TranslationName>(
  { pipeline, translator }: DialectContext,
  { name, answer }: RenderedRequest<N>,
  c: ServiceRequest,
): Promise<Response> {
  const scope = scopeOf(c);
  try {
    const { bytes, options, shared } = await readRequest(pipeline, scope, c);
    const translated = await translator.open(name, bytes, options, shared.signal);
    const rendered = await pipeline.render({ ...shared, request: first(translated.calls) });
    return jsonResponse(answer(rendered, translated));
  } catch (error) {
    return failedResponse(pipeline, error, scope);
  }
}
