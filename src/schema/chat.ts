import { z } from "zod";
import { jsonObject, jsonValue } from "./common.ts";

/** A content part of a message. Unknown part types are kept for templates that support them. */
export const contentPart = z.union([z.string(), z.looseObject({ type: z.string().optional(), text: z.string().nullish() })]);

/** Converts tool-call arguments that are an object, as some tools write them, to the JSON text of the interface. */
function argumentsText(value: unknown): unknown {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? JSON.stringify(value) : value;
}

/**
 * A tool call in an assistant message. `arguments` is JSON text; an object, as written by `datasets` and pandas, is converted during
 * parsing.
 */
export const toolCall = z.looseObject({
  id: z.string().nullish(),
  type: z.preprocess((value) => value ?? undefined, z.literal("function").default("function")),
  function: z.looseObject({ name: z.string(), arguments: z.preprocess(argumentsText, z.string().nullish()).optional() }),
});
export type ToolCall = z.infer<typeof toolCall>;

/**
 * A message of any role in chat requests, training data and trajectories. A null field counts as absent, because table formats write absent
 * fields as null. Unknown keys are kept and passed to the template.
 */
export const requestMessage = z.looseObject({
  role: z.string(),
  content: z.union([z.string(), z.array(contentPart), z.null()]).optional(),
  name: z.string().nullish(),
  tool_calls: z.array(toolCall).nullish(),
  tool_call_id: z.string().nullish(),
  reasoning: z.string().nullish(),
  reasoning_content: z.string().nullish(),
});
export type RequestMessage = z.infer<typeof requestMessage>;

/** An alternative token with its log-probability. */
export const topLogprobEntry = z.looseObject({ token: z.string(), logprob: z.number(), bytes: z.array(z.int()).nullish() });

/** A sampled token with its log-probability; -9999 stands for any lower value. */
export const logprobEntry = z.looseObject({
  token: z.string(),
  logprob: z.number(),
  bytes: z.array(z.int()).nullish(),
  top_logprobs: z.array(topLogprobEntry).default([]),
});
export type LogprobEntry = z.infer<typeof logprobEntry>;

/** `logprobs` of a choice. */
export const choiceLogprobs = z.looseObject({ content: z.array(logprobEntry).nullish() });

/** The message of a choice. */
export const responseMessage = z.looseObject({
  role: z.string(),
  content: z.string().nullish(),
  refusal: z.string().nullish(),
  annotations: z.unknown().optional(),
  audio: z.unknown().optional(),
  function_call: z.looseObject({ name: z.string(), arguments: z.string() }).nullish(),
  tool_calls: z.array(toolCall).nullish(),
  reasoning: z.string().nullish(),
});
export type ResponseMessage = z.infer<typeof responseMessage>;

/** A choice of a completion. */
export const choice = z.looseObject({
  index: z.int().default(0),
  message: responseMessage,
  logprobs: choiceLogprobs.nullish(),
  finish_reason: z.string().nullish(),
  stop_reason: z.union([z.number(), z.string()]).nullish(),
  token_ids: z.array(z.int()).nullish(),
});
export type Choice = z.infer<typeof choice>;

/**
 * A choice inside a trajectory: the sampled turn with the data needed for training. `prompt_token_ids` (top-level in a response) and
 * `policy_version` are stored with the choice, so that it can be trained without rendering the conversation again.
 */
export const assistantChoice = choice.extend({
  prompt_token_ids: z.array(z.int()).nullish(),
  /** Step of the checkpoint that sampled the choice. */
  policy_version: z.int().nullish(),
  /** Extension: part of the trajectory's reward earned by this turn; used by jobs with `turn_rewards`. */
  reward: z.number().nullish(),
});
export type AssistantChoice = z.infer<typeof assistantChoice>;

/** Token counts. */
export const usage = z.looseObject({
  prompt_tokens: z.int().default(0),
  total_tokens: z.int().default(0),
  completion_tokens: z.int().default(0),
  prompt_tokens_details: z.looseObject({ cached_tokens: z.int().nullish() }).nullish(),
});
export type Usage = z.infer<typeof usage>;

/** A chat completion. */
export const chatCompletion = z.looseObject({
  id: z.string(),
  object: z.literal("chat.completion").default("chat.completion"),
  created: z.number().default(0),
  model: z.string(),
  choices: z.array(choice),
  service_tier: z.string().nullish(),
  system_fingerprint: z.string().nullish(),
  usage,
  prompt_logprobs: z.array(z.unknown()).nullish(),
  prompt_token_ids: z.array(z.int()).nullish(),
  kv_transfer_params: z.unknown().optional(),
});
export type ChatCompletion = z.infer<typeof chatCompletion>;

