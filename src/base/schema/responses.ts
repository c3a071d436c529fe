/** Schemas of the Responses API (`/v1/responses`). */
import { z } from "zod";
import { jsonObject, listOf, listQuery } from "./common.ts";

/** Schema of an item. Members other than `type` depend on the type. */
export const responsesItem = z.looseObject({
  /** Type of the item: `message`, `function_call`, `function_call_output`, `reasoning` or `item_reference`. @default "message" */
  type: z.string().optional(),
  /** Identifier of an item of a response. */
  id: z.string().nullish(),
  /** Author of a message: `user`, `assistant`, `system` or `developer`. */
  role: z.string().optional(),
  /** Text or parts of a message; parts of the reasoning. */
  content: z.union([z.string(), z.array(jsonObject)]).nullish(),
  /** Identifier of a function call, in the call and in its output. */
  call_id: z.string().optional(),
  /** Name of the called function. */
  name: z.string().nullish(),
  /** Arguments of a function call as JSON text. */
  arguments: z.string().optional(),
  /** Result of a function call: text, or text parts. */
  output: z.union([z.string(), z.array(jsonObject)]).optional(),
});
/** Item of the input or output of a response. @interface */
export type ResponsesItem = z.infer<typeof responsesItem>;

/** Schema of a tool of the Responses API. */
export const responsesTool = z.looseObject({
  /** Kind of tool: `function`, or `namespace` with functions in `tools`. Hosted tools such as `web_search` are not offered to the model. */
  type: z.string(),
  /** Name by which the model calls the function. */
  name: z.string().min(1).optional(),
  /** Description for the model. */
  description: z.string().nullish(),
  /** JSON Schema of the arguments, an object. */
  parameters: jsonObject.nullish(),
});
/** Tool of the Responses API. @interface */
export type ResponsesTool = z.infer<typeof responsesTool>;

/** Schema of {@link ResponsesRequest}. */
export const responsesRequest = z.looseObject({
  /** Model to sample, as in chat completions. */
  model: z.string().nullish(),
  /** Text of the user, or items. */
  input: z.union([z.string(), z.array(responsesItem)]),
  /** System prompt; not inherited from the previous response. */
  instructions: z.string().nullish(),
  /** Stored response that the input continues. */
  previous_response_id: z.string().nullish(),
  /** Whether the response is stored, so that it can be continued and fetched. @default true */
  store: z.boolean().nullish(),
  /** Functions that the model may call. */
  tools: z.array(responsesTool).nullish(),
  /** `none`, `auto`, `required`, or the function to call: `{"type": "function", "name": …}`. */
  tool_choice: z.union([z.string(), jsonObject]).nullish(),
  /** Whether an answer may have several calls. @default true */
  parallel_tool_calls: z.boolean().nullish(),
  /** Max tokens of the answer. @default as many as the context has room for */
  max_output_tokens: z.int().nullish(),
  /** Amount of reasoning, and whether its text is also returned as summary. */
  reasoning: z
    .looseObject({
      /** Amount of reasoning for the chat template: `low`, `medium` or `high`. */
      effort: z.string().nullish(),
      /** Any value but null returns the whole reasoning as summary too. */
      summary: z.literal(["auto", "concise", "detailed"]).nullish(),
    })
    .nullish(),
  /** Form of the text. */
  text: z
    .looseObject({
      /** `{"type": "text"}`, `{"type": "json_object"}` or `{"type": "json_schema", "name": …, "schema": …}`. */
      format: jsonObject.nullish(),
    })
    .nullish(),
  /** Additional output: `message.output_text.logprobs` and `reasoning.encrypted_content`. */
  include: z.array(z.string()).nullish(),
  /** Number of alternatives of each token in the log-probabilities. */
  top_logprobs: z.int().nullish(),
  /** Labels, returned with the response. */
  metadata: z.record(z.string(), z.string()).nullish(),
  /** Whether the answer is a stream of server-sent events. @default false */
  stream: z.boolean().nullish(),
});
/** Body of `POST /v1/responses`. Other fields of chat completions, such as `seed`, are accepted too. @interface */
export type ResponsesRequest = z.infer<typeof responsesRequest>;

/** Schema of {@link ResponsesAnswer}. */
export const responsesAnswer = z.looseObject({
  /** Identifier of the form `resp_…`. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("response"),
  /** Time of the response in seconds since 1970. */
  created_at: z.number(),
  /** `completed`, `incomplete`, or `failed`; `in_progress` in a stream. */
  status: z.string(),
  /** Resolved name of the sampled model with its step. */
  model: z.string(),
  /** Reasoning, message and function calls, in this order. */
  output: z.array(responsesItem),
  /** Reason of an incomplete response; else null. */
  incomplete_details: z
    .object({
      /** `max_output_tokens` or `repetition`. */
      reason: z.string(),
    })
    .nullable(),
  /** Error of a failed response; else null. */
  error: z
    .looseObject({
      /** `rate_limit_exceeded`, `invalid_prompt` or `server_error`, the codes that OpenAI's client knows. */
      code: z.string(),
      /** Text for people. */
      message: z.string(),
      /** Extension: code of the error, such as `E_OUTPUT`. */
      error_code: z.string().nullable().optional(),
    })
    .nullable(),
  /** Token counts; null in a stream before its end. */
  usage: z
    .looseObject({
      /** Tokens of the prompt. */
      input_tokens: z.int(),
      /** Sampled tokens, including reasoning. */
      output_tokens: z.int(),
      /** Sum of both. */
      total_tokens: z.int(),
    })
    .nullable(),
  /** Extension: token identifiers of the prompt, if the request sets `return_token_ids`. */
  prompt_token_ids: z.array(z.int()).optional(),
  /** Extension: identifiers of the sampled tokens, if the request sets `return_token_ids`. */
  token_ids: z.array(z.int()).optional(),
  /** Extension: log-probability of each sampled token, if the request sets `logprobs`. */
  logprobs: z.array(z.number()).optional(),
  /** Extension: text of each sampled token, if the request sets `logprobs`. */
  tokens: z.array(z.string()).optional(),
});
/** Answer of `POST /v1/responses`; of a stream, the response in its first and last events. @interface */
export type ResponsesAnswer = z.infer<typeof responsesAnswer>;

/** Schema of {@link ResponsesItemQuery}. */
export const responsesItemQuery = listQuery.extend({
  /** Order of the items: of the conversation, or reversed. @default "desc" */
  order: z.literal(["asc", "desc"]).default("desc"),
});
/** Query parameters of `GET /v1/responses/{response_id}/input_items`. @interface */
export type ResponsesItemQuery = z.infer<typeof responsesItemQuery>;

/** Schema of {@link ResponsesItemList}. */
export const responsesItemList = listOf(responsesItem);
/** Answer of `GET /v1/responses/{response_id}/input_items`: a page of the items that the model read. @interface */
export type ResponsesItemList = z.infer<typeof responsesItemList>;

/** Schema of the answer of `DELETE /v1/responses/{response_id}`. */
export const deletedResponse = z.object({
  /** Identifier of the deleted response. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("response"),
  /** Always true. */
  deleted: z.literal(true),
});
/** Answer of `DELETE /v1/responses/{response_id}`. @interface */
export type DeletedResponse = z.infer<typeof deletedResponse>;
