/** The request handler shared by the routes of all dialects. */
import { EngineError } from "../../errors.ts";
import type { ChatCompletion } from "../../schema/index.ts";
import { presentedKey } from "../auth.ts";
import { readBytes, type ServiceRequest } from "../body.ts";
import { sourceOf, type ChatAnswer, type ChatCall, type ChatPipeline, type DialectName, type RenderedCall } from "../chat/pipeline.ts";
import type { ChunkSource } from "../chat/answer/chunk-source.ts";
import { RETRY_AFTER_SECONDS } from "../chat/request/errors.ts";
import { checkMediaType } from "../chat/request/request.ts";
import type { RequestWork } from "../work/request-work.ts";
import { shapedStream } from "./chunks.ts";
import type { Dialect, DialectCall, Exchange } from "./dialect.ts";
import type { Translated, TranslationName } from "./translations.ts";

const STREAM_HEADERS = { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no" };

/** Name of a dialect that is translated to chat completions. */
export type SampledName = DialectName & TranslationName;

/** A request of any dialect. */
interface OpenCall {
  /** Body of the request. */
  readonly bytes: Uint8Array;
  readonly credential: string;
  /** Returns the call of a pipeline for one chat completion. `index` distinguishes the digests of several. @default 0 */
  readonly toCall: (call: DialectCall, index?: number) => ChatCall;
}

/** Dependencies of the routes of all dialects. */
export interface DialectContext {
  readonly pipeline: ChatPipeline;
  /** Threads for large bodies. */
  readonly work: RequestWork;
}

/** Returns a response with a JSON body. A body given as text is written without a stream. */
function jsonResponse(body: unknown, headers: Readonly<Record<string, string>>): Response {
  return new Response(JSON.stringify(body), { headers: { "content-type": "application/json", ...headers } });
}

/** Reads the body of a request. @throws BodyError `E_ARGUMENT` for another media type than JSON. */
async function openCall(dialect: DialectName, context: ServiceRequest): Promise<OpenCall> {
  const { req } = context;
  const bytes = await readBytes(context);
  checkMediaType(req.header("content-type"));
  const source = sourceOf(dialect, bytes, req.header("x-stainless-retry-count"));
  const credential = presentedKey(context.env.incoming.headers) ?? "";
  const rest = { contentType: "application/json", requestId: req.header("x-request-id"), credential, signal: req.raw.signal };
  const sourceAt = (index: number) => (index === 0 ? source : { ...source, digest: `${source.digest}:${index}` });
  return {
    bytes,
    credential,
    toCall: ({ body, prompt }, index = 0) => ({ ...rest, body, prompt, source: sourceAt(index) }),
  };
}

/** Answers that are not the error of another server. */
type Accepted = Exclude<ChatAnswer, { kind: "refusal" }>;

function refused(answers: readonly ChatAnswer[]): Extract<ChatAnswer, { kind: "refusal" }> | undefined {
  return answers.find((answer) => answer.kind === "refusal");
}

async function release(answers: readonly ChatAnswer[]): Promise<void> {
  for (const answer of answers) {
    if (answer.kind === "stream") await answer.stream.chunks().cancel();
    else if (answer.kind === "json" && typeof answer.body !== "string") await answer.body.cancel();
  }
}

/** Starts all completions of an exchange. If one is rejected, the others are cancelled. */
async function start(pipeline: ChatPipeline, { calls }: Exchange, { toCall }: OpenCall): Promise<readonly ChatAnswer[]> {
  const settled = await Promise.allSettled(calls.map((call, index) => pipeline.complete(toCall(call, index))));
  const answers = settled.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const failure = settled.find((each) => each.status === "rejected");
  if (failure !== undefined || refused(answers) !== undefined) await release(answers);
  if (failure !== undefined) throw failure.reason;
  return answers;
}

async function completionOf(answer: Accepted): Promise<ChatCompletion> {
  if (answer.kind === "stream") throw new EngineError("Expected the answer to a request without streaming not to be a stream");
  if (typeof answer.body === "string") return JSON.parse(answer.body) as ChatCompletion;
  return (await new Response(answer.body).json()) as ChatCompletion;
}

function chunksOf(answer: Accepted): ChunkSource {
  if (answer.kind === "stream") return answer.stream.chunks();
  throw new EngineError("Expected the answer to a request with streaming to be a stream");
}

/** Returns the response to a failure in the format of chat completions. */
export function failedResponse(pipeline: ChatPipeline, error: unknown, idHeader: Readonly<Record<string, string>>): Response {
  const { status, body } = pipeline.explain(error);
  const retry: Record<string, string> = status === 429 || status === 503 ? { "retry-after": String(RETRY_AFTER_SECONDS) } : {};
  return Response.json(body, { status, headers: { ...idHeader, ...retry } });
}

/** Answers a request of a dialect: translates it, runs its chat completions, and shapes their answer. */
export async function answerDialect<N extends SampledName>(
  { pipeline, work }: DialectContext,
  dialect: Dialect<Translated<N>, N>,
  context: ServiceRequest,
): Promise<Response> {
  const idHeader = pipeline.requestIdHeader(context.req.header("x-request-id"));
  try {
    const call = await openCall(dialect.name, context);
    // The pipeline takes ownership of a body, and the rendered call is sampled afterwards.
    const render = ({ body, prompt }: DialectCall) => pipeline.render(call.toCall({ body: body.slice(), prompt }));
    const translated = await work.translate(dialect.name, call.bytes, context.req.raw.signal);
    const exchange = await dialect.open(translated, { credential: call.credential, render });
    const answers = await start(pipeline, exchange, call);
    const refusal = refused(answers);
    if (refusal !== undefined) {
      const retry = refusal.retryAfter === null ? {} : { "retry-after": refusal.retryAfter };
      return Response.json(refusal.body, { status: refusal.status, headers: { ...idHeader, ...retry } });
    }
    const accepted = answers as readonly Accepted[];
    const { shaper } = exchange;
    if (shaper === null) {
      const completions = await Promise.all(accepted.map(completionOf));
      return jsonResponse(await exchange.answer(completions), idHeader);
    }
    const sources = accepted.map(chunksOf);
    const explain = (error: unknown) => pipeline.explain(error).body;
    const events = shapedStream(sources, { shaper, ping: dialect.ping, explain });
    return new Response(events, { headers: { ...STREAM_HEADERS, ...idHeader } });
  } catch (error) {
    return failedResponse(pipeline, error, idHeader);
  }
}

/** Request that is rendered and not sampled. */
export interface RenderedRequest<N extends TranslationName> {
  readonly name: N;
  /** Returns the response body. */
  readonly answer: (rendered: RenderedCall, translated: Translated<N>) => unknown;
}

/** Answers a request about tokens, for which the prompt is rendered and encoded, and nothing is sampled. */
export async function answerRendered<N extends TranslationName>(
  { pipeline, work }: DialectContext,
  { name, answer }: RenderedRequest<N>,
  context: ServiceRequest,
): Promise<Response> {
  const idHeader = pipeline.requestIdHeader(context.req.header("x-request-id"));
  try {
    const { bytes, toCall } = await openCall("tokenize", context);
    const translated = await work.translate(name, bytes, context.req.raw.signal);
    const rendered = await pipeline.render(toCall(translated.calls[0]!));
    return jsonResponse(answer(rendered, translated), idHeader);
  } catch (error) {
    return failedResponse(pipeline, error, idHeader);
  }
}
