/** Translation of a recorded response to a chat completion. */
import type { ChatCompletion, ResponsesItem } from "../../base/schema/index.ts";
import { choiceTokens, completionOf, idsOfTexts, sampledMessage } from "../recorded-parts.ts";
import { accept, unsupportedMember } from "../members.ts";
import { messagesOf } from "./items.ts";
import { z } from "zod";
import { logprobValues, tokenIds, tokenTexts, typedObject } from "../recorded-fields.ts";

/** Schema of a recorded response. */
export const recordedResponse = z.looseObject({
  id: z.string(),
  model: z.string(),
  output: z.array(typedObject),
  incomplete_details: z.looseObject({ reason: z.string().nullish() }).nullish(),
  prompt_token_ids: tokenIds,
  token_ids: tokenIds,
  logprobs: logprobValues,
  tokens: tokenTexts,
  /** Tokens of each generation, from servers that run tools themselves. */
  token_generations: z
    .array(
      z.looseObject({
        prompt_token_ids: tokenIds,
        token_ids: tokenIds,
        output_tokens: z.array(z.looseObject({ token: z.string().nullish(), token_id: z.int().nullish(), logprob: z.number() })).nullish(),
      }),
    )
    .nullish(),
});

type Response = z.output<typeof recordedResponse>;

/** Returns the tokens of a response: its own members, as this service returns them, or the only generation of another server. */
function tokensOf({ prompt_token_ids: promptIds, token_ids: ids, logprobs, token_generations: generations }: Response) {
  const [generation, ...others] = generations ?? [];
  if (others.length > 0)
    throw unsupportedMember("token_generations", others.length + 1, "Expected one generation; tools run in the client");
  const tokens = generation?.output_tokens;
  return {
    promptIds: promptIds ?? generation?.prompt_token_ids,
    ids: ids ?? generation?.token_ids ?? idsOf(tokens),
    logprobs: logprobs ?? tokens?.map(({ logprob }) => logprob),
  };
}

type OutputTokens = NonNullable<NonNullable<Response["token_generations"]>[number]["output_tokens"]>;

/** Returns the ids of output tokens: their `token_id`, or the ids that their texts name; null if either is incomplete or the list is empty. */
function idsOf(tokens: OutputTokens | null | undefined): readonly number[] | null {
  if (!tokens?.length) return null;
  const ids = tokens.map(({ token_id: id }) => id);
  if (ids.every((id) => typeof id === "number")) return ids;
  return idsOfTexts(tokens.map(({ token }) => token));
}

function finishReason({ incomplete_details: incomplete }: Response, hasCalls: boolean): string {
  if (incomplete?.reason === "max_output_tokens") return "length";
  return incomplete?.reason ?? (hasCalls ? "tool_calls" : "stop");
}

/** Returns the chat completion of a response. @throws UnsupportedError `E_UNSUPPORTED` for the output of tools that a server runs. */
export function fromResponse(answer: Response): ChatCompletion {
  const messages = messagesOf(answer.output as readonly ResponsesItem[], accept, "output");
  const foreignMessage = messages.find(({ role }) => role !== "assistant");
  if (foreignMessage !== undefined) throw unsupportedMember("output", foreignMessage.role, "Expected items of the assistant");
  const message = sampledMessage(messages);
  const { promptIds, ids, logprobs } = tokensOf(answer);
  const hasCalls = (message.tool_calls ?? []).length > 0;
  const choice = {
    index: 0,
    message,
    finish_reason: finishReason(answer, hasCalls),
    stop_reason: null,
    ...choiceTokens(ids, logprobs, answer.tokens),
  };
  return completionOf(answer, promptIds, [choice]);
}
