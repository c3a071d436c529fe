import { chatCompletion, type ChatCompletion } from "../../base/schema/index.ts";
import { parseResponse } from "./options.ts";
import { isRecord } from "../../base/util/values.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Validates a completion.
 *
 * Arrays with one entry per token are checked in place and kept as received if the schema would not change them, because the schema alone
 * takes longer than `JSON.parse`. The remaining fields, and any unusual input, pass through the schema.
 *
 * @throws ProtocolError `E_PROTOCOL` if the response does not match the schema.
 */
export function parseCompletion(answer: unknown): ChatCompletion {
  if (!isRecord(answer) || !Array.isArray(answer["choices"]) || !isIds(answer["prompt_token_ids"])) return parse(answer);
  const choices: readonly unknown[] = answer["choices"];
  if (!choices.every(isOrdinary)) return parse(answer);
  const completion = parse({ ...answer, prompt_token_ids: null, choices: choices.map(withoutTokens) });
  restore(completion, answer, "prompt_token_ids");
  for (const [index, choice] of completion.choices.entries()) {
    const came = choices[index] as Fields;
    restore(choice, came, "token_ids");
    if (choice.logprobs) restore(choice.logprobs, came["logprobs"] as Fields, "content");
  }
  return completion;
}

function parse(answer: unknown): ChatCompletion {
  return parseResponse(chatCompletion, answer, "chat completion");
}

function isOrdinary(choice: unknown): choice is Fields {
  if (!isRecord(choice) || !isIds(choice["token_ids"])) return false;
  const logprobs = choice["logprobs"];
  if (logprobs === undefined || logprobs === null) return true;
  return isRecord(logprobs) && Array.isArray(logprobs["content"]) && logprobs["content"].every(isEntry);
}

/**
 * Returns whether the schema would leave an entry of `logprobs.content` unchanged. Entries with alternatives (`top_logprobs`) are validated
 * by the schema.
 */
function isEntry(entry: unknown): boolean {
  if (!isRecord(entry) || typeof entry["token"] !== "string" || !Number.isFinite(entry["logprob"])) return false;
  return isIds(entry["bytes"]) && Array.isArray(entry["top_logprobs"]) && entry["top_logprobs"].length === 0;
}

/** Returns whether `value` is absent, null, or an array of integers. */
function isIds(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.every(Number.isSafeInteger));
}

function withoutTokens(choice: unknown): Fields {
  const fields = choice as Fields;
  const logprobs = fields["logprobs"];
  return isRecord(logprobs) ? { ...fields, token_ids: null, logprobs: { ...logprobs, content: null } } : { ...fields, token_ids: null };
}

/** Restores a field of the received object. An absent field is absent again. */
function restore(target: Record<string, unknown>, source: Fields, key: string): void {
  if (key in source) target[key] = source[key];
  else delete target[key];
}
