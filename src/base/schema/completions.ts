/** Schemas of text completions (`POST /v1/completions`). */
import { z } from "zod";
import { usage } from "./chat.ts";

/** Schema of {@link CompletionsRequest}. */
export const completionsRequest = z.looseObject({
  /** Model to sample, as in chat completions. */
  model: z.string().nullish(),
  /** Text, token ids, or a list of either; each is a prompt of its own. */
  prompt: z.union([z.string(), z.array(z.int()).min(1), z.array(z.string()).min(1), z.array(z.array(z.int()).min(1)).min(1)]),
  /** Whether the tokenizer adds its own special tokens to a text. @default true */
  add_special_tokens: z.boolean().nullish(),
  /** Whether each text begins with its prompt. @default false */
  echo: z.boolean().nullish(),
  /** Number of alternatives per token, with which log-probabilities are returned. @default none */
  logprobs: z.int().min(0).nullish(),
  /** Max tokens of an output; 0 only with `echo`. @default 16 */
  max_tokens: z.int().min(0).nullish(),
  /** Number of choices per prompt. @default 1 */
  n: z.int().min(1).nullish(),
  /** Whether the answer is a stream of server-sent events. @default false */
  stream: z.boolean().nullish(),
  /** Token counts in a stream. */
  stream_options: z
    .looseObject({
      /** Whether the last chunk has the token counts. @default true if `stream_options` is given */
      include_usage: z.boolean().nullish(),
    })
    .nullish(),
});
/** Body of `POST /v1/completions`. Other fields of chat completions, such as `seed`, are accepted too. @interface */
export type CompletionsRequest = z.infer<typeof completionsRequest>;

/** Schema of the log-probabilities of a completion. */
export const completionLogprobs = z.object({
  /** Texts of the tokens, or `token_id:N` if the request asks for identifiers. */
  tokens: z.array(z.string()),
  /** Log-probabilities; null for the first token of an echoed prompt. */
  token_logprobs: z.array(z.number().nullable()),
  /** Log-probabilities of the alternatives by token. */
  top_logprobs: z.array(z.record(z.string(), z.number()).nullable()),
  /** Number of characters before each token. */
  text_offset: z.array(z.int()),
});
/** Log-probabilities of a completion, one entry per token. @interface */
export type CompletionLogprobs = z.infer<typeof completionLogprobs>;

/** Schema of a choice of a text completion. */
export const completionChoice = z.looseObject({
  /** Index of the prompt times `n`, plus the index among the choices of the prompt. */
  index: z.int(),
  /** Sampled text, after the prompt if the request sets `echo`. */
  text: z.string(),
  /** Log-probabilities; null unless the request sets `logprobs`. */
  logprobs: completionLogprobs.nullable(),
  /** Reason for the end: `stop`, `length` or `repetition`; null in a chunk before the last. */
  finish_reason: z.string().nullable(),
  /** Stop string, identifier of a stop token, or `repetition_detected`; null for the tokenizer's own end token. */
  stop_reason: z.union([z.number(), z.string()]).nullish(),
  /** Extension: identifiers of the sampled tokens, if the request sets `return_token_ids`. */
  token_ids: z.array(z.int()).nullish(),
  /** Extension: token identifiers of the prompt, if the request sets `return_token_ids`. */
  prompt_token_ids: z.array(z.int()).nullish(),
});
/** A choice of a text completion. @interface */
export type CompletionChoice = z.infer<typeof completionChoice>;

/** Schema of {@link CompletionsAnswer}. */
export const completionsAnswer = z.looseObject({
  /** Identifier of the form `cmpl-…`. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("text_completion"),
  /** Time of the answer in seconds since 1970. */
  created: z.number(),
  /** Resolved name of the sampled model with its step. */
  model: z.string(),
  /** Sampled texts. */
  choices: z.array(completionChoice),
  /** Token counts of all prompts and choices. */
  usage: usage.nullish(),
});
/** Answer of `POST /v1/completions`, and chunk of its stream. @interface */
export type CompletionsAnswer = z.infer<typeof completionsAnswer>;
