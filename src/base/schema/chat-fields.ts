/** Fields of a chat completion request: one table with type, effect, default and limits of each, from which schemas and checks derive. */

import { z } from "zod";
import { requestMessage, requestTool } from "./chat.ts";
import { jsonObject, jsonValue } from "./common.ts";

/** Types of the fields, as a client writes them. The service has a lenient schema for each type. */
const CLIENT_TYPES = {
  boolean: z.boolean(),
  integer: z.int(),
  integers: z.array(z.int()),
  int64: z.int(),
  /** 64-bit integer, also as bigint. */
  seed: z.union([z.int(), z.bigint()]),
  /** 64-bit integer of at least -1. */
  tokenCount: z.int(),
  number: z.number(),
  string: z.string(),
  strings: z.array(z.string()),
  object: jsonObject,
  messages: z.array(requestMessage).min(1),
  tools: z.array(requestTool),
  toolChoice: z.union([z.string(), jsonObject]),
  reasoningEffort: z.string(),
  documents: z.array(z.record(z.string(), z.string())),
  logitBias: z.record(z.string(), z.number()),
  stop: z.union([z.string(), z.array(z.string())]),
  repetitionDetection: jsonObject,
  responseFormat: jsonObject,
  structuredOutputs: jsonObject,
  streamOptions: z.looseObject({
    /** Whether the last chunk has the token counts of the whole answer. @default true if `stream_options` is given */
    include_usage: z.boolean().nullish(),
    /** Whether every chunk has the token counts so far. @default false */
    continuous_usage_stats: z.boolean().nullish(),
  }),
  engineArguments: z.record(z.string(), jsonValue),
};

/** Type of a field. */
export type FieldType = keyof typeof CLIENT_TYPES;

/** Size limits of one value. An absent property means that only the limits of the body apply. String lengths are in UTF-16 code units. */
export interface FieldLimit {
  /** Max length of a string. */
  readonly characters?: number;
  /** Max entries of an array or an object. */
  readonly items?: number;
  /** Max length of each string in an array, or of each key of an object. */
  readonly each?: number;
  /** Max total length of the strings in an array. */
  readonly total?: number;
  /** Max length of the value as JSON text. */
  readonly json?: number;
}

/** Size limits by path; `*` matches every array index. */
export type FieldLimits = Readonly<Record<string, FieldLimit>>;

/** Range of a number. */
export interface NumberRange {
  /** Description for error messages. */
  readonly text: string;
  /** Whether a number is in the range. */
  readonly has: (value: number) => boolean;
  /** Whether errors name the field in `param`. @default false */
  readonly hasParam?: boolean;
}

/** Changes that make the sampling distribution differ from the plain softmax of the weights. */
export const SAMPLING_EFFECTS = ["temperature", "truncated", "biased", "grammar"] as const;
/** Entry of {@link SAMPLING_EFFECTS}. */
export type SamplingEffect = (typeof SAMPLING_EFFECTS)[number];

/** Row of {@link CHAT_FIELDS}. */
export interface ChatField {
  readonly type: FieldType;
  /**
   * Part of a completion that the field changes; `none` for a field without effect on this service. The service combines the fields for
   * prompt, length, grammar, logprobs and stream; every other field with an effect is a member of its `ChatRequest`, in camelCase.
   */
  readonly changes: SamplingEffect | "prompt" | "length" | "choices" | "stopping" | "logprobs" | "answer" | "stream" | "execution" | "none";
  /** Whether a request must have the field. @default false */
  readonly isRequired?: true;
  /** Whether null counts as absent. @default true */
  readonly isNullable?: false;
  /** Value with the effect of an absent field. @default none: the model or other fields determine it */
  readonly default?: unknown;
  /** Default where the model's `generation_config.json` has none. */
  readonly modelDefault?: number;
  /** Whether a value has no {@link SamplingEffect}. @default only the default value has none */
  readonly neutral?: (value: unknown) => boolean;
  /** Range of a number. @default any number */
  readonly range?: NumberRange;
  /** Limits of the whole value. @default only the limits of the body */
  readonly limit?: FieldLimit;
  /** Limits of the value's parts, by path below the field. */
  readonly parts?: FieldLimits;
  /** Whether beam search ignores the field. @default it does not */
  readonly beamSearch?: "ignored";
  /** Other name of the field. */
  readonly alias?: string;
}

const KIB = 1024;
const MIB = 1024 * KIB;

