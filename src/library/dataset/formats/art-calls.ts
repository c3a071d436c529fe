/**
 * Conversion of ART's exchanges to calls in the form of chat completions. `toHistories` then reconstructs histories from the calls, as for
 * captured ones.
 */
import { continued, readResponsesRequest, toChatExchanges, accept, type Exchange, type ResponseLookup } from "../../../dialects/index.ts";
import { DataError, WhetstoneError } from "../../../base/errors.ts";
import type { RecordedCall } from "../../../base/trajectory/histories.ts";
import { shown } from "../../../base/util/shown.ts";
import type { ArtExchanges } from "./art-schema.ts";

/** Exchange with the times by which calls are ordered, in milliseconds since 1970. */
interface TimedExchange {
  readonly start: number;
  readonly end: number;
  readonly model: string;
  readonly exchange: Exchange;
  /** Position in the file, for messages. */
  readonly where: string;
}

/** Members of ART's exchanges that do not depend on the API. */
interface CommonMembers {
  readonly start_time: string;
  readonly end_time: string;
  readonly model?: string | null | undefined;
}

/**
 * Converts exchanges to calls in order of their start.
 *
 * @param model - Model of the calls to return; if undefined, all calls have to be of one model.
 * @param where - Beginning of every error message.
 * @throws DataError `E_DATA` for content that cannot be converted to chat messages, or for several models.
 */
export async function callsOf(exchanges: ArtExchanges, model: string | undefined, where: string): Promise<RecordedCall[]> {
  const all = timedExchanges(exchanges, where);
  const models = [...new Set(all.map((each) => each.model))];
  if (model === undefined && models.length > 1)
    throw new DataError(`${where}: expected exchanges of one model, got ${shown(models)}; set \`model\` to the trained model`);
  const selected = all.filter((each) => model === undefined || each.model === model);
  const calls: RecordedCall[] = [];
  const lookup = lookupIn(exchanges);
  for (const { exchange, where: position } of selected.toSorted((a, b) => a.start - b.start || a.end - b.end))
    for (const chat of await translated(exchange, lookup, position)) calls.push({ order: calls.length, ...chat });
  return calls;
}

/** Returns the exchanges of all APIs in one list, in the order of the file. */
function timedExchanges({ chat_completions: chats, completions, responses, messages }: ArtExchanges, where: string): TimedExchange[] {
  const timed = ({ start_time: start, end_time: end, model }: CommonMembers, exchange: Exchange, path: string): TimedExchange => {
    const answerModel = exchange.dialect === "generate" ? "" : exchange.answer.model;
    return { start: Date.parse(start), end: Date.parse(end), model: model ?? answerModel, exchange, where: `${where}.${path}` };
  };
  return [
    ...chats.map((each, index) =>
      timed(each, { dialect: "chat", request: each.request, answer: each.response }, `chat_completions.${index}`),
    ),
    ...completions.map((each, index) =>
      timed(each, { dialect: "completions", request: each.request, answer: each.response }, `completions.${index}`),
    ),
    ...responses.map((each, index) =>
      timed(each, { dialect: "responses", request: each.request, answer: each.response }, `responses.${index}`),
    ),
    ...messages.map((each, index) =>
      timed(each, { dialect: "messages", request: each.request, answer: each.response }, `messages.${index}`),
    ),
  ];
}

/** Returns the lookup by which a request of the Responses API finds earlier responses of the trajectory, and their items, by id. */
function lookupIn({ responses }: ArtExchanges): ResponseLookup {
  const responsesById = new Map(responses.map(({ request, response }) => [response.id, { request, response }]));
  return {
    response(id) {
      const found = responsesById.get(id);
      if (found === undefined) throw new DataError(`previous_response_id: expected a response of the same trajectory, got ${shown(id)}`);
      return continued(readResponsesRequest(found.request, accept), found.response.output);
    },
    item(id) {
      const found = responses.flatMap(({ response }) => response.output).find((item) => item["id"] === id);
      if (found === undefined) throw new DataError(`input: expected a reference to an item of the same trajectory, got ${shown(id)}`);
      return found;
    },
  };
}

/** Converts one exchange; an error names its position. */
async function translated(exchange: Exchange, lookup: ResponseLookup, where: string) {
  try {
    return await toChatExchanges(exchange, lookup);
  } catch (cause) {
    if (!WhetstoneError.isInstance(cause)) throw cause;
    throw new DataError(`${where}: ${cause.message}`, { cause });
  }
}
