/** The route `POST /v1/chat/completions`. */
import { chatCompletion } from "../../schema/index.ts";
import { presentedKey } from "../auth.ts";
import { readBytes, type ServiceRequest } from "../body.ts";
import { RETRY_AFTER_SECONDS } from "../chat/request/errors.ts";
import { wireRequest } from "../chat/request/fields.ts";
import { sourceOf, type ChatPipeline } from "../chat/pipeline.ts";
import { route, type Route, type RouteSpec } from "../openapi/route.ts";

const JSON_HEADERS = { "content-type": "application/json" };
const STREAM_HEADERS = { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no" };

async function handle(chat: ChatPipeline, context: ServiceRequest): Promise<Response> {
  const { req } = context;
  const requestId = req.header("x-request-id");
  const idHeader = chat.requestIdHeader(requestId);
  try {
    const body = await readBytes(context);
    const source = sourceOf("chat", body, req.header("x-stainless-retry-count"));
    const credential = presentedKey(context.env.incoming.headers) ?? "";
    const answer = await chat.complete({
      body,
      contentType: req.header("content-type"),
      requestId,
      credential,
      signal: req.raw.signal,
      source,
    });
    switch (answer.kind) {
      case "json":
        return new Response(answer.body, { headers: { ...JSON_HEADERS, ...idHeader } });
      case "stream":
        return new Response(answer.stream.events(), { headers: { ...STREAM_HEADERS, ...idHeader } });
      case "refusal": {
        const retry = answer.retryAfter === null ? {} : { "retry-after": answer.retryAfter };
        return Response.json(answer.body, { status: answer.status, headers: { ...idHeader, ...retry } });
      }
    }
  } catch (error) {
    const { status, body } = chat.explain(error);
    const retry: Record<string, string> = status === 429 || status === 503 ? { "retry-after": String(RETRY_AFTER_SECONDS) } : {};
    return new Response(JSON.stringify(body), { status, headers: { ...JSON_HEADERS, ...idHeader, ...retry } });
  }
}

/** Creates the chat completion route, with and without a trailing slash. The surrounding app handles authentication and body limits. */
export function chatRoutes(chat: ChatPipeline): Route[] {
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
    errors: [403, 404, 409, 429],
    validationStatus: 400,
    isForSessions: true,
  };
  const answerTo = (context: ServiceRequest) => handle(chat, context);
  const withSlash = { ...spec, path: `${spec.path}/`, id: "createChatCompletionWithSlash", summary: "The same with a slash at the end" };
  return [route(spec, answerTo), route(withSlash, answerTo)];
}