/** A choice of a streamed chunk. */
export const chunkChoice = z.looseObject({
  index: z.int(),
  delta: z.looseObject({
    role: z.string().optional(),
    content: z.string().nullish(),
    tool_calls: z
      .array(
        z.looseObject({
          index: z.int(),
          id: z.string().nullish(),
          type: z.string().nullish(),
          function: z.looseObject({ name: z.string().nullish(), arguments: z.string().nullish() }).nullish(),
        }),
      )
      .nullish(),
    reasoning: z.string().nullish(),
  }),
  logprobs: choiceLogprobs.nullish(),
  finish_reason: z.string().nullish(),
  stop_reason: z.union([z.number(), z.string()]).nullish(),
  token_ids: z.array(z.int()).nullish(),
});

/** A streamed chunk. */
export const chatCompletionChunk = z.looseObject({
  id: z.string(),
  object: z.literal("chat.completion.chunk").default("chat.completion.chunk"),
  created: z.number(),
  model: z.string(),
  choices: z.array(chunkChoice),
  usage: usage.nullish(),
  prompt_token_ids: z.array(z.int()).nullish(),
});
export type ChatCompletionChunk = z.infer<typeof chatCompletionChunk>;

/** `tools` entry of a request. */
export const requestTool = z.looseObject({
  type: z.literal("function"),
  function: z.looseObject({ name: z.string().min(1), description: z.string().nullish(), parameters: jsonObject.nullish() }),
});
export type RequestTool = z.infer<typeof requestTool>;

/**
 * Body of `POST /v1/chat/completions`, as a client writes it. The service parses the same names with the coercions of its wire format
 * (`src/service/chat/request.ts`), which also accepts and logs unknown fields.
 */
export const chatCompletionRequest = z.looseObject({
  messages: z.array(requestMessage).min(1),
  model: z.string().nullish(),
  frequency_penalty: z.number().nullish(),
  logit_bias: z.record(z.string(), z.number()).nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.int().nullish(),
  max_tokens: z.int().nullish(),
  max_completion_tokens: z.int().nullish(),
  n: z.int().nullish(),
  presence_penalty: z.number().nullish(),
  response_format: jsonObject.nullish(),
  seed: z.union([z.int(), z.bigint()]).nullish(),
  stop: z.union([z.string(), z.array(z.string())]).nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish(), continuous_usage_stats: z.boolean().nullish() }).nullish(),
  temperature: z.number().nullish(),
  top_p: z.number().nullish(),
  tools: z.array(requestTool).nullish(),
  tool_choice: z.union([z.string(), jsonObject]).nullish(),
  reasoning_effort: z.string().nullish(),
  include_reasoning: z.boolean().optional(),
  parallel_tool_calls: z.boolean().nullish(),
  user: z.string().nullish(),
  use_beam_search: z.boolean().optional(),
  top_k: z.int().nullish(),
  min_p: z.number().nullish(),
  repetition_penalty: z.number().nullish(),
  length_penalty: z.number().optional(),
  stop_token_ids: z.array(z.int()).nullish(),
  include_stop_str_in_output: z.boolean().optional(),
  ignore_eos: z.boolean().optional(),
  min_tokens: z.int().optional(),
  skip_special_tokens: z.boolean().optional(),
  spaces_between_special_tokens: z.boolean().optional(),
  truncate_prompt_tokens: z.int().nullish(),
  prompt_logprobs: z.int().nullish(),
  allowed_token_ids: z.array(z.int()).nullish(),
  bad_words: z.array(z.string()).optional(),
  echo: z.boolean().optional(),
  add_generation_prompt: z.boolean().optional(),
  continue_final_message: z.boolean().optional(),
  add_special_tokens: z.boolean().optional(),
  documents: z.array(z.record(z.string(), z.string())).nullish(),
  chat_template: z.string().nullish(),
  chat_template_kwargs: jsonObject.nullish(),
  mm_processor_kwargs: jsonObject.nullish(),
  structured_outputs: jsonObject.nullish(),
  priority: z.int().optional(),
  request_id: z.string().optional(),
  return_tokens_as_token_ids: z.boolean().nullish(),
  return_token_ids: z.boolean().nullish(),
  cache_salt: z.string().nullish(),
  kv_transfer_params: jsonObject.nullish(),
  engine_xargs: z.record(z.string(), jsonValue).nullish(),
  repetition_detection: jsonObject.nullish(),
});
export type ChatCompletionRequest = z.infer<typeof chatCompletionRequest>;
