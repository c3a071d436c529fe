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
import { readQuery, type ServiceRequest } from "../http/body.ts";
import { principalOf } from "../http/principal.ts";
import { answerDialect, type DialectContext } from "../dialects/handler.ts";
import { inputItemsOf, requireResponse, responsesDialect } from "../dialects/responses.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { CHAT_ROUTE, streamable } from "./chat.ts";
import type { StoredSessions } from "../sessions/sessions.ts";
import { pageBody, pageOfList } from "../store/paging.ts";
import { StoredResponses } from "../store/responses.ts";

const common = { tag: "Chat", isExtension: true, isForSessions: true } as const;

/** Creates `POST /v1/responses`, `GET` and `DELETE` of `/v1/responses/{response_id}`, and `GET` of its `input_items`. */
export function responsesRoutes(context: DialectContext, { store }: Pick<StoredSessions, "store">): Route[] {
  const stored = new StoredResponses(store);
  const dialect = responsesDialect(stored);
  const owner = (c: ServiceRequest): string => principalOf(c).owner;
  return [
    {
      ...CHAT_ROUTE,
      isExtension: true,
      path: "/v1/responses",
      id: "createResponse",
      summary: "Generate a response, in the format of the Responses API",
      description: "With `stream: true` the answer is a stream of server-sent events from `response.created` to `response.completed`.",
      body: responsesRequest,
      answer: streamable(responsesAnswer, "A response, or a stream of its events."),
      handle: (request) => answerDialect(context, dialect, request),
    },
    {
      ...common,
      method: "GET",
      path: "/v1/responses/{response_id}",
      id: "getResponse",
      access: ["sample", "read"],
      summary: "Get a stored response",
      answer: responsesAnswer,
      handle: async (c) => {
        const { response } = await requireResponse(stored, owner(c), pathParameter(c, "response_id"), "response_id");
        return new Response(response, { headers: { "content-type": "application/json" } });
      },
    },
    {
      ...common,
      method: "GET",
      path: "/v1/responses/{response_id}/input_items",
      id: "listInputItems",
      access: ["sample", "read"],
      summary: "List the items that the model read for a stored response",
      description: "The items of the responses that the request continued, and of the request.",
      query: responsesItemQuery,
      answer: responsesItemList,
      errors: [404],
      handle: async (c) => {
        const query = readQuery(c, responsesItemQuery);
        const items = await inputItemsOf(stored, owner(c), pathParameter(c, "response_id"));
        const { rows, hasMore } = pageOfList(query.order === "asc" ? items : items.toReversed(), query, "an item of this response");
        return c.json(pageBody(rows, hasMore) satisfies ResponsesItemList);
      },
    },
    {
      ...common,
      method: "DELETE",
      path: "/v1/responses/{response_id}",
      id: "deleteResponse",
      access: ["sample"],
      summary: "Delete a stored response",
      description: "Later responses that continue it keep its items, and can still be continued.",
      answer: deletedResponse,
      handle: async (c) => {
        const { id } = await requireResponse(stored, owner(c), pathParameter(c, "response_id"), "response_id");
        await stored.delete(owner(c), id);
        return Response.json({ id, object: "response", deleted: true } satisfies DeletedResponse);
      },
    },
  ];
}
