/** Translation of the recorded requests of a rollout to chat completions. */
import { accept, continued, readResponsesRequest, toChatExchanges, type ResponseLookup } from "../../dialects/index.ts";
import { ArgumentError, WhetstoneError } from "../../base/errors.ts";
import type { RecordedCall } from "../../base/trajectory/histories.ts";
import { errorIdentity, type CaptureScope, type RecordedExchange } from "./scope.ts";

/**
 * Returns the calls of a rollout in start order. A request that has no translation to chat completions is dropped with a line in the log.
 */
export async function recordedCalls(scope: CaptureScope): Promise<RecordedCall[]> {
  const { exchanges } = scope;
  const lookup = lookupIn(exchanges);
  const calls: RecordedCall[] = [];
  for (const { order, model, exchange } of exchanges) {
    try {
      for (const chat of await toChatExchanges(exchange, lookup)) calls.push({ order, ...chat });
    } catch (error) {
      scope.drop(model, WhetstoneError.isInstance(error) ? error.message : errorIdentity(error));
    }
  }
  return calls;
}

/**
 * Returns the lookup by which a Responses request finds the rollout's earlier responses (`previous_response_id`) and their items
 * (`item_reference`).
 */
function lookupIn(exchanges: readonly RecordedExchange[]): ResponseLookup {
  const responses = exchanges.flatMap(({ exchange }) => (exchange.dialect === "responses" ? [exchange] : []));
  return {
    response(id) {
      const found = responses.find(({ answer }) => answer.id === id);
      if (found === undefined) throw unknownReferenceError("previous_response_id", "a response", id);
      return continued(readResponsesRequest(found.request, accept), found.answer.output);
    },
    item(id) {
      const found = responses.flatMap(({ answer }) => answer.output).find((item) => item["id"] === id);
      if (found === undefined) throw unknownReferenceError("input", "a reference to an item of a response", id);
      return found;
    },
  };
}

/** Creates the error of a reference to a call that the rollout did not record. @param param - Field of the request with the reference. */
function unknownReferenceError(param: string, expected: string, id: string): ArgumentError {
  return new ArgumentError(
    `\`${param}\`: expected ${expected} that this rollout recorded, got '${id}'. Start the conversation inside of the captured function`,
    { param },
  );
}
