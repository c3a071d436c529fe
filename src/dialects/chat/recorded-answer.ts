/** Recorded chat completions. */
import type { z } from "zod";
import { chatCompletion, type ChatCompletion } from "../../base/schema/index.ts";
import { idsIn, NO_USAGE, tokensIn } from "../recorded-parts.ts";

/** Schema of a recorded chat completion. */
export const recordedCompletion = chatCompletion.extend({ usage: chatCompletion.shape.usage.nullish() });

/** Returns the chat completion, with the token ids that the log-probabilities name. */
export function fromCompletion(answer: z.output<typeof recordedCompletion>): ChatCompletion {
  const choices = answer.choices.map((choice) => ({ ...choice, token_ids: choice.token_ids ?? idsIn(tokensIn(choice.logprobs?.content)) }));
  // Some servers state the prompt in each choice, where it is the same.
  const prompt = answer.prompt_token_ids ?? (answer.choices[0]?.["prompt_token_ids"] as number[] | null | undefined);
  return { ...answer, usage: answer.usage ?? NO_USAGE, choices, prompt_token_ids: prompt ?? null };
}
