/** The routes of the Messages API. */
import { messagesAnswer, messagesError, messagesRequest, messagesTokenCount } from "../../base/schema/index.ts";
import { messagesDialect } from "../dialects/messages.ts";
import { answerDialect, answerRendered, type DialectContext } from "../dialects/handler.ts";
import { route, type Route } from "../openapi/route.ts";

/** Creates `POST /v1/messages` and `POST /v1/messages/count_tokens`. */
export function messagesRoutes(context: DialectContext): Route[] {
  return [
    route(
      {
        method: "POST",
        path: "/v1/messages",
        id: "createMessage",
        tag: "Chat",
        summary: "Generate the next message of a conversation, in the format of the Messages API",
        description: "With `stream: true` the answer is a stream of server-sent events from `message_start` to `message_stop`.",
        isExtension: true,
        body: messagesRequest,
        answer: {
          description: "A message, or a stream of its events.",
          content: { "application/json": messagesAnswer, "text/event-stream": "text" },
        },
        isForSessions: true,
        errors: [403, 404, 409, 429],
        validationStatus: 400,
        errorBody: messagesError,
      },
      (request) => answerDialect(context, messagesDialect, request),
    ),
    route(
      {
        method: "POST",
        path: "/v1/messages/count_tokens",
        id: "countMessageTokens",
        tag: "Chat",
        summary: "Count the tokens of the prompt of a message",
        isExtension: true,
        body: messagesRequest,
        answer: messagesTokenCount,
        isForSessions: true,
        errors: [403, 404, 409, 429],
        validationStatus: 400,
        errorBody: messagesError,
      },
      (request) => answerRendered(context, { name: "count", answer: ({ ids }) => ({ input_tokens: ids.length }) }, request),
    ),
  ];
}
