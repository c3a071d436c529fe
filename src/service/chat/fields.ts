/** Fields of a request body in the wire format. */
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { requestTool } from "../../schema/chat.ts";
import { laxBoolean, laxInt64, laxInteger, laxNumber, shown, strictString } from "./coercion.ts";
import { wireMessage } from "./messages.ts";

const record = z.record(z.string(), z.unknown());
const scalar = z.union([z.string(), z.number()]);

const conversation = {
  messages: z
    .array(wireMessage, {
      error: (issue) => `expected an array of messages, got ${issue.input === undefined ? "nothing" : shown(issue.input)}`,
    })
    .min(1, { error: "expected at least one message, got an empty array" }),
  model: strictString.nullish(),
  tools: z.array(requestTool).nullish(),
  tool_choice: z.union([z.string(), record]).nullish(),
  parallel_tool_calls: laxBoolean.nullish(),
  reasoning_effort: z.enum(["low", "medium", "high"]).nullish(),
  include_reasoning: laxBoolean.optional(),
  user: strictString.nullish(),
} as const;

const prompt = {
  add_generation_prompt: laxBoolean.optional(),
  continue_final_message: laxBoolean.optional(),
  add_special_tokens: laxBoolean.optional(),
  documents: z.array(z.record(z.string(), strictString)).nullish(),
  chat_template: strictString.nullish(),
  chat_template_kwargs: record.nullish(),
  truncate_prompt_tokens: laxInt64(-1n).nullish(),
  cache_salt: strictString.nullish(),
  priority: laxInt64().optional(),
} as const;

const sampling = {
  max_tokens: laxInteger.nullish(),
  max_completion_tokens: laxInteger.nullish(),
  min_tokens: laxInteger.optional(),
  n: laxInteger.nullish(),
  seed: laxInt64().nullish(),
  temperature: laxNumber.nullish(),
  top_p: laxNumber.nullish(),
  top_k: laxInteger.nullish(),
  min_p: laxNumber.nullish(),
  repetition_penalty: laxNumber.nullish(),
  frequency_penalty: laxNumber.nullish(),
  presence_penalty: laxNumber.nullish(),
  use_beam_search: laxBoolean.optional(),
  length_penalty: laxNumber.optional(),
  logit_bias: z.record(z.string(), laxNumber).nullish(),
  allowed_token_ids: z.array(laxInteger).nullish(),
  bad_words: z.array(strictString).optional(),
} as const;

const stopping = {
  stop: z
    .union([z.string(), z.array(z.string())], { error: (issue) => `expected a string or an array of strings, got ${shown(issue.input)}` })
    .nullish(),
  stop_token_ids: z.array(laxInteger).nullish(),
  include_stop_str_in_output: laxBoolean.optional(),
  ignore_eos: laxBoolean.optional(),
  repetition_detection: z
    .object({ max_pattern_size: laxInteger.nullish(), min_pattern_size: laxInteger.nullish(), min_count: laxInteger.nullish() })
    .nullish(),
} as const;

const answer = {
  stream: laxBoolean.nullish(),
  stream_options: z.object({ include_usage: laxBoolean.nullish(), continuous_usage_stats: laxBoolean.nullish() }).nullish(),
  logprobs: laxBoolean.nullish(),
  top_logprobs: laxInteger.nullish(),
  prompt_logprobs: laxInteger.nullish(),
  echo: laxBoolean.optional(),
  skip_special_tokens: laxBoolean.optional(),
  spaces_between_special_tokens: laxBoolean.optional(),
  return_token_ids: laxBoolean.nullish(),
  return_tokens_as_token_ids: laxBoolean.nullish(),
  request_id: strictString.optional(),
} as const;

const output = {
  response_format: z
    .looseObject({
      type: z.enum(["text", "json_object", "json_schema", "structural_tag"]),
      json_schema: z
        .looseObject({ name: strictString, description: strictString.nullish(), schema: record.nullish(), strict: laxBoolean.nullish() })
        .nullish(),
    })
    .nullish(),
  structured_outputs: z
    .object({
      json: z.union([z.string(), record], { error: (issue) => `expected a string or an object, got ${shown(issue.input)}` }).nullish(),
      regex: strictString.nullish(),
      choice: z.array(strictString).min(1, { error: "expected at least one choice, got an empty array" }).nullish(),
      grammar: strictString.refine((source) => source.trim() !== "", { error: "expected a grammar, got a blank text" }).nullish(),
      json_object: laxBoolean.nullish(),
      structural_tag: strictString.nullish(),
      disable_fallback: laxBoolean.nullish(),
      disable_any_whitespace: laxBoolean.nullish(),
      disable_additional_properties: laxBoolean.nullish(),
      whitespace_pattern: strictString.nullish(),
    })
    .nullish(),
} as const;

/** Fields for components that other servers have and this one does not: their types are checked, and they have no effect. */
const passedThrough = {
  mm_processor_kwargs: record.nullish(),
  kv_transfer_params: record.nullish(),
  engine_xargs: z.record(z.string(), z.union([scalar, z.array(scalar)])).nullish(),
} as const;

