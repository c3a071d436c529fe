/**
 * Schemas of recorded answers: the fields that readers use. Servers other than this service leave out more fields than its own schemas
 * permit.
 */
import { z } from "zod";
import { chatCompletion, generateAnswer } from "../schema/index.ts";

const ids = z.array(z.int()).nullish();
const numbers = z.array(z.number()).nullish();
const texts = z.array(z.string()).nullish();
const typed = z.looseObject({ type: z.string() });

const completion = chatCompletion.extend({ usage: chatCompletion.shape.usage.nullish() });

const message = z.looseObject({
  id: z.string(),
  model: z.string(),
  content: z.array(typed),
  stop_reason: z.string().nullish(),
  stop_sequence: z.string().nullish(),
  prompt_token_ids: ids,
  token_ids: ids,
  logprobs: numbers,
  tokens: texts,
});

const response = z.looseObject({
  id: z.string(),
  model: z.string(),
  output: z.array(typed),
  incomplete_details: z.looseObject({ reason: z.string().nullish() }).nullish(),
  prompt_token_ids: ids,
  token_ids: ids,
  logprobs: numbers,
  tokens: texts,
  /** Tokens of each generation, from servers that run tools themselves. */
  token_generations: z
    .array(
      z.looseObject({
        prompt_token_ids: ids,
        token_ids: ids,
        output_tokens: z.array(z.looseObject({ token: z.string().nullish(), token_id: z.int().nullish(), logprob: z.number() })).nullish(),
      }),
    )
    .nullish(),
});

const textCompletion = z.looseObject({
  id: z.string(),
  model: z.string(),
  prompt_token_ids: ids,
  choices: z.array(
    z.looseObject({
      index: z.int(),
      text: z.string(),
      finish_reason: z.string().nullish(),
      stop_reason: z.union([z.number(), z.string()]).nullish(),
      prompt_token_ids: ids,
      token_ids: ids,
      logprobs: z
        .looseObject({ tokens: z.array(z.string()).nullish(), token_logprobs: z.array(z.number().nullable()).nullish() })
        .nullish(),
    }),
  ),
});

const generated = generateAnswer.extend({ usage: generateAnswer.shape.usage.nullish() });

/** Schemas of recorded answers, by dialect. */
export const ANSWERS = { chat: completion, responses: response, messages: message, completions: textCompletion, generate: generated };

/** Name of a dialect in which turns are sampled. */
export type DialectName = keyof typeof ANSWERS;

/** Recorded answer of a dialect. */
export type RecordedAnswer<Name extends DialectName = DialectName> = z.output<(typeof ANSWERS)[Name]>;
