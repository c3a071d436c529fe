/** The route `POST /v1/chat/completions`. */
import { chatCompletion } from "../../base/schema/index.ts";
import { wireRequest } from "../chat/request/fields.ts";
import { chatDialect } from "../dialects/chat.ts";
import { answerDialect, type DialectContext } from "../dialects/handler.ts";
import type { ServiceRequest } from "../http/body.ts";
import { route, type Route, type RouteSpec } from "../openapi/route.ts";

/** Creates the chat completion route, with and without a trailing slash. The surrounding app handles authentication and body limits. */
export function chatRoutes(context: DialectContext): Route[] {
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
  const answerTo = (request: ServiceRequest) => answerDialect(context, chatDialect, request);
  const withSlash = { ...spec, path: `${spec.path}/`, id: "createChatCompletionWithSlash", summary: "The same with a slash at the end" };
  return [route(spec, answerTo), route(withSlash, answerTo)];
}