/** Limits of the parts of `messages`. */
const MESSAGE_LIMITS: FieldLimits = {
  "*.role": { characters: 64 },
  "*.content": { characters: 4 * MIB, items: 4096 },
  "*.name": { characters: 1024, json: 64 * KIB },
  "*.tool_calls": { items: 512 },
  "*.tool_calls.*.id": { characters: 1024 },
  "*.tool_calls.*.function.name": { characters: 256 },
  "*.tool_calls.*.function.arguments": { json: MIB },
  "*.tool_call_id": { characters: 1024 },
  "*.reasoning": { characters: 4 * MIB },
  "*.reasoning_content": { characters: 4 * MIB },
  "*.tools": { items: 1024 },
};

/** Limits of the parts of `tools`. */
const TOOL_LIMITS: FieldLimits = {
  "*.function.name": { characters: 256 },
  "*.function.description": { characters: 64 * KIB },
  "*.function.parameters": { json: 256 * KIB },
};

/** Limits of the parts of `structured_outputs`. */
const STRUCTURED_OUTPUT_LIMITS: FieldLimits = {
  json: { json: 256 * KIB },
  regex: { characters: 16 * KIB },
  choice: { items: 16_384, each: 4096, total: 200_000 },
  grammar: { characters: 64 * KIB },
  structural_tag: { characters: 256 * KIB },
  whitespace_pattern: { characters: 256 },
};

const FROM_0: NumberRange = { text: "at least 0", has: (value) => value >= 0, hasParam: true };
const ABOVE_0_TO_1: NumberRange = { text: "above 0 and at most 1", has: (value) => value > 0 && value <= 1, hasParam: true };
const COUNT_OR_ALL: NumberRange = { text: "-1 or more (0 and -1 turn it off)", has: (value) => value >= -1 };
const FROM_0_TO_1: NumberRange = { text: "from 0 to 1", has: (value) => value >= 0 && value <= 1 };
const ABOVE_0: NumberRange = { text: "above 0", has: (value) => value > 0 };
const FROM_MINUS_2_TO_2: NumberRange = { text: "from -2 to 2", has: (value) => value >= -2 && value <= 2 };

const isEmpty = (value: unknown): boolean => typeof value === "object" && value !== null && Object.keys(value).length === 0;
const isText = (value: unknown): boolean => (value as { readonly type?: unknown }).type === "text";
const isUnforced = (value: unknown): boolean => value === "auto" || value === "none";
const isAtLeast1 = (value: unknown): boolean => Number(value) >= 1;
const isAtMost0 = (value: unknown): boolean => Number(value) <= 0;

