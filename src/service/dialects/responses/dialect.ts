/** The Responses dialect (`POST /v1/responses`). */
import { createHash, randomBytes } from "node:crypto";
import { NoSpaceError, NotFoundError } from "../../../errors.ts";
import type { ResponsesAnswer, ResponsesItem } from "../../../schema/index.ts";
import { isNoSpace } from "../../../util/no-space.ts";
import type { StoredResponses } from "../../store/responses.ts";
import type { Dialect } from "../dialect.ts";
import { parseItemId, toResponse } from "./answer.ts";
import { ResponseEvents } from "./events.ts";
import { callOf, type TranslatedResponse } from "./request.ts";

/** Max length of a chain of previous responses. */
const MAX_CHAIN = 4096;

/** Returns the owner of a credential's stored responses. No other credential can read them. */
export function ownerOf(credential: string): string {
  return createHash("sha256").update(credential).digest("hex");
}

/** Returns a stored response. @throws NotFoundError `E_NOT_FOUND`, param `param`, if the owner has none with this identifier. */
export async function requireResponse(stored: StoredResponses, owner: string, id: string, param: string) {
  const row = await stored.find(owner, id);
  if (row !== undefined) return row;
  throw new NotFoundError(`There is no stored response '${id}': it was not stored, or it has been deleted`, { param });
}

/** Returns the items of a response and of all responses before it, oldest first. */
async function chainItems(stored: StoredResponses, owner: string, lastId: string | null): Promise<ResponsesItem[]> {
  const parts: ResponsesItem[][] = [];
  for (let id = lastId; id !== null && parts.length < MAX_CHAIN;) {
    const row = await requireResponse(stored, owner, id, "previous_response_id");
    const { output } = JSON.parse(row.response) as ResponsesAnswer;
    parts.push([...(JSON.parse(row.input) as ResponsesItem[]), ...output]);
    id = row.previous_id;
  }
  return parts.toReversed().flat();
}

/** Replaces references by the items of stored responses. */
async function resolved(stored: StoredResponses, owner: string, items: readonly ResponsesItem[]): Promise<ResponsesItem[]> {
  const found: ResponsesItem[] = [];
  for (const item of items) {
    if (item.type !== "item_reference") {
      found.push(item);
      continue;
    }
    const place = parseItemId(item.id ?? "");
    const row = place === null ? undefined : await stored.find(owner, place.responseId);
    const target = row === undefined ? undefined : (JSON.parse(row.response) as ResponsesAnswer).output[place!.index];
    if (target === undefined) throw new NotFoundError(`There is no item '${String(item.id)}' in a stored response`, { param: "input" });
    found.push(target);
  }
  return found;
}

/** Throws the error of a response that could not be stored. */
function explainFullDisk(error: unknown): never {
  if (!isNoSpace(error)) throw error;
  throw new NoSpaceError(
    "The service's disk is full: the response was sampled and cannot be stored. Send the request with `store: false`, or make room on the file system of the data directory",
    { cause: error },
  );
}

/** Creates the dialect of OpenAI's Responses API, which keeps responses in `stored`. */
export function responsesDialect(stored: StoredResponses): Dialect<TranslatedResponse, "responses"> {
  return {
    name: "responses",
    async open(translated, { credential }) {
      const { request } = translated;
      const owner = ownerOf(credential);
      const previousId = request.previous_response_id ?? null;
      let { calls, input } = translated;
      if (calls.length === 0) {
        const items = await resolved(stored, owner, JSON.parse(input) as ResponsesItem[]);
        if (translated.hasReferences) input = JSON.stringify(items);
        calls = [callOf(request, [...(await chainItems(stored, owner, previousId)), ...items])];
      }
      const head = { id: `resp_${randomBytes(16).toString("hex")}`, request };
      const keep = async (response: ResponsesAnswer): Promise<void> => {
        if (request.store === false) return;
        const row = { id: response.id, owner, previous_id: previousId, input, response: JSON.stringify(response) };
        await stored.save(row).catch(explainFullDisk);
      };
      return {
        calls,
        async answer([completion]) {
          const response = toResponse(head, completion!);
          await keep(response);
          return response;
        },
        shaper: request.stream === true ? new ResponseEvents(head, keep) : null,
      };
    },
  };
}
