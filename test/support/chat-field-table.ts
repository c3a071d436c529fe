/**
 * The tables of `docs/reference/chat-completions.md`, generated from `CHAT_FIELDS`: type, default, range and description of each field, and
 * the notes of this file about behavior that the row of a field does not contain.
 */
import { FIELD_ROWS, type ChatField, type FieldName, type FieldType } from "../../src/base/schema/chat-fields.ts";
import { read } from "../project/files.ts";

/** Types of the fields as the page names them. */
const TYPES: Readonly<Record<FieldType, string>> = {
  boolean: "boolean",
  integer: "integer",
  integers: "array of integers",
  int64: "64-bit integer",
  seed: "64-bit integer",
  tokenCount: "integer",
  number: "number",
  string: "string",
  strings: "array of strings",
  object: "object",
  messages: "array of messages",
  tools: "array of tools",
  toolChoice: "string or object",
  reasoningEffort: "string",
  documents: "array of objects of strings",
  logitBias: "object of numbers",
  stop: "string or array of strings",
  repetitionDetection: "object",
  responseFormat: "object",
  structuredOutputs: "object",
  streamOptions: "object",
  engineArguments: "object of strings, numbers and arrays of them",
};

/** Text about a field that its row in `CHAT_FIELDS` does not contain. */
interface FieldNote {
  /** Sentences after the description. */
  readonly more?: string;
  /** Default that the model, other fields or chance determine. */
  readonly default?: string;
  /** Bound of the value, in addition to its type. */
  readonly bound?: string;
  /** Answer to a value outside the bound. @default `400`, with `param` where the range of the row has it */
  readonly error?: string;
}

const NO_EFFECT = "No effect.";
const MAX_ALTERNATIVES = "−1 to 20 (`limits.chat.maxTopLogprobs`)";

