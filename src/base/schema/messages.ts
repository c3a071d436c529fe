/** Schemas of the Messages API (`POST /v1/messages`). */
import { z } from "zod";
import { jsonObject } from "./common.ts";

/** Schema of a content block. Members other than `type` depend on the type. */
export const messagesBlock = z.looseObject({
  /** Type of the block: `text`, `thinking`, `tool_use` or `tool_result`. */
  type: z.string(),
  /** Text of a `text` block. */
  text: z.string().optional(),
  /** Reasoning of a `thinking` block. */
  thinking: z.string().optional(),
  /** Opaque text that belongs to `thinking`: a digest, or the omitted reasoning itself. Not checked. */
  signature: z.string().optional(),
  /** Identifier of a `tool_use` block. */
  id: z.string().optional(),
  /** Called tool of a `tool_use` block. */
  name: z.string().optional(),
  /** Arguments of a `tool_use` block. */
  input: jsonObject.optional(),
  /** Identifier of the `tool_use` block that a `tool_result` block answers. */
  tool_use_id: z.string().optional(),
});
/** Content block of a message of the Messages API. @interface */
export type MessagesBlock = z.infer<typeof messagesBlock>;

/** Schema of the content of a message. */
const content = z.union([z.string(), z.array(messagesBlock)]);

/** Schema of a message of the Messages API. */
export const messagesMessage = z.looseObject({
  /** Author: `user`, `assistant` or `system`. */
  role: z.literal(["user", "assistant", "system"]),
  /** Text, or content blocks. */
  content,
});
/** Message of the Messages API. @interface */
export type MessagesMessage = z.infer<typeof messagesMessage>;

/** Schema of a tool of the Messages API. */
export const messagesTool = z.looseObject({
  /** Kind of tool: `custom`, for a function that the client runs. Hosted tools such as `web_search_20250305` are left out for the model. */
  type: z.string().nullish(),
  /** Name by which the model calls the tool. */
  name: z.string().min(1),
  /** Description for the model. */
  description: z.string().nullish(),
  /** JSON Schema of the arguments, an object. */
  input_schema: jsonObject.nullish(),
});
/** Tool of the Messages API. @interface */
export type MessagesTool = z.infer<typeof messagesTool>;

/** Schema of {@link MessagesRequest}. */
export const messagesRequest = z.looseObject({
  /** Model to sample, as in chat completions. */
  model: z.string().nullish(),
  /** Max tokens of the answer. @default as many as the context has room for */
  max_tokens: z.int().nullish(),
  /** Conversation so far. A last message of the assistant is continued. */
  messages: z.array(messagesMessage).min(1),
  /** System prompt: text, or text blocks. */
  system: z.union([z.string(), z.array(messagesBlock)]).nullish(),
  /** Tools that the model may call. */
  tools: z.array(messagesTool).nullish(),
  /** `auto`, `any`, `none`, or the tool to call. */
  tool_choice: z
    .looseObject({
      /** Kind of choice: `auto`, `any`, `tool` or `none`. */
      type: z.literal(["auto", "any", "tool", "none"]),
      /** Name of the tool, with type `tool`. */
      name: z.string().optional(),
      /** Whether the answer has at most one call. @default false */
      disable_parallel_tool_use: z.boolean().nullish(),
    })
    .nullish(),
  /** Strings before which the answer ends. */
  stop_sequences: z.array(z.string()).nullish(),
  /** Reasoning: `enabled`, `adaptive` or `disabled`, as the variable `enable_thinking` of the chat template. */
  thinking: z
    .looseObject({
      /** Kind of reasoning. */
      type: z.literal(["enabled", "adaptive", "disabled"]),
      /** `omitted` returns thinking blocks without text, only with a signature. @default "summarized", which returns all reasoning */
      display: z.literal(["summarized", "omitted"]).nullish(),
    })
    .nullish(),
  /** Form of the text and amount of reasoning. */
  output_config: z
    .looseObject({
      /** Form of the text: `{"type": "json_schema", "schema": …}`. */
      format: jsonObject.nullish(),
      /** Amount of reasoning for the chat template: `low`, `medium` or `high`; `xhigh` and `max` count as `high`. */
      effort: z.literal(["low", "medium", "high", "xhigh", "max"]).nullish(),
    })
    .nullish(),
  /** Whether the answer is a stream of server-sent events. @default false */
  stream: z.boolean().nullish(),
});
/** Body of `POST /v1/messages`. Other fields of chat completions, such as `seed`, are accepted too. @interface */
export type MessagesRequest = z.infer<typeof messagesRequest>;

