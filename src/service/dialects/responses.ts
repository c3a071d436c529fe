/** The Responses dialect (`POST /v1/responses`). */
import { randomHex } from "../../base/util/random-hex.ts";
import { conversationOf, type ResponseLookup } from "../../dialects/index.ts";
import { NoSpaceError, NotFoundError } from "../../base/errors.ts";
import type { ResponsesAnswer, ResponsesItem } from "../../base/schema/index.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import type { StoredResponses } from "../store/responses.ts";
import { singleAnswer, type Dialect } from "./dialect.ts";
import { responsesCall, type Opened, type TranslatedResponse } from "./translations.ts";
import { inputItem, parseItemId, toResponse } from "../../dialects/responses/answer.ts";
import { ResponseEvents } from "../../dialects/responses/events.ts";

/** Returns a stored response. @throws NotFoundError `E_NOT_FOUND`, param `param`, if the owner has none with this id. */
export async function requireResponse(stored: StoredResponses, owner: string, id: string, param: string) {
  const row = await stored.find(owner, id);
  if (row !== undefined) return row;
  throw new NotFoundError(`There is no stored response '${id}': it was not stored, or it has been deleted`, { param });
}

/** Returns access to the stored responses of an owner. */
function lookupIn(stored: StoredResponses, owner: string): ResponseLookup {
  return {
    async response(id) {
      const { previous_id: previousId, input, response } = await requireResponse(stored, owner, id, "previous_response_id");
      return { previousId, input: JSON.parse(input) as ResponsesItem[], output: (JSON.parse(response) as ResponsesAnswer).output };
    },
    async item(id) {
      const reference = parseItemId(id);
      const row = reference === null ? undefined : await stored.find(owner, reference.responseId);
      const output = row === undefined ? [] : (JSON.parse(row.response) as ResponsesAnswer).output;
      const item = reference === null ? undefined : output[reference.index];
      if (item === undefined) throw new NotFoundError(`There is no item '${id}' in a stored response`, { param: "input" });
      return item;
    },
  };
}

/** Returns the items that the model read for a stored response, in the order of the conversation. @throws NotFoundError `E_NOT_FOUND` */
export async function inputItemsOf(stored: StoredResponses, owner: string, id: string) {
  const row = await requireResponse(stored, owner, id, "response_id");
  const request = { input: JSON.parse(row.input) as ResponsesItem[], previous_response_id: row.previous_id };
  const { items } = await conversationOf(request, lookupIn(stored, owner));
  // Ids are the cursors of the list. If a client has sent an id twice, the second item gets another one from `inputItem`.
  const seenIds = new Set<string | null | undefined>();
  return items.map((item, index) => {
    const { id: itemId, ...withoutId } = item;
    const isRepeated = seenIds.has(itemId);
    seenIds.add(itemId);
    return inputItem(row, isRepeated ? withoutId : item, index);
  });
}

/** Throws the error of a response that could not be stored; on a full disk, an error that names the remedies. */
function throwStorageError(error: unknown): never {
  if (!isNoSpace(error)) throw error;
  throw new NoSpaceError(
    "The service's disk is full: the response was sampled and cannot be stored. Send the request with `store: false`, or make room on the file system of the data directory",
    { cause: error },
  );
}

/** Creates the dialect of OpenAI's Responses API, which keeps responses in `stored`. */
export function responsesDialect(stored: StoredResponses): Dialect<Opened<TranslatedResponse>, "responses"> {
  return {
    name: "responses",
    async open(translated, { owner, open }) {
      const { request } = translated;
      let { input: inputJson, calls } = translated;
      if (inputJson === null) {
        // The request refers to stored responses, which only this thread can read.
        const conversation = await conversationOf(request, lookupIn(stored, owner));
        inputJson = JSON.stringify(conversation.input);
        calls = [await open(responsesCall(request, conversation.items))];
      }
      const head = { id: `resp_${randomHex(32)}`, request };
      const row = { id: head.id, owner, previous_id: request.previous_response_id ?? null, input: inputJson };
      /** Stores the response, given as JSON, unless the request opts out. */
      const save = async (response: string): Promise<void> => {
        if (request.store !== false) await stored.save({ ...row, response }).catch(throwStorageError);
      };
      return {
        calls,
        answer: singleAnswer(async (completion) => {
          const json = JSON.stringify(toResponse(head, completion));
          await save(json);
          return json;
        }),
        shaper: request.stream === true ? new ResponseEvents(head, (response) => save(JSON.stringify(response))) : null,
      };
    },
  };
}
