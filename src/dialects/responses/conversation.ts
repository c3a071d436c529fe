/** Conversation that a request continues: the items of previous responses, and references to items. */
import { ArgumentError } from "../../base/errors.ts";
import type { ResponsesItem, ResponsesRequest } from "../../base/schema/index.ts";

/** Max length of a chain of previous responses. */
const MAX_CHAIN = 4096;

type MaybePromise<T> = T | Promise<T>;

/** Response that a later request can continue. */
export interface ContinuedResponse {
  /** Response that its request continued; null for none. */
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

/** Returns the input as items. */
function itemsOf(input: ResponsesRequest["input"]): readonly ResponsesItem[] {
  return typeof input === "string" ? [{ type: "message", role: "user", content: input }] : input;
}

/** Returns the items with references replaced by the items that they name. */
async function resolved(items: readonly ResponsesItem[], { item: find }: ResponseLookup): Promise<ResponsesItem[]> {
  const found: ResponsesItem[] = [];
  for (const item of items) found.push(item.type === "item_reference" ? await find(item.id ?? "") : item);
  return found;
}

/**
 * Returns the items of a request and of all responses before it.
 *
 * @throws ArgumentError `E_ARGUMENT` for more than {@link MAX_CHAIN} previous responses; any error of the lookup.
 */
export async function conversationOf(
  { input: given, previous_response_id: previousId }: Pick<ResponsesRequest, "input" | "previous_response_id">,
  lookup: ResponseLookup,
): Promise<ResponsesConversation> {
  const input = await resolved(itemsOf(given), lookup);
  const parts: (readonly ResponsesItem[])[] = [input];
  for (let id = previousId ?? null; id !== null;) {
    if (parts.length > MAX_CHAIN) {
      const message = `Expected \`previous_response_id\` to continue at most ${MAX_CHAIN} responses, got a longer chain; start a new one with the conversation as \`input\``;
      throw new ArgumentError(message, { param: "previous_response_id" });
    }
    const previous = await lookup.response(id);
    parts.push([...(await resolved(previous.input, lookup)), ...previous.output]);
    id = previous.previousId;
  }
  return { input, items: parts.toReversed().flat() };
}

/** Returns the part of a recorded request and its response that a later request can continue. */
export function continued(
  { input, previous_response_id: previousId }: Pick<ResponsesRequest, "input" | "previous_response_id">,
  output: readonly ResponsesItem[],
): ContinuedResponse {
  return { previousId: previousId ?? null, input: itemsOf(input), output };
}