/** Fields of a chat completion request: the single list from which all others are derived. */
export const CHAT_FIELDS = {
  /** Conversation so far. */
  messages: { type: "messages", changes: "prompt", isRequired: true, limit: { items: 4096 }, parts: MESSAGE_LIMITS },
  /** Model to sample: `entity/project/name`, optionally with `:stepN`, or the identifier of a base model. */
  model: { type: "string", changes: "execution", limit: { characters: 1024 } },
  /** Functions that the model may call. */
  tools: { type: "tools", changes: "prompt", default: [], limit: { items: 1024 }, parts: TOOL_LIMITS },
  /** `none`, `auto`, `required`, or an object that names the function to call. */
  tool_choice: { type: "toolChoice", changes: "grammar", neutral: isUnforced, limit: { json: 1024 } },
  /** Whether an answer may have several tool calls. */
  parallel_tool_calls: { type: "boolean", changes: "answer", default: true },
  /** Amount of reasoning for the chat template: `low`, `medium` or `high`. */
  reasoning_effort: { type: "reasoningEffort", changes: "prompt" },
  /** Whether the answer includes the parsed reasoning. */
  include_reasoning: { type: "boolean", changes: "answer", default: true, isNullable: false },
  /** Identifier of the end user. */
  user: { type: "string", changes: "none", limit: { characters: 1024 } },

  /** Whether the prompt ends with the header of the assistant's turn. */
  add_generation_prompt: { type: "boolean", changes: "prompt", default: true, isNullable: false },
  /** Whether the prompt ends inside the last message, which the model then continues. */
  continue_final_message: { type: "boolean", changes: "prompt", default: false, isNullable: false },
  /** Whether the tokenizer adds its own special tokens to the tokens of the chat template. */
  add_special_tokens: { type: "boolean", changes: "prompt", default: false, isNullable: false },
  /** Documents for the chat template. */
  documents: { type: "documents", changes: "prompt", default: [], limit: { items: 256 }, parts: { "*": { items: 64, each: 256 } } },
  /** Jinja template used instead of the model's. */
  chat_template: { type: "string", changes: "prompt", limit: { characters: 64 * KIB } },
  /** Additional variables of the chat template. */
  chat_template_kwargs: { type: "object", changes: "prompt", default: {}, limit: { items: 256, each: 256, json: 256 * KIB } },
  /** Number of tokens kept from the end of the prompt; -1 for as many as fit. */
  truncate_prompt_tokens: { type: "tokenCount", changes: "length" },
  /** Salt of the prefix cache: requests with different salts share no cached prompt. */
  cache_salt: { type: "string", changes: "execution", limit: { characters: 1024 } },
  /** Scheduling priority; lower values run first. */
  priority: { type: "int64", changes: "execution", default: 0n, isNullable: false },

  /** Max tokens of an output. */
  max_tokens: { type: "integer", changes: "length" },
  /** Max tokens of an output; takes precedence over `max_tokens`. */
  max_completion_tokens: { type: "integer", changes: "length" },
  /** Number of tokens before which no output ends. */
  min_tokens: { type: "integer", changes: "biased", default: 0, isNullable: false, beamSearch: "ignored" },
  /** Number of choices. */
  n: { type: "integer", changes: "choices", default: 1 },
  /** Seed of choice 0; choice `i` has the seed `seed + i`. -1 draws a random one. */
  seed: { type: "seed", changes: "choices", beamSearch: "ignored" },
  /** Divisor of the logits; 0 takes the most likely token. */
  temperature: { type: "number", changes: "temperature", modelDefault: 1, range: FROM_0, beamSearch: "ignored" },
  /** Probability mass of the most likely tokens that are sampled from. */
  top_p: { type: "number", changes: "truncated", modelDefault: 1, neutral: isAtLeast1, range: ABOVE_0_TO_1, beamSearch: "ignored" },
  /** Number of the most likely tokens that are sampled from; 0 and -1 for all. */
  top_k: { type: "integer", changes: "truncated", modelDefault: 0, neutral: isAtMost0, range: COUNT_OR_ALL, beamSearch: "ignored" },
  /** Min probability of a sampled token, relative to the most likely token. */
  min_p: { type: "number", changes: "truncated", modelDefault: 0, range: FROM_0_TO_1, beamSearch: "ignored" },
  /** Divisor of positive logits, and factor of negative ones, of tokens in the prompt or the output. */
  repetition_penalty: { type: "number", changes: "biased", modelDefault: 1, range: ABOVE_0, beamSearch: "ignored" },
  /** Number subtracted from a token's logit for each occurrence in the output. */
  frequency_penalty: { type: "number", changes: "biased", default: 0, range: FROM_MINUS_2_TO_2, beamSearch: "ignored" },
  /** Number subtracted once from the logit of each token in the output. */
  presence_penalty: { type: "number", changes: "biased", default: 0, range: FROM_MINUS_2_TO_2, beamSearch: "ignored" },
  /** Whether beam search finds the most likely outputs, instead of sampling. */
  use_beam_search: { type: "boolean", changes: "choices", default: false, isNullable: false },
  /** Exponent of the length by which beam search divides the log-probability of an output. */
  length_penalty: { type: "number", changes: "choices", default: 1, isNullable: false },
  /** Numbers added to the logits, by token id. */
  logit_bias: { type: "logitBias", changes: "biased", default: {}, limit: { items: 16_384, each: 32 }, beamSearch: "ignored" },
  /** Token ids that may be sampled. */
  allowed_token_ids: { type: "integers", changes: "biased", limit: { items: 300_000 }, beamSearch: "ignored" },
  /** Words that are not sampled. */
  bad_words: {
    type: "strings",
    changes: "biased",
    default: [],
    isNullable: false,
    beamSearch: "ignored",
    limit: { items: 1024, each: 256, total: 16 * KIB },
  },

  /** Strings before which the output ends. */
  stop: {
    type: "stop",
    changes: "stopping",
    default: [],
    beamSearch: "ignored",
    limit: { characters: 4096, items: 256, each: 4096, total: 64 * KIB },
  },
  /** Token ids that end the output. */
  stop_token_ids: { type: "integers", changes: "stopping", default: [], limit: { items: 4096 }, beamSearch: "ignored" },
  /** Whether the text includes the stop string, or the text of the stop token. */
  include_stop_str_in_output: { type: "boolean", changes: "stopping", default: false, isNullable: false },
  /** Whether the model's end tokens are ignored. */
  ignore_eos: { type: "boolean", changes: "stopping", default: false, isNullable: false },
  /** Sizes and count of the repeated patterns that end the output. */
  repetition_detection: { type: "repetitionDetection", changes: "stopping", limit: { json: 1024 }, beamSearch: "ignored" },

  /** Form of the text: `text`, `json_object`, `json_schema` or `structural_tag`. */
  response_format: { type: "responseFormat", changes: "grammar", neutral: isText, limit: { json: 256 * KIB }, beamSearch: "ignored" },
  /** Form of the text: a JSON schema, regular expression, list of choices, grammar or structural tag. */
  structured_outputs: {
    type: "structuredOutputs",
    changes: "grammar",
    neutral: isEmpty,
    beamSearch: "ignored",
    limit: { json: 320 * KIB },
    parts: STRUCTURED_OUTPUT_LIMITS,
  },

  /** Whether the answer is a stream of server-sent events. */
  stream: { type: "boolean", changes: "stream", default: false },
  /** Token counts in a stream. */
  stream_options: { type: "streamOptions", changes: "stream", limit: { json: 1024 } },
  /** Whether the answer includes the log-probabilities of its tokens. */
  logprobs: { type: "boolean", changes: "logprobs", default: false },
  /** Number of alternatives per output token; -1 for the whole vocabulary. */
  top_logprobs: { type: "integer", changes: "logprobs", default: 0 },
  /** Number of alternatives per prompt token; -1 for the whole vocabulary. */
  prompt_logprobs: { type: "integer", changes: "logprobs" },
  /** Whether an answer in the role of the last message begins with its text. */
  echo: { type: "boolean", changes: "answer", default: false, isNullable: false },
  /** Whether the text omits special tokens. */
  skip_special_tokens: { type: "boolean", changes: "answer", default: true, isNullable: false },
  /** Whether special tokens in the text are separated by spaces. */
  spaces_between_special_tokens: { type: "boolean", changes: "none", default: true, isNullable: false },
  /** Whether the answer includes the token ids of prompt and output. */
  return_token_ids: { type: "boolean", changes: "answer", default: false },
  /** Whether log-probabilities name tokens by id, as `token_id:N`. */
  return_tokens_as_token_ids: { type: "boolean", changes: "logprobs", default: false },
  /** Suffix of the answer's `id`. */
  request_id: { type: "string", changes: "answer", isNullable: false, limit: { characters: 256 } },

  /** Options of a multimodal processor. */
  mm_processor_kwargs: { type: "object", changes: "none", default: {}, limit: { json: 64 * KIB } },
  /** Parameters for the transfer of caches between servers. */
  kv_transfer_params: { type: "object", changes: "none", default: {}, limit: { json: 64 * KIB } },
  /** Arguments of other servers' engines. */
  engine_xargs: { type: "engineArguments", changes: "none", default: {}, limit: { json: 64 * KIB }, alias: "vllm_xargs" },
} as const satisfies Readonly<Record<string, ChatField>>;

