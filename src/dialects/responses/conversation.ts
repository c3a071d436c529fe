/**
 * Conversation of a request of the Responses API. A request can continue a response (`previous_response_id`) and refer to single items
 * (`item_reference`); both are replaced by the items themselves.
 */
import { ArgumentError } from "../../base/errors.ts";
import type { ResponsesItem, ResponsesRequest } from "../../base/schema/index.ts";

/** Max length of a chain of previous responses. */
const MAX_CHAIN = 4096;

type MaybePromise<T> = T | Promise<T>;

/** Response that a later request can continue. */
export interface ContinuedResponse {
  /** Id of the response that its request continued; null if it began a conversation. */
  readonly previousId: string | null;
  /** Items of its request, without the items of earlier responses. */
  readonly input: readonly ResponsesItem[];
  readonly output: readonly ResponsesItem[];
}

/** Access to earlier responses. */
export interface ResponseLookup {
  /** Returns the response with an id. Throws for an unknown id. */
  readonly response: (id: string) => MaybePromise<ContinuedResponse>;
  /** Returns the output item with an id. Throws for an unknown id. */
  readonly item: (id: string) => MaybePromise<ResponsesItem>;
}

/** Items of a request with its conversation. */
export interface ResponsesConversation {
  /** Items of the request; references are replaced by their items. */
  readonly input: readonly ResponsesItem[];
  /** Items of the previous responses, oldest first, and of the request. */
  readonly items: readonly ResponsesItem[];
}

/** Returns the input as items; a text is a message of the user. */
function itemsOf(input: ResponsesRequest["input"]): readonly ResponsesItem[] {
  return typeof input === "string" ? [{ type: "message", role: "user", content: input }] : input;
}

/** Returns the items with references replaced by the items that they name. */
async function withoutReferences(items: readonly ResponsesItem[], { item: findItem }: ResponseLookup): Promise<ResponsesItem[]> {
  const resolved: ResponsesItem[] = [];
  for (const item of items) resolved.push(item.type === "item_reference" ? await findItem(item.id ?? "") : item);
  return resolved;
}

/**
 * Returns the items of a request and of all responses before it.
 *
 * @throws ArgumentError `E_ARGUMENT` for more than {@link MAX_CHAIN} previous responses; any error of the lookup.
 */
export async function conversationOf(
  request: Pick<ResponsesRequest, "input" | "previous_response_id">,
  lookup: ResponseLookup,
): Promise<ResponsesConversation> {
  const input = await withoutReferences(itemsOf(request.input), lookup);
  const turnsNewestFirst: (readonly ResponsesItem[])[] = [input];
  let previousId = request.previous_response_id ?? null;
  while (previousId !== null) {
    if (turnsNewestFirst.length > MAX_CHAIN) {
      const message = `Expected \`previous_response_id\` to continue at most ${MAX_CHAIN} responses, got a longer chain; start a new one with the conversation as \`input\``;
      throw new ArgumentError(message, { param: "previous_response_id" });
    }
    const previous = await lookup.response(previousId);
    turnsNewestFirst.push([...(await withoutReferences(previous.input, lookup)), ...previous.output]);
    ({ previousId } = previous);
  }
  return { input, items: turnsNewestFirst.toReversed().flat() };
}

/** Returns the part of a recorded request and its response that a later request can continue. */
export function continued(
  { input, previous_response_id: previousId }: Pick<ResponsesRequest, "input" | "previous_response_id">,
  output: readonly ResponsesItem[],
): ContinuedResponse {
  return { previousId: previousId ?? null, input: itemsOf(input), output };
}
