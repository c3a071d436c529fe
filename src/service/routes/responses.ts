/** The routes of the Responses API. */
import {
  deletedResponse,
  responsesAnswer,
  responsesItemList,
  responsesItemQuery,
  responsesRequest,
  type DeletedResponse,
  type ResponsesItemList,
} from "../../base/schema/index.ts";
import { presentedKey } from "../http/auth.ts";
import { readQuery, type ServiceRequest } from "../http/body.ts";
import { answerDialect, type DialectContext } from "../dialects/handler.ts";
import { inputItemsOf, requireResponse, responsesDialect } from "../dialects/responses.ts";
import { pathParameter, route, type Route } from "../openapi/route.ts";
import type { StoredSessions } from "../sessions/sessions.ts";
import { pageBody, pageOfList } from "../store/paging.ts";
import { StoredResponses } from "../store/responses.ts";

/** Creates `POST /v1/responses`, `GET` and `DELETE` of `/v1/responses/{response_id}`, and `GET` of its `input_items`. */
export function responsesRoutes(context: DialectContext, sessions: StoredSessions): Route[] {
  const stored = new StoredResponses(sessions.store);
  const dialect = responsesDialect(stored, (credential) => sessions.ownerOf(credential));
  const caller = (c: ServiceRequest): Promise<string> => sessions.ownerOf(presentedKey(c.env.incoming.headers) ?? "");
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
        isForSessions: true,
        answer: responsesAnswer,
      },
      async (c) => {
        const { response } = await requireResponse(stored, await caller(c), pathParameter(c, "response_id"), "response_id");
        return new Response(response, { headers: { "content-type": "application/json" } });
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/responses/{response_id}/input_items",
        id: "listInputItems",
        tag: "Chat",
        summary: "List the items that the model read for a stored response",
        description: "The items of the responses that the request continued, and of the request.",
        isExtension: true,
        isForSessions: true,
        query: responsesItemQuery,
        answer: responsesItemList,
        errors: [404],
      },
      async (c) => {
        const query = readQuery(c, responsesItemQuery);
        const items = await inputItemsOf(stored, await caller(c), pathParameter(c, "response_id"));
        const { rows, hasMore } = pageOfList(query.order === "asc" ? items : items.toReversed(), query, "an item of this response");
        return c.json(pageBody(rows, hasMore) satisfies ResponsesItemList);
      },
    ),
    route(
      {
        method: "DELETE",
        path: "/v1/responses/{response_id}",
        id: "deleteResponse",
        tag: "Chat",
        summary: "Delete a stored response",
        description: "Later responses that continue it keep its items, and can still be continued.",
        isExtension: true,
        isForSessions: true,
        answer: deletedResponse,
      },
      async (c) => {
        const { id } = await requireResponse(stored, await caller(c), pathParameter(c, "response_id"), "response_id");
        await stored.delete(await caller(c), id);
        return Response.json({ id, object: "response", deleted: true } satisfies DeletedResponse);
      },
    ),
  ];
}