/** Schemas of the supported fields. */
export const CARRIED_FIELDS = { ...conversation, ...prompt, ...sampling, ...stopping, ...output, ...answer, ...passedThrough } as const;

/** Schema of a whole body, for the OpenAPI description of the service. Unknown fields are accepted and have no effect. */
export const wireRequest = z.looseObject(CARRIED_FIELDS);

/** Typed fields of a body. */
export type CarriedBody = z.infer<z.ZodObject<typeof CARRIED_FIELDS>>;

const CARRIED = Object.entries<z.ZodType>(CARRIED_FIELDS);

/**
 * Parses the supported fields that a body contains, and `messages`, which is required. Absent fields are skipped, since checking all of
 * them is a considerable part of the cost of a short request.
 *
 * @param raw - Top-level members of the body.
 * @returns The typed fields, or the issues of all fields that fail.
 */
export function readCarried(
  raw: Readonly<Record<string, unknown>>,
): { readonly body: CarriedBody } | { readonly issues: readonly z.core.$ZodIssue[] } {
  const body: Record<string, unknown> = {};
  const issues: z.core.$ZodIssue[] = [];
  for (const [name, schema] of CARRIED) {
    if (!Object.hasOwn(raw, name) && name !== "messages") continue;
    const parsed = schema.safeParse(raw[name]);
    if (parsed.success) body[name] = parsed.data;
    else for (const issue of parsed.error.issues) issues.push({ ...issue, path: [name, ...issue.path] });
  }
  return issues.length > 0 ? { issues } : { body: body as CarriedBody };
}

/** Alternative field names. */
export const FIELD_ALIASES: Readonly<Record<string, string>> = { vllm_xargs: "engine_xargs" };

/** Values equivalent to an absent field, besides null; fields that are not listed have no such value. */
const DEFAULTS: Readonly<Partial<Record<keyof typeof CARRIED_FIELDS, unknown>>> = {
  ...{ tools: [], parallel_tool_calls: true, include_reasoning: true },
  ...{ add_generation_prompt: true, continue_final_message: false, add_special_tokens: false, documents: [], chat_template_kwargs: {} },
  ...{ priority: 0n, min_tokens: 0, n: 1, frequency_penalty: 0, presence_penalty: 0, use_beam_search: false, length_penalty: 1 },
  ...{ logit_bias: {}, bad_words: [], stop: [], stop_token_ids: [], include_stop_str_in_output: false, ignore_eos: false },
  ...{ stream: false, logprobs: false, top_logprobs: 0, echo: false, skip_special_tokens: true, spaces_between_special_tokens: true },
  ...{ return_token_ids: false, return_tokens_as_token_ids: false, mm_processor_kwargs: {}, kv_transfer_params: {}, engine_xargs: {} },
};

/** Whether a value has the same effect as an absent field: clients may send such values for every field they know. */
export function isDefault(name: keyof typeof CARRIED_FIELDS, value: unknown): boolean {
  if (value === undefined || value === null) return true;
  const read = CARRIED_FIELDS[name].safeParse(value);
  return read.success && Object.hasOwn(DEFAULTS, name) && isDeepStrictEqual(read.data, DEFAULTS[name]);
}

/** Fields that beam search ignores. */
const IGNORED_BY_BEAM_SEARCH = [
  ...(["seed", "stop", "stop_token_ids", "min_tokens", "logit_bias", "allowed_token_ids", "bad_words", "repetition_detection"] as const),
  ...(["structured_outputs", "response_format"] as const),
  ...(["repetition_penalty", "frequency_penalty", "presence_penalty", "temperature", "top_p", "top_k", "min_p"] as const),
];

/** Fields that never have an effect here, with any value. */
export const INERT_FIELDS = [...(Object.keys(passedThrough) as (keyof typeof passedThrough)[]), "user"] as const;

/** Server features that some fields need. */
export interface FieldNeeds {
  /** Whether responses have their reasoning parsed. */
  readonly parsesReasoning: boolean;
}

/** Returns the fields that are set and have no effect here, for the log. */
export function inertFields(body: CarriedBody, { parsesReasoning }: FieldNeeds): string[] {
  const isFilled = (value: unknown): boolean =>
    value !== null && value !== undefined && (typeof value !== "object" || Object.keys(value).length > 0);
  const names: (keyof CarriedBody)[] = [...INERT_FIELDS];
  if (body.use_beam_search === true) names.push(...IGNORED_BY_BEAM_SEARCH);
  else if (body.length_penalty !== 1) names.push("length_penalty");
  // Byte-level tokenizers put no space between special tokens that could be omitted.
  if (body.spaces_between_special_tokens === false) names.push("spaces_between_special_tokens");
  if (body.include_reasoning === false && !parsesReasoning) names.push("include_reasoning");
  const inert: string[] = names.filter((name) => isFilled(body[name]));
  // There is only one backend, and therefore no fallback.
  if (body.structured_outputs?.disable_fallback === true) inert.push("structured_outputs.disable_fallback");
  return inert;
}