const NOTES: { readonly [Name in FieldName]?: FieldNote } = {
  messages: { more: "See [messages](#messages).", bound: "at least one message; text only", error: "400" },
  model: {
    more: "`:latest` names the newest step. The id of a model takes the same suffixes; a prefix `scheme:///` is ignored.",
    default: "the shipped base model",
    bound: "an existing model",
    error: "404, param `model`",
  },
  tools: { more: "Each has `name`, `description` and `parameters`.", bound: "type `function`, with a name", error: "400" },
  tool_choice: {
    more: "`none` shows the tools to the model and does not parse calls. `auto` parses calls. `required` constrains the text to one or more calls. A function constrains the text to its arguments.",
    default: '`"auto"` with `tools`, else `"none"`',
    bound:
      "except for `none`: `tools`, among them a named function, and a tool parser (`limits.chat.toolParser`). A named function excludes `structured_outputs`",
    error: "400",
  },
  parallel_tool_calls: { more: 'If false, the answer has the first call only, and `"required"` permits one.' },
  reasoning_effort: { more: "No effect if the template does not read it.", bound: "`low`, `medium` or `high`", error: "400" },
  include_reasoning: { more: "No effect without a reasoning parser (`limits.chat.reasoningParser`)." },
  user: { more: NO_EFFECT },
  add_generation_prompt: { more: "If false, the answer has the role of the last message." },
  continue_final_message: { bound: "needs `add_generation_prompt: false`", error: "400" },
  documents: { more: "No effect if the template does not read them." },
  chat_template: { bound: "only if `limits.chat.trustRequestTemplates` is set", error: "400" },
  chat_template_kwargs: {
    more: "Fields of the request take precedence; `chat_template` counts as the field of this name. Variables that the template does not read are listed in `unused_template_kwargs` of the answer (in a stream: of the first chunk), an extension, and are logged once.",
    bound: "as `chat_template`",
    error: "400",
  },
  truncate_prompt_tokens: {
    more: "Room for `max_tokens` is left.",
    bound: "−1, or 1 to the room in the context",
    error: "400, param `truncate_prompt_tokens`",
  },
  cache_salt: { bound: "not empty, at most 1,024 characters", error: "400" },
  priority: {
    more: "Requests of equal priority run in the order of arrival. Orders only the requests of one entity.",
    bound: "only 0 unless `limits.chat.priorityScheduling` is set",
    error: "400, param `priority`",
  },
  max_tokens: {
    default: "room in the context¹",
    bound: "at least 1; prompt and output together fit the context",
    error: "400, param `max_tokens`, or `input_tokens` if the prompt leaves no room",
  },
  max_completion_tokens: {
    default: "room in the context¹",
    bound: "as `max_tokens`",
    error: "400, param `max_completion_tokens`; `max_tokens` if below 1",
  },
  min_tokens: {
    more: "Before it, end tokens and `stop_token_ids` have probability 0, and stop strings are not matched; only the token limit ends the output earlier.",
    bound: "0 to the token limit",
    error: "400",
  },
  n: {
    bound: "1 to 128 (`limits.chat.maxChoices`); 1 at temperature 0; at most 10 with `use_beam_search`",
    error: "400",
  },
  seed: {
    more: "The same request with the same seed on the same checkpoint samples the same tokens.",
    default: "random",
    bound: "signed 64-bit integer, checked on its digits",
    error: "400",
  },
  temperature: { more: "Values between 0 and 0.01 count as 0.01." },
  top_k: { more: "Tokens tied with the last one are kept." },
  use_beam_search: {
    more: "The width of the search is `n`; outputs are sorted by score. The limit, `length_penalty`, `ignore_eos` and `include_stop_str_in_output` (which adds the end token to `token_ids` and `logprobs`) apply. Beam search ignores IGNORED. Each token costs as much as the whole prompt.",
  },
  length_penalty: { more: "The length includes the prompt. No effect without beam search." },
  logit_bias: { more: "Clamped to ±100.", bound: "ids of the vocabulary", error: "400, param `logit_bias`" },
  allowed_token_ids: {
    default: "`null`",
    bound: "at least one id of the vocabulary that `bad_words` and `min_tokens` permit",
    error: "400, param `allowed_token_ids`",
  },
  bad_words: {
    more: "The last token of a word has probability 0 after its other tokens, with and without a space before the word.",
    bound: "none empty",
    error: "400",
  },
  stop: {
    more: "The tokens of the string stay in `token_ids` and `logprobs`.",
    bound: "at most 256 (`limits.chat.maxStopStrings`), none empty or longer than 4,096 UTF-16 units",
    error: "400",
  },
  stop_token_ids: { more: "The text omits the token; `stop_reason` is its id. Ids outside the vocabulary have no effect." },
  ignore_eos: { more: "`stop`, `stop_token_ids` and the token limit end the output." },
  repetition_detection: {
    more: "The output ends when its last tokens are a pattern of `min_pattern_size` to `max_pattern_size` tokens, `min_count` times in a row. `finish_reason` is then `repetition`, `stop_reason` `repetition_detected`. All 0 turns it off.",
    default: "`null`",
    bound: "sizes of at least 0, min at most max; `min_count` at least 2",
    error: "400",
  },
  response_format: {
    more: "`json_object` is any JSON object; `json_schema` is JSON that is valid for `json_schema.schema`, with and without `strict`; `structural_tag` follows `format`. See [structured output](#structured-output).",
    bound: "`json_schema` with `name` and `schema`; no [rejected](#json-schema) keyword",
    error: "400; param `response_format` without `json_schema` or its `schema`",
  },
  structured_outputs: {
    more: "One of `json` (a schema, or its JSON text), `json_object`, `regex`, `choice`, `grammar` and `structural_tag`. `disable_any_whitespace`, `whitespace_pattern` and `disable_additional_properties` set how JSON is written; `disable_fallback` has no effect. See [structured output](#structured-output).",
    bound: "exactly one form, or none with an equal `response_format`; no [rejected](#structured-output) construct",
    error: "400",
  },
  stream: { more: "The last event is `[DONE]`." },
  stream_options: {
    more: "`include_usage` (default true in a given object) adds a last chunk with the token counts, `continuous_usage_stats` (default false) adds the counts so far to every chunk.",
    bound: "only with `stream: true`",
    error: "400, param `stream_options`",
  },
  logprobs: {
    more: "Natural logarithm of the softmax of the raw logits, before the effect of all other fields except structured output; at least −9999.",
  },
  top_logprobs: {
    more: "The sampled token is first, also if it is not among the most likely ones. An explicit null turns log-probabilities off.",
    bound: `${MAX_ALTERNATIVES}, \`logprobs: true\` unless 0`,
    error: "400, param `top_logprobs`, or `logprobs` above the bound",
  },
  prompt_logprobs: {
    more: "`prompt_logprobs` of the answer is a list: null for the first token of the prompt, then an object from token ids to `logprob`, `rank` and `decoded_token`, with the token itself and the alternatives.",
    bound: `${MAX_ALTERNATIVES}, at most 65,536 entries for the whole prompt; in streams 0`,
    error: "400, param `prompt_logprobs`",
  },
  echo: {
    more: "For use with `continue_final_message`. Also adds `prompt_logprobs` with `top_logprobs` alternatives, unless the request sets `prompt_logprobs`.",
  },
  skip_special_tokens: { more: "`token_ids` and `logprobs` include them. The text keeps them if tools may be called." },
  spaces_between_special_tokens: { more: "No effect: no supported tokenizer separates special tokens by spaces." },
  return_token_ids: { more: "`prompt_token_ids` of the answer (in a stream: of the first chunk) and `token_ids` of each choice." },
  return_tokens_as_token_ids: { default: "`false` (`limits.chat.returnTokensAsTokenIds`)" },
  request_id: {
    more: "The `id` is `chatcmpl-` and this text. The header `x-request-id` takes precedence.",
    default: "16 random hexadecimal digits",
  },
  mm_processor_kwargs: { more: "No effect: the models read text only." },
  kv_transfer_params: { more: "No effect: caches are not transferred; null in the answer." },
  engine_xargs: { more: "No effect: the engine has no such arguments." },
};

