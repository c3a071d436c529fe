/** Recorded chat completions of this service and other servers, in the form of this service. */
import type { z } from "zod";
import { chatCompletion, type ChatCompletion } from "../../base/schema/index.ts";
import { idsOfTexts, NO_USAGE } from "../recorded-parts.ts";

/** Schema of a recorded chat completion. */
export const recordedCompletion = chatCompletion.extend({ usage: chatCompletion.shape.usage.nullish() });

/** Returns the chat completion. Absent token ids are read from log-probabilities that name their tokens `token_id:N`. */
export function fromCompletion(answer: z.output<typeof recordedCompletion>): ChatCompletion {
  const choices = answer.choices.map((choice) => {
    const namedIds = idsOfTexts(choice.logprobs?.content?.map(({ token }) => token));
    return { ...choice, token_ids: choice.token_ids ?? namedIds };
  });
  // Some servers repeat the ids of the prompt in each choice.
  const promptIds = answer.prompt_token_ids ?? (answer.choices[0]?.["prompt_token_ids"] as number[] | null | undefined);
  return { ...answer, usage: answer.usage ?? NO_USAGE, choices, prompt_token_ids: promptIds ?? null };
}
