/** Schemas of the routes on tokens: `/inference/v1/generate`, `/tokenize` and `/detokenize`. */
import { z } from "zod";
import { choiceLogprobs, requestMessage, usage } from "./chat.ts";

/** Schema of {@link GenerateRequest}. */
export const generateRequest = z.looseObject({
  /** Model to sample, as in chat completions. */
  model: z.string().nullish(),
  /** Prompt. */
  token_ids: z.array(z.int()).min(1),
  /** Fields of chat completions for sampling, such as `temperature`; `logprobs` is the number of alternatives. */
  sampling_params: z
    .looseObject({
      /** Number of alternatives per token, with which log-probabilities are returned. @default none */
      logprobs: z.int().min(0).nullish(),
    })
    .nullish(),
  /** Salt of the prefix cache. */
  cache_salt: z.string().nullish(),
  /** Scheduling priority. */
  priority: z.int().nullish(),
});
/** Body of `POST /inference/v1/generate`. @interface */
export type GenerateRequest = z.infer<typeof generateRequest>;

/** Schema of {@link GenerateAnswer}. */
export const generateAnswer = z.looseObject({
  /** Identifier of the request. */
  request_id: z.string(),
  /** Sampled outputs. */
  choices: z.array(
    z.looseObject({
      /** Index of the choice, from 0 to `n - 1`. */
      index: z.int(),
      /** Identifiers of the sampled tokens, including the token that ended the output. */
      token_ids: z.array(z.int()),
      /** Reason for the end: `stop`, `length` or `repetition`. */
      finish_reason: z.string().nullable(),
      /** Log-probabilities of the sampled tokens, named `token_id:N`; null unless `sampling_params` sets `logprobs`. */
      logprobs: choiceLogprobs.nullable(),
    }),
  ),
  /** Prompt. */
  prompt_token_ids: z.array(z.int()),
  /** Token counts. */
  usage,
});
/** Answer of `POST /inference/v1/generate`. @interface */
export type GenerateAnswer = z.infer<typeof generateAnswer>;

/** Schema of {@link TokenizeRequest}. */
export const tokenizeRequest = z.looseObject({
  /** Model that has the tokenizer, as in chat completions. */
  model: z.string().nullish(),
  /** Text; excludes `messages`. */
  prompt: z.string().nullish(),
  /** Conversation for the chat template, with the fields of chat completions for the prompt; excludes `prompt`. */
  messages: z.array(requestMessage).min(1).nullish(),
  /** Whether the tokenizer adds its own special tokens. @default true for `prompt`, false for `messages` */
  add_special_tokens: z.boolean().nullish(),
  /** Whether the answer has the texts of the tokens. @default false */
  return_token_strs: z.boolean().nullish(),
});
/** Body of `POST /tokenize`. @interface */
export type TokenizeRequest = z.infer<typeof tokenizeRequest>;

/** Schema of {@link TokenizeAnswer}, the tokens of a text or a conversation. */
export const tokenizeAnswer = z.object({
  /** Number of tokens. */
  count: z.int(),
  /** Max tokens of prompt and output of the model. */
  max_model_len: z.int(),
  /** Token identifiers. */
  tokens: z.array(z.int()),
  /** Texts of the tokens; null unless requested. */
  token_strs: z.array(z.string()).nullable(),
});
/** Tokens of a text or a conversation, from `POST /tokenize`. @interface */
export type TokenizeAnswer = z.infer<typeof tokenizeAnswer>;

/** Schema of {@link DetokenizeRequest}. */
export const detokenizeRequest = z.looseObject({
  /** Model that has the tokenizer, as in chat completions. */
  model: z.string().nullish(),
  /** Token identifiers. */
  tokens: z.array(z.int()).min(1),
});
/** Body of `POST /detokenize`. @interface */
export type DetokenizeRequest = z.infer<typeof detokenizeRequest>;

/** Schema of {@link DetokenizeAnswer}, the text of tokens. */
export const detokenizeAnswer = z.object({
  /** Text of the tokens, special tokens included. */
  prompt: z.string(),
});
/** Text of tokens, from `POST /detokenize`. @interface */
export type DetokenizeAnswer = z.infer<typeof detokenizeAnswer>;
