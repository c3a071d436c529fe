/** Schemas of chat completions: messages, choices, responses and chunks of a stream. "This service" is Whetstone's. */

import { z } from "zod";
import { jsonObject } from "./common.ts";
import { isRecord } from "../util/values.ts";

/** Schema of a content part of a message. Unknown part types are kept for templates that support them. */
export const contentPart = z.union([
  z.string(),
  z.looseObject({
    /** Type of the part, such as `text`. */
    type: z.string().optional(),
    /** Text of a part of a text type. */
    text: z.string().nullish(),
  }),
]);

/** Converts tool-call arguments that are an object, as some tools write them, to the JSON text of the interface. */
function argumentsText(value: unknown): unknown {
  return isRecord(value) ? JSON.stringify(value) : value;
}

/** Schema of {@link ToolCall}. */
export const toolCall = z.looseObject({
  /** Identifier that the message with the tool's result repeats in `tool_call_id`. */
  id: z.string().nullish(),
  /** Kind of tool; only functions are supported. */
  type: z.preprocess((value) => value ?? undefined, z.literal("function").default("function")),
  /** Called function. */
  function: z.looseObject({
    /** Name of a function in the request's `tools`. */
    name: z.string(),
    /** Arguments as the JSON text of an object. */
    arguments: z.preprocess(argumentsText, z.string().nullish()).optional(),
  }),
});
/**
 * A tool call in an assistant message. `arguments` is JSON text; an object, as written by `datasets` and pandas, is converted during
 * parsing.
 *
 * @interface
 */
export type ToolCall = z.infer<typeof toolCall>;

/** Schema of {@link RequestMessage}. */
export const requestMessage = z.looseObject({
  /** Author of the message, such as `system`, `user`, `assistant` or `tool`. */
  role: z.string(),
  /** Text, or parts with texts that are joined by line breaks. Null only for the roles `assistant` and `function`. */
  content: z.union([z.string(), z.array(contentPart), z.null()]).optional(),
  /** Name of the participant, for chat templates that render it. */
  name: z.string().nullish(),
  /** Tool calls of an assistant message. */
  tool_calls: z.array(toolCall).nullish(),
  /** Identifier of the call that a message of role `tool` answers. */
  tool_call_id: z.string().nullish(),
  /** Reasoning of an assistant message, separate from its content. */
  reasoning: z.string().nullish(),
  /** Reasoning under the name that other servers use; read if `reasoning` is absent. */
  reasoning_content: z.string().nullish(),
});
/**
 * A message of any role in chat requests, training data and trajectories. A null field counts as absent, because table formats write absent
 * fields as null. Unknown keys are kept and passed to the template.
 *
 * @interface
 */
export type RequestMessage = z.infer<typeof requestMessage>;

/** Schema of an alternative token with its log-probability. */
export const topLogprobEntry = z.looseObject({
  /** Text of the token, or `token_id:N` if the request asks for identifiers. */
  token: z.string(),
  /** Natural logarithm of the softmax of the raw logits; at least -9999. */
  logprob: z.number(),
  /** Bytes of the token, exact also where the token is part of a character. */
  bytes: z.array(z.int()).nullish(),
});

/** Schema of {@link LogprobEntry}. */
export const logprobEntry = z.looseObject({
  /** Text of the token, or `token_id:N` if the request asks for identifiers. */
  token: z.string(),
  /** Natural logarithm of the softmax of the raw logits; at least -9999. */
  logprob: z.number(),
  /** Bytes of the token, exact also where the token is part of a character. */
  bytes: z.array(z.int()).nullish(),
  /** Alternatives, as many as the request's `top_logprobs`; the sampled token is always among them. */
  top_logprobs: z.array(topLogprobEntry).default([]),
});
/** A sampled token with its log-probability; -9999 stands for any lower value. @interface */
export type LogprobEntry = z.infer<typeof logprobEntry>;

/** Schema of `logprobs` of a choice. */
export const choiceLogprobs = z.looseObject({
  /** One entry per sampled token, including the token that ended the turn. */
  content: z.array(logprobEntry).nullish(),
});

