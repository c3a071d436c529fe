/** The routes of the Responses API. */
import { deletedResponse, responsesAnswer, responsesRequest, type DeletedResponse } from "../../schema/index.ts";
import { presentedKey } from "../auth.ts";
import type { ServiceRequest } from "../body.ts";
import { answerDialect, type DialectContext } from "../dialects/handler.ts";
import { ownerOf, requireResponse, responsesDialect } from "../dialects/responses/dialect.ts";
import { pathParameter, route, type Route } from "../openapi/route.ts";
import { StoredResponses } from "../store/responses.ts";
import type { Store } from "../store/tables.ts";

/** Returns the owner of the responses that a request may address. */
function caller(c: ServiceRequest): string {
  return ownerOf(presentedKey(c.env.incoming.headers) ?? "");
}

/** Creates `POST /v1/responses`, and `GET` and `DELETE` of `/v1/responses/{response_id}`. */
export function responsesRoutes(context: DialectContext, store: Store): Route[] {
  const stored = new StoredResponses(store);
  const dialect = responsesDialect(stored);
  return [
    route(
      {
        method: "POST",
        path: "/v1/responses",
        id: "createResponse",
        tag: "Chat",
        summary: "Generate a response, in the format of the Responses API",
        description: "With `stream: true` the answer is a stream of server-sent events from `response.created` to `response.completed`.",
        isExtension: true,
        body: responsesRequest,
        answer: {
          description: "A response, or a stream of its events.",
          content: { "application/json": responsesAnswer, "text/event-stream": "text" },
        },
        isForSessions: true,
        errors: [403, 404, 409, 429],
        validationStatus: 400,
      },
      (request) => answerDialect(context, dialect, request),
    ),
    route(
      {
        method: "GET",
        path: "/v1/responses/{response_id}",
        id: "getResponse",
        tag: "Chat",
        summary: "Get a stored response",
        isExtension: true,
        answer: responsesAnswer,
      },
      async (c) => {
        const { response } = await requireResponse(stored, caller(c), pathParameter(c, "response_id"), "response_id");
        return new Response(response, { headers: { "content-type": "application/json" } });
      },
    ),
    route(
      {
        method: "DELETE",
        path: "/v1/responses/{response_id}",
        id: "deleteResponse",
        tag: "Chat",
        summary: "Delete a stored response",
        description: "A later response that continues it cannot be continued any more.",
        isExtension: true,
        answer: deletedResponse,
      },
      async (c) => {
        const { id } = await requireResponse(stored, caller(c), pathParameter(c, "response_id"), "response_id");
        await stored.delete(caller(c), id);
        return Response.json({ id, object: "response", deleted: true } satisfies DeletedResponse);
      },
    ),
  ];
}
