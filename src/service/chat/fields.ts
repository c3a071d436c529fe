/** The fields this build carries out, as they are on the wire. Those it only knows are in `refused-fields.ts`. */
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
  include_reasoning: laxBoolean.nullish(),
  user: strictString.nullish(),
} as const;

const prompt = {
  add_generation_prompt: laxBoolean.nullish(),
  continue_final_message: laxBoolean.nullish(),
  add_special_tokens: laxBoolean.nullish(),
  documents: z.array(z.record(z.string(), strictString)).nullish(),
  chat_template: strictString.nullish(),
  chat_template_kwargs: record.nullish(),
  truncate_prompt_tokens: laxInt64(-1n).nullish(),
  cache_salt: strictString.nullish(),
  priority: laxInt64().nullish(),
} as const;

const sampling = {
  max_tokens: laxInteger.nullish(),
  max_completion_tokens: laxInteger.nullish(),
  min_tokens: laxInteger.nullish(),
  n: laxInteger.nullish(),
  seed: laxInt64().nullish(),
  temperature: laxNumber.nullish(),
  top_p: laxNumber.nullish(),
  top_k: laxInteger.nullish(),
  min_p: laxNumber.nullish(),
  repetition_penalty: laxNumber.nullish(),
  frequency_penalty: laxNumber.nullish(),
  presence_penalty: laxNumber.nullish(),
  use_beam_search: laxBoolean.nullish(),
  length_penalty: laxNumber.nullish(),
  logit_bias: z.record(z.string(), laxNumber).nullish(),
  allowed_token_ids: z.array(laxInteger).nullish(),
  bad_words: z.array(strictString).nullish(),
} as const;

const stopping = {
  stop: z
    .union([z.string(), z.array(z.string())], { error: (issue) => `expected a string or an array of strings, got ${shown(issue.input)}` })
    .nullish(),
  stop_token_ids: z.array(laxInteger).nullish(),
  include_stop_str_in_output: laxBoolean.nullish(),
  ignore_eos: laxBoolean.nullish(),
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
  echo: laxBoolean.nullish(),
  skip_special_tokens: laxBoolean.nullish(),
  spaces_between_special_tokens: laxBoolean.nullish(),
  return_token_ids: laxBoolean.nullish(),
  return_tokens_as_token_ids: laxBoolean.nullish(),
  request_id: strictString.nullish(),
} as const;

/** Handed to parts that other servers have and this one does not: read with their types, of no effect. */
const passedThrough = {
  mm_processor_kwargs: record.nullish(),
  kv_transfer_params: record.nullish(),
  engine_xargs: z.record(z.string(), z.union([scalar, z.array(scalar)])).nullish(),
} as const;

/** One schema per field that is carried out. */
export const CARRIED_FIELDS = { ...conversation, ...prompt, ...sampling, ...stopping, ...answer, ...passedThrough } as const;

/** A body's fields, typed. */
export const carriedBody = z.object(CARRIED_FIELDS);
export type CarriedBody = z.infer<typeof carriedBody>;

/** Names under which a field is known besides its own. */
export const FIELD_ALIASES: Readonly<Record<string, string>> = { vllm_xargs: "engine_xargs" };

/** What beam search does not look at. */
const IGNORED_BY_BEAM_SEARCH = [
  ...(["seed", "stop", "stop_token_ids", "min_tokens", "logit_bias", "allowed_token_ids", "bad_words", "repetition_detection"] as const),
  ...(["repetition_penalty", "frequency_penalty", "presence_penalty", "temperature", "top_p", "top_k", "min_p"] as const),
];

/** Fields that are set and that nothing here acts on; to be logged. */
export function inertFields(body: CarriedBody): string[] {
  const isFilled = (value: unknown): boolean =>
    value !== null && value !== undefined && (typeof value !== "object" || Object.keys(value).length > 0);
  const names = Object.keys(passedThrough) as (keyof CarriedBody)[];
  if (body.use_beam_search === true) names.push(...IGNORED_BY_BEAM_SEARCH);
  else if (body.length_penalty !== 1) names.push("length_penalty");
  return names.filter((name) => isFilled(body[name]));
}