/** Schema of {@link MessagesUsage}. */
export const messagesUsage = z.looseObject({
  /** Tokens of the prompt, without tokens read from the prefix cache. */
  input_tokens: z.int(),
  /** Sampled tokens. */
  output_tokens: z.int(),
  /** Always 0: writing to the prefix cache is not counted. */
  cache_creation_input_tokens: z.int(),
  /** Prompt tokens read from the prefix cache; 0 unless the service reports cached tokens. */
  cache_read_input_tokens: z.int(),
});
/** Token counts of the Messages API. @interface */
export type MessagesUsage = z.infer<typeof messagesUsage>;

/** Schema of {@link MessagesAnswer}. */
export const messagesAnswer = z.looseObject({
  /** Identifier of the form `msg_…`. */
  id: z.string(),
  /** Type of the object in the wire format. */
  type: z.literal("message"),
  /** Author. */
  role: z.literal("assistant"),
  /** Resolved name of the sampled model with its step. */
  model: z.string(),
  /** Reasoning, text and tool calls, in this order. */
  content: z.array(messagesBlock),
  /** Reason for the end: `end_turn`, `max_tokens`, `stop_sequence`, `tool_use` or `repetition`; null while a stream runs. */
  stop_reason: z.string().nullable(),
  /** String of `stop_sequences` that ended the answer. */
  stop_sequence: z.string().nullable(),
  /** Token counts. */
  usage: messagesUsage,
  /** Extension: token identifiers of the prompt, if the request sets `return_token_ids`. */
  prompt_token_ids: z.array(z.int()).optional(),
  /** Extension: identifiers of the sampled tokens, if the request sets `return_token_ids`. */
  token_ids: z.array(z.int()).optional(),
  /** Extension: log-probability of each sampled token, if the request sets `logprobs`. */
  logprobs: z.array(z.number()).optional(),
  /** Extension: text of each sampled token, if the request sets `logprobs`. */
  tokens: z.array(z.string()).optional(),
});
/** Answer of `POST /v1/messages`; of a stream, the message in its first event, without content. @interface */
export type MessagesAnswer = z.infer<typeof messagesAnswer>;

/** Schema of the answer of `POST /v1/messages/count_tokens`. */
export const messagesTokenCount = z.object({
  /** Tokens of the prompt, as the chat template renders it. */
  input_tokens: z.int(),
});
/** Answer of `POST /v1/messages/count_tokens`. @interface */
export type MessagesTokenCount = z.infer<typeof messagesTokenCount>;

/** Schema of {@link MessagesError}. */
export const messagesError = z.object({
  /** Type of the object in the wire format. */
  type: z.literal("error"),
  /** The error. */
  error: z.object({
    /** Class of the error, such as `invalid_request_error`. */
    type: z.string(),
    /** Expected value, received value and remedy. The wording may change. */
    message: z.string(),
    /** Extension: path of the offending field. */
    param: z.string().nullable(),
    /** Extension: HTTP status. */
    code: z.int(),
    /** Extension: permanent code, such as `E_NOT_FOUND`. */
    error_code: z.string(),
    /** Extension: generated text that violates its schema, with `E_OUTPUT`. */
    failed_generation: z.string().optional(),
    /** Details for Anthropic's client. */
    details: z
      .object({
        /** Code of the rejection. */
        error_code: z.string(),
        /** Rejected features. */
        unsupported: z.array(z.string()),
      })
      .optional(),
  }),
  /** Identifier of the request, as in the header `request-id`. Absent in an error event of a stream. */
  request_id: z.string().optional(),
});
/** Error body of the routes of the Messages API. @interface */
export type MessagesError = z.infer<typeof messagesError>;