/** First sentence of each field: the doc comment of its row. */
const DESCRIPTIONS: ReadonlyMap<string, string> = new Map(
  [...read("src/base/schema/chat-fields.ts").matchAll(/^ {2}\/\*\* ([^\n]*) \*\/\n {2}(\w+): \{/gmu)].map(([, text = "", name = ""]) => [
    name,
    text,
  ]),
);

const names = (fields: readonly string[]): string => {
  const quoted = fields.map((name) => `\`${name}\``);
  return `${quoted.slice(0, -1).join(", ")} and ${quoted.at(-1)}`;
};

/** Names of the fields for which null is a wrong type, as on the page. */
export const strictFields = names(
  FIELD_ROWS.filter(([, { isNullable }]) => isNullable === false)
    .map(([name]) => name)
    .toSorted(),
);

const ignoredByBeams = names(FIELD_ROWS.filter(([, { beamSearch }]) => beamSearch === "ignored").map(([name]) => name));

function defaultOf(row: ChatField, note: FieldNote): string {
  if (row.isRequired) return "required";
  if (note.default !== undefined) return note.default;
  if (row.modelDefault !== undefined) return `\`${row.modelDefault}\`¹`;
  if (row.default === undefined) return "`null`";
  return `\`${typeof row.default === "bigint" ? row.default : JSON.stringify(row.default)}\``;
}

function rangeOf(row: ChatField): string {
  return row.range?.text.replace(/ \(.*/u, "").replaceAll("-", "−") ?? "–";
}

/** Row of the table of fields: field, type, default, effect, bound, error. */
function fieldRow(name: FieldName, row: ChatField): string {
  const note = NOTES[name] ?? {};
  const effect = [DESCRIPTIONS.get(name), note.more?.replace("IGNORED", ignoredByBeams)].filter((text) => text !== undefined).join(" ");
  const rangeError = row.range === undefined ? "–" : `400${row.range.hasParam ? `, param \`${name}\`` : ""}`;
  const cells = [`\`${name}\``, TYPES[row.type], defaultOf(row, note), effect, note.bound ?? rangeOf(row), note.error ?? rangeError];
  return `| ${cells.join(" | ")} |`;
}

/** Table of all fields, in the order of `CHAT_FIELDS`. */
export const fieldTable: string = [
  "| field | type | default | effect | bound | error |",
  "|---|---|---|---|---|---|",
  ...FIELD_ROWS.map(([name, row]) => fieldRow(name, row)),
].join("\n");