/** Schema of {@link ResponseMessage}. */
export const responseMessage = z.looseObject({
  /** Role of the answer: `assistant`, or the role of the last message without a generation prompt. */
  role: z.string(),
  /** Text without tool calls and reasoning; null if there is no other text. */
  content: z.string().nullish(),
  /** Text of a refusal, from servers that report refusals; null on this service. */
  refusal: z.string().nullish(),
  /** Annotations of the text, from servers that produce them; null on this service. */
  annotations: z.unknown().optional(),
  /** Spoken answer, from servers with audio models; null on this service. */
  audio: z.unknown().optional(),
  /** Tool call in the form that precedes `tool_calls`; null on this service. */
  function_call: z
    .looseObject({
      /** Name of the called function. */
      name: z.string(),
      /** Arguments as JSON text. */
      arguments: z.string(),
    })
    .nullish(),
  /** Tool calls parsed from the text, in the order of the text. */
  tool_calls: z.array(toolCall).nullish(),
  /** Reasoning parsed from the text, if the service has a reasoning parser. */
  reasoning: z.string().nullish(),
});
/** The message of a choice. @interface */
export type ResponseMessage = z.infer<typeof responseMessage>;

/** Schema of {@link Choice}. */
export const choice = z.looseObject({
  /** Index of the choice, from 0 to `n - 1`. */
  index: z.int().default(0),
  /** Sampled message. */
  message: responseMessage,
  /** Log-probabilities of the sampled tokens; null unless the request sets `logprobs`. */
  logprobs: choiceLogprobs.nullish(),
  /** Reason for the end: `stop`, `length`, `tool_calls` or `repetition`. */
  finish_reason: z.string().nullish(),
  /** Stop string, identifier of a stop token, or `repetition_detected`; null for the tokenizer's own end token. */
  stop_reason: z.union([z.number(), z.string()]).nullish(),
  /** Identifiers of the sampled tokens, including the token that ended the turn; null unless the request sets `return_token_ids`. */
  token_ids: z.array(z.int()).nullish(),
});
/** A choice of a completion. @interface */
export type Choice = z.infer<typeof choice>;

/** Schema of {@link AssistantChoice}. */
export const assistantChoice = choice.extend({
  /** Token identifiers of the prompt from which the choice was sampled. */
  prompt_token_ids: z.array(z.int()).nullish(),
  /** Step of the checkpoint that sampled the choice. */
  policy_version: z.int().nullish(),
  /** Extension: names in `chat_template_kwargs` of the request that the chat template does not read. */
  unused_template_kwargs: z.array(z.string()).nullish(),
  /** Extension: part of the trajectory's reward earned by this turn; used by jobs with `turn_rewards`. */
  reward: z.number().nullish(),
  /**
   * Extension: advantage of each sampled token, in place of the advantage from the group's rewards. All choices of a group have advantages,
   * or none.
   */
  token_advantages: z.array(z.number()).nullish(),
  /** Extension: factor of each sampled token's loss, at least 0; a token with factor 0 is not trained. @default 1 for every token */
  token_weights: z.array(z.number().min(0)).nullish(),
});
/**
 * A choice inside a trajectory: the sampled turn with the data needed for training. `prompt_token_ids` (top-level in a response) and
 * `policy_version` are stored with the choice, so that it can be trained without rendering the conversation again.
 *
 * @interface
 */
export type AssistantChoice = z.infer<typeof assistantChoice>;

/** Schema of {@link Usage}. */
export const usage = z.looseObject({
  /** Tokens of the prompt, counted once for any number of choices. */
  prompt_tokens: z.int().default(0),
  /** Sum of prompt and completion tokens. */
  total_tokens: z.int().default(0),
  /** Sampled tokens of all choices. */
  completion_tokens: z.int().default(0),
  /** Details of the prompt tokens; null unless the service reports cached tokens. */
  prompt_tokens_details: z
    .looseObject({
      /** Prompt tokens read from the prefix cache. */
      cached_tokens: z.int().nullish(),
    })
    .nullish(),
});
/** Token counts of a response. @interface */
export type Usage = z.infer<typeof usage>;

