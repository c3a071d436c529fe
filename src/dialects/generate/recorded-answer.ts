/** Translation of a recorded answer of the token route to a chat completion. */
import type { z } from "zod";
import { generateAnswer, type ChatCompletion } from "../../base/schema/index.ts";
import { choiceTokens, completionOf } from "../recorded-parts.ts";
import type { TranslatedCall } from "../translated-call.ts";

/** Schema of a recorded answer. */
export const recordedGenerated = generateAnswer.extend({ usage: generateAnswer.shape.usage.nullish() });

/** Returns the chat completion of an answer to a translated request. The text is empty; the model is the one of the request. */
export function fromGenerated(
  { request_id: id, choices, prompt_token_ids: promptIds }: z.output<typeof recordedGenerated>,
  { body }: TranslatedCall,
): ChatCompletion {
  const chatChoices = choices.map(({ index, token_ids: ids, finish_reason: reason, logprobs }) => ({
    index,
    message: { role: "assistant", content: "", tool_calls: [] },
    finish_reason: reason,
    stop_reason: null,
    ...choiceTokens(
      ids,
      logprobs?.content?.map(({ logprob }) => logprob),
    ),
  }));
  return completionOf({ id, model: String(body["model"] ?? "") }, promptIds, chatChoices);
}