/** Rows of the table by field name. */
type Rows = typeof CHAT_FIELDS;

/** Name of a field. */
export type FieldName = keyof Rows;

/** Names of the fields whose row has the properties of `Part`. */
export type FieldsWith<Part> = { [Name in FieldName]: Rows[Name] extends Part ? Name : never }[FieldName];

/** Names and rows of the fields, in the order of the table. */
export const FIELD_ROWS = Object.entries(CHAT_FIELDS) as unknown as readonly (readonly [FieldName, ChatField])[];

/** Shape of an object schema with every field, given a schema for each type. */
export type FieldShape<Types extends Readonly<Record<FieldType, z.ZodType>>> = {
  [Name in keyof Rows]: Rows[Name] extends { readonly isRequired: true }
    ? Types[Rows[Name]["type"]]
    : z.ZodOptional<
        Rows[Name] extends { readonly isNullable: false } ? Types[Rows[Name]["type"]] : z.ZodNullable<Types[Rows[Name]["type"]]>
      >;
};

/** Returns the shape of an object schema with every field. */
export function fieldShape<Types extends Readonly<Record<FieldType, z.ZodType>>>(types: Types): FieldShape<Types> {
  const schemas = FIELD_ROWS.map(([name, { type, isRequired, isNullable }]) => {
    const schema = types[type];
    if (isRequired) return [name, schema];
    return [name, isNullable === false ? schema.optional() : schema.nullish()];
  });
  return Object.fromEntries(schemas) as FieldShape<Types>;
}

/** Schema of {@link ChatCompletionRequest}. */
export const chatCompletionRequest = z.looseObject(fieldShape(CLIENT_TYPES));

/**
 * Body of `POST /v1/chat/completions`, as a client writes it. The service parses the same names with the coercions of its wire format
 * (`src/service/chat/request/fields.ts`), which also accepts and logs unknown fields.
 *
 * @interface
 */
export type ChatCompletionRequest = z.infer<typeof chatCompletionRequest>;