/** Schema of {@link ChatCompletion}. */
export const chatCompletion = z.looseObject({
  /** Identifier of the form `chatcmpl-…`. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("chat.completion").default("chat.completion"),
  /** Time of the response in seconds since 1970. */
  created: z.number().default(0),
  /** Resolved name of the sampled model with its step, such as `local/demo/reverse:step7`. */
  model: z.string(),
  /** Sampled answers, as many as the request's `n`. */
  choices: z.array(choice),
  /** Processing tier of servers that have tiers; null on this service. */
  service_tier: z.string().nullish(),
  /** Identifier of the server configuration; null on this service. */
  system_fingerprint: z.string().nullish(),
  /** Token counts of the request. */
  usage,
  /** Log-probabilities of the prompt: null for the first token, then an object by token id; null unless requested. */
  prompt_logprobs: z.array(z.unknown()).nullish(),
  /** Token identifiers of the prompt; null unless the request sets `return_token_ids`. */
  prompt_token_ids: z.array(z.int()).nullish(),
  /** Parameters for the transfer of a KV cache between vLLM servers; null on this service. */
  kv_transfer_params: z.unknown().optional(),
  /** Extension: names in `chat_template_kwargs` that the chat template does not read; absent without any. */
  unused_template_kwargs: z.array(z.string()).optional(),
});
/** Answer of `POST /v1/chat/completions` without `stream`. @interface */
export type ChatCompletion = z.infer<typeof chatCompletion>;

/** Schema of a choice of a streamed chunk. */
export const chunkChoice = z.looseObject({
  /** Index of the choice that the chunk continues. */
  index: z.int(),
  /** Part of the message that follows the parts in earlier chunks. */
  delta: z.looseObject({
    /** Role of the message, in the first chunk of a choice. */
    role: z.string().optional(),
    /** Text to append to the content. */
    content: z.string().nullish(),
    /** Starts and continuations of tool calls. */
    tool_calls: z
      .array(
        z.looseObject({
          /** Index of the call in the message. */
          index: z.int(),
          /** Identifier of the call, in its first part. */
          id: z.string().nullish(),
          /** Kind of tool, in the first part of a call. */
          type: z.string().nullish(),
          /** Part of the called function. */
          function: z
            .looseObject({
              /** Name of the function, in the first part of a call. */
              name: z.string().nullish(),
              /** Text to append to the arguments. */
              arguments: z.string().nullish(),
            })
            .nullish(),
        }),
      )
      .nullish(),
    /** Text to append to the reasoning. */
    reasoning: z.string().nullish(),
  }),
  /** Log-probabilities of the chunk's tokens; null unless the request sets `logprobs`. */
  logprobs: choiceLogprobs.nullish(),
  /** Reason for the end, in the last chunk of a choice; null before. */
  finish_reason: z.string().nullish(),
  /** Stop string, identifier of a stop token, or `repetition_detected`, in the last chunk of a choice. */
  stop_reason: z.union([z.number(), z.string()]).nullish(),
  /** Identifiers of the chunk's tokens; absent unless the request sets `return_token_ids`. */
  token_ids: z.array(z.int()).nullish(),
});

/** Schema of {@link ChatCompletionChunk}. */
export const chatCompletionChunk = z.looseObject({
  /** Identifier of the form `chatcmpl-…`, the same in all chunks of a stream. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("chat.completion.chunk").default("chat.completion.chunk"),
  /** Time of the response in seconds since 1970, the same in all chunks of a stream. */
  created: z.number(),
  /** Resolved name of the sampled model with its step. */
  model: z.string(),
  /** Continued choices; empty in the chunk with the final usage. */
  choices: z.array(chunkChoice),
  /** Token counts so far, as `stream_options` requests. */
  usage: usage.nullish(),
  /** Token identifiers of the prompt, in the first chunk; absent unless the request sets `return_token_ids`. */
  prompt_token_ids: z.array(z.int()).nullish(),
  /** Extension: names in `chat_template_kwargs` that the chat template does not read, in the first chunk; absent without any. */
  unused_template_kwargs: z.array(z.string()).optional(),
});
/** A chunk of the event stream of `POST /v1/chat/completions` with `stream`. @interface */
export type ChatCompletionChunk = z.infer<typeof chatCompletionChunk>;

/** Schema of {@link RequestTool}. */
export const requestTool = z.looseObject({
  /** Kind of tool; only functions are supported. */
  type: z.literal("function"),
  /** Callable function. */
  function: z.looseObject({
    /** Name by which the model calls the function. */
    name: z.string().min(1),
    /** Description for the model. */
    description: z.string().nullish(),
    /** JSON Schema of the arguments, an object. */
    parameters: jsonObject.nullish(),
  }),
});
/** `tools` entry of a request. @interface */
export type RequestTool = z.infer<typeof requestTool>;
