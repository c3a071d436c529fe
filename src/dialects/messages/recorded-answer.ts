/** Translation of a recorded message to a chat completion. */
import type { ChatCompletion, MessagesBlock } from "../../base/schema/index.ts";
import { choiceTokens, completionOf, sampledMessage } from "../recorded-parts.ts";
import { accept } from "../members.ts";
import { fromAssistantBlocks } from "./blocks.ts";
import { z } from "zod";
import { logprobValues, tokenIds, tokenTexts, typedObject } from "../recorded-fields.ts";

/** Schema of a recorded message. */
export const recordedMessage = z.looseObject({
  id: z.string(),
  model: z.string(),
  content: z.array(typedObject),
  stop_reason: z.string().nullish(),
  stop_sequence: z.string().nullish(),
  prompt_token_ids: tokenIds,
  token_ids: tokenIds,
  logprobs: logprobValues,
  tokens: tokenTexts,
});

/** Finish reasons by stop reason; others keep their name. */
const FINISH_REASONS: Readonly<Record<string, string>> = {
  end_turn: "stop",
  stop_sequence: "stop",
  max_tokens: "length",
  tool_use: "tool_calls",
};

/**
 * Returns the chat completion of a message.
 *
 * @throws BodyError `E_ARGUMENT` and UnsupportedError `E_UNSUPPORTED` as for a message in a request.
 */
export function fromMessage(answer: z.output<typeof recordedMessage>): ChatCompletion {
  const { stop_reason: reason, stop_sequence: stopSequence, token_ids, logprobs, tokens } = answer;
  const message = sampledMessage([fromAssistantBlocks(answer.content as readonly MessagesBlock[], "content", accept)]);
  const choice = {
    index: 0,
    message,
    finish_reason: FINISH_REASONS[reason ?? ""] ?? reason ?? null,
    stop_reason: stopSequence ?? null,
    ...choiceTokens(token_ids, logprobs, tokens),
  };
  return completionOf(answer, answer.prompt_token_ids, [choice]);
}
