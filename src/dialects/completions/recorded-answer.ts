/** Translation of a recorded text completion to chat completions, one per prompt. */
import type { ChatCompletion } from "../../base/schema/index.ts";
import { choiceTokens, completionOf, idsOfTexts } from "../recorded-parts.ts";
import { unsupportedMember } from "../members.ts";
import type { TranslatedCompletion } from "./request.ts";
import { z } from "zod";
import { tokenIds } from "../recorded-fields.ts";

/** Schema of a recorded text completion. */
export const recordedTextCompletion = z.looseObject({
  id: z.string(),
  model: z.string(),
  prompt_token_ids: tokenIds,
  choices: z.array(
    z.looseObject({
      index: z.int(),
      text: z.string(),
      finish_reason: z.string().nullish(),
      stop_reason: z.union([z.number(), z.string()]).nullish(),
      prompt_token_ids: tokenIds,
      token_ids: tokenIds,
      logprobs: z
        .looseObject({ tokens: z.array(z.string()).nullish(), token_logprobs: z.array(z.number().nullable()).nullish() })
        .nullish(),
    }),
  ),
});

type RecordedText = z.output<typeof recordedTextCompletion>;
type TextChoice = RecordedText["choices"][number];

/** Returns the log-probabilities of a choice; null if one or all are missing. */
function logprobsOf({ logprobs }: TextChoice): readonly number[] | null {
  const values = logprobs?.token_logprobs ?? null;
  return values?.every((value) => value !== null) ? values : null;
}

/**
 * Returns the chat completions of a text completion, one per call of the request. The choices of a call are `n` neighbors in the answer.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for an echoed prompt, which is not part of the sampled text.
 */
export function fromTextCompletion(answer: RecordedText, { request, calls }: TranslatedCompletion): ChatCompletion[] {
  if (request.echo === true) throw unsupportedMember("echo", true, "An echoed prompt is not part of the sampled text; leave `echo` out");
  const count = request.n ?? 1;
  return calls.map(({ prompt }, call) => {
    const callChoices = answer.choices.filter(({ index }) => Math.floor(index / count) === call);
    const requestedIds = prompt !== undefined && "ids" in prompt ? prompt.ids : null;
    const answeredIds = callChoices.find(({ prompt_token_ids: ids }) => ids)?.prompt_token_ids ?? answer.prompt_token_ids;
    const choices = callChoices.map((choice) => ({
      index: choice.index % count,
      message: { role: "assistant", content: choice.text, tool_calls: [] },
      finish_reason: choice.finish_reason ?? null,
      stop_reason: choice.stop_reason ?? null,
      ...choiceTokens(choice.token_ids ?? idsOfTexts(choice.logprobs?.tokens), logprobsOf(choice), choice.logprobs?.tokens),
    }));
    return completionOf(answer, answeredIds ?? requestedIds, choices);
  });
}
