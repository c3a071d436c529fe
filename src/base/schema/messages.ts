/** Schemas of the Messages API (`POST /v1/messages`). */
import { z } from "zod";
import { jsonObject } from "./common.ts";

/**
 * Schema of a content block. The other members depend on `type`. The translation to a chat completion (`dialects/messages/blocks.ts`)
 * checks that they are present, and that the `content` of a `tool_result`, if any, is a string or an array of `text` blocks.
 */
export const messagesBlock = z.looseObject({
  /** Type of the block: `text`, `thinking`, `tool_use` or `tool_result`. Blocks of other types are rejected. */
  type: z.string(),
  /** Text of a `text` block. */
  text: z.string().optional(),
  /** Reasoning of a `thinking` block. */
  thinking: z.string().optional(),
  /**
   * Opaque text that belongs to `thinking`. With the reasoning in `thinking`, a digest of it, which is not checked. With omitted reasoning,
   * the reasoning itself, which is restored when the block is sent back.
   */
  signature: z.string().optional(),
  /** Identifier of a `tool_use` block. */
  id: z.string().optional(),
  /** Name of the called tool of a `tool_use` block. */
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
  /**
   * Kind of tool: absent or `custom` for a function that the client runs. Hosted tools, such as `web_search_20250305`, are not offered to
   * the model. Other types are rejected.
   */
  type: z.string().nullish(),
  /** Name by which the model calls the tool. */
  name: z.string().min(1),
  /** Description for the model. */
  description: z.string().nullish(),
  /** JSON Schema of the arguments, which are an object. */
  input_schema: jsonObject.nullish(),
});
/** Tool of the Messages API. @interface */
export type MessagesTool = z.infer<typeof messagesTool>;

/** Schema of {@link MessagesRequest}. */
export const messagesRequest = z.looseObject({
  /** Model to sample, as in chat completions. */
  model: z.string().nullish(),
  /** Max sampled tokens, reasoning included. @default the remaining context length */
  max_tokens: z.int().nullish(),
  /** Conversation so far. The model continues a last message of the assistant that has no `tool_use` block. */
  messages: z.array(messagesMessage).min(1),
  /** System prompt: text, or text blocks. */
  system: z.union([z.string(), z.array(messagesBlock)]).nullish(),
  /** Tools that the model may call. */
  tools: z.array(messagesTool).nullish(),
  /** Whether the model may or must call a tool. */
  tool_choice: z
    .looseObject({
      /** `auto`: the model decides; `any`: it must call a tool; `tool`: it must call the tool `name`; `none`: it calls no tool. */
      type: z.literal(["auto", "any", "tool", "none"]),
      /** Name of the tool, with type `tool`. */
      name: z.string().optional(),
      /** Whether the answer may have at most one tool call. @default false */
      disable_parallel_tool_use: z.boolean().nullish(),
    })
    .nullish(),
  /** Strings that end the answer, which does not contain them. */
  stop_sequences: z.array(z.string()).nullish(),
  /** Reasoning of the model. Other members, such as `budget_tokens`, have no effect. */
  thinking: z
    .looseObject({
      /**
       * Sets the variable `enable_thinking` of the chat template: to true for `enabled` and `adaptive`, to false for `disabled`. A value in
       * `chat_template_kwargs` takes precedence.
       */
      type: z.literal(["enabled", "adaptive", "disabled"]),
      /** `summarized`: thinking blocks have the whole reasoning; `omitted`: their text is empty. @default "summarized" */
      display: z.literal(["summarized", "omitted"]).nullish(),
    })
    .nullish(),
  /** Format of the text and amount of reasoning. */
  output_config: z
    .looseObject({
      /** Format of the text: `{"type": "json_schema", "schema": …}`. */
      format: jsonObject.nullish(),
      /** Amount of reasoning, as `reasoning_effort` of chat completions; `xhigh` and `max` count as `high`. */
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
  /** Prompt tokens that were not read from the prefix cache. */
  input_tokens: z.int(),
  /** Sampled tokens, reasoning included. */
  output_tokens: z.int(),
  /** Always 0: prompt tokens written to the prefix cache are not counted. */
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
  /** Author of the message. */
  role: z.literal("assistant"),
  /** Resolved name of the sampled model with its step. */
  model: z.string(),
  /**
   * Reasoning, text and tool calls, in this order. A tool call with truncated arguments is a text block with the arguments, because the
   * `input` of a `tool_use` block is an object.
   */
  content: z.array(messagesBlock),
  /**
   * Reason for the end: `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, or `repetition` (extension) for an output that
   * `repetition_detection` ended; null in the first event of a stream.
   */
  stop_reason: z.string().nullable(),
  /** String of `stop_sequences` that ended the answer; null for another reason. */
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
/** Answer of `POST /v1/messages`. The first event of a stream has it without content. @interface */
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
    /** Type of the error, such as `invalid_request_error`. */
    type: z.string(),
    /** Expected value, received value and remedy. The wording may change. */
    message: z.string(),
    /** Extension: path of the offending field, parameter or header; null for other errors. */
    param: z.string().nullable(),
    /** Extension: HTTP status. */
    code: z.int(),
    /** Extension: permanent code, such as `E_NOT_FOUND`. */
    error_code: z.string(),
    /** Extension: generated text that violates its schema, of an error with the code `E_OUTPUT`. */
    failed_generation: z.string().optional(),
    /**
     * Details of the rejection of the field `thread`; otherwise absent. Anthropic's tool runner sends this field first, and the whole
     * conversation after this error.
     */
    details: z
      .object({
        /** Always `thread_unsupported_request`. */
        error_code: z.string(),
        /** Rejected features: `thread`. */
        unsupported: z.array(z.string()),
      })
      .optional(),
  }),
  /** Identifier of the request, as in the header `request-id`. Absent in an error event of a stream. */
  request_id: z.string().optional(),
});
/** Error body of the routes of the Messages API. @interface */
export type MessagesError = z.infer<typeof messagesError>;
