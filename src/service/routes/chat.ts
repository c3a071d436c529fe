/** The route `POST /v1/chat/completions`. */
import { chatCompletion } from "../../schema/index.ts";
import { readBytes, type ServiceRequest } from "../body.ts";
import { RETRY_AFTER_SECONDS } from "../chat/request/errors.ts";
import { wireRequest } from "../chat/request/fields.ts";
import { route, type Route, type RouteSpec } from "../openapi/route.ts";
import type { ChatForwarder } from "../chat/forward/forward.ts";
import { ChatService, type ChatDependencies } from "../chat/service.ts";
import { bodyText } from "../requests.ts";

export type { ChatLimits } from "../chat/generate/admit.ts";
export type { ChatDependencies } from "../chat/service.ts";

const JSON_HEADERS = { "content-type": "application/json" };
const STREAM_HEADERS = { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no" };

/** Returns the API key of an `Authorization` header, so that spellings of the header with the same key count as one credential. */
function credentialOf(authorization: string | undefined): string {
  return authorization === undefined ? "" : (/^bearer +(\S+) *$/i.exec(authorization)?.[1] ?? authorization);
}

/** Handlers of chat completions: the service itself, and the forwarder to another server. */
interface Places {
  readonly chat: ChatService;
  readonly forwarder: ChatForwarder | null;
}

async function handle({ chat, forwarder }: Places, context: ServiceRequest): Promise<Response> {
  const { req } = context;
  const idHeader = chat.requestIdHeader(req.header("x-request-id"));
  const [contentType, requestId, { signal }] = [req.header("content-type"), req.header("x-request-id"), req.raw];
  try {
    const body = await readBytes(context);
    const isJson = /^\s*application\/json\b/i.test(contentType ?? "");
    const forwarded = forwarder !== null && isJson ? await forwarder.forward({ body: bodyText("chat", body), requestId, signal }) : null;
    if (forwarded) {
      for (const [name, value] of Object.entries(idHeader)) forwarded.headers.set(name, value);
      return forwarded;
    }
    const credential = credentialOf(req.header("authorization"));
    const answer = await chat.complete({ body, contentType, requestId, credential, signal });
    return answer.kind === "json"
      ? new Response(answer.body, { headers: { ...JSON_HEADERS, ...idHeader } })
      : new Response(answer.events, { headers: { ...STREAM_HEADERS, ...idHeader } });
  } catch (error) {
    const { status, body } = chat.explain(error);
    const retry: Record<string, string> = status === 429 || status === 503 ? { "retry-after": String(RETRY_AFTER_SECONDS) } : {};
    return new Response(JSON.stringify(body), { status, headers: { ...JSON_HEADERS, ...idHeader, ...retry } });
  }
}

/**
 * Creates the chat completion route, with and without a trailing slash. The surrounding app handles authentication and body limits.
 *
 * @param forwarder - Forwarder of requests for models that another server samples. @default the service answers all requests
 */
export function chatRoutes(dependencies: ChatDependencies, forwarder: ChatForwarder | null = null): Route[] {
  const places: Places = { chat: new ChatService(dependencies), forwarder };
  const spec: RouteSpec = {
    method: "POST",
    path: "/v1/chat/completions",
    id: "createChatCompletion",
    tag: "Chat",
    summary: "Generate the next message of a conversation",
    description:
      "With `stream: true` the answer is a stream of server-sent events: each has a chunk of the completion as its data, or an error body, and the last one `[DONE]`.",
    body: wireRequest,
    answer: {
      description: "A completion, or a stream of its chunks.",
      content: { "application/json": chatCompletion, "text/event-stream": "text" },
    },
    errors: [404, 409, 429],
    validationStatus: 400,
  };
  const answerTo = (context: ServiceRequest) => handle(places, context);
  const withSlash = { ...spec, path: `${spec.path}/`, id: "createChatCompletionWithSlash", summary: "The same with a slash at the end" };
  return [route(spec, answerTo), route(withSlash, answerTo)];
}
