/** Fast validation of chat completions with long arrays of token ids and log-probabilities. */
import { chatCompletion, type ChatCompletion } from "../../base/schema/index.ts";
import { parseResponse } from "./options.ts";
import { isRecord } from "../../base/util/values.ts";

/** Received JSON object. */
type Fields = Readonly<Record<string, unknown>>;

/**
 * Validates a completion.
 *
 * The arrays with one entry per token (token ids and log-probabilities) bypass the schema, which would take longer than `JSON.parse`: plain
 * loops check them, and they are kept as received. All other fields pass through the schema, and so does a whole completion with an array
 * that the schema would change or reject.
 *
 * @throws ProtocolError `E_PROTOCOL` if the response does not match the schema.
 */
export function parseCompletion(answer: unknown): ChatCompletion {
  if (!isRecord(answer) || !Array.isArray(answer["choices"]) || !isIntegersOrAbsent(answer["prompt_token_ids"])) return parseWhole(answer);
  const choices: readonly unknown[] = answer["choices"];
  if (!choices.every(hasPlainTokens)) return parseWhole(answer);
  const completion = parseWhole({ ...answer, prompt_token_ids: null, choices: choices.map(withoutTokens) });
  restore(completion, answer, "prompt_token_ids");
  for (const [index, choice] of completion.choices.entries()) {
    const received = choices[index] as Fields;
    restore(choice, received, "token_ids");
    if (choice.logprobs) restore(choice.logprobs, received["logprobs"] as Fields, "content");
  }
  return completion;
}

/** Validates a completion by the schema alone. */
function parseWhole(answer: unknown): ChatCompletion {
  return parseResponse(chatCompletion, answer, "chat completion");
}

/** Whether the schema would leave the token ids and log-probabilities of a choice unchanged. */
function hasPlainTokens(choice: unknown): choice is Fields {
  if (!isRecord(choice) || !isIntegersOrAbsent(choice["token_ids"])) return false;
  const logprobs = choice["logprobs"];
  if (logprobs === undefined || logprobs === null) return true;
  return isRecord(logprobs) && Array.isArray(logprobs["content"]) && logprobs["content"].every(isPlainEntry);
}

/** Whether the schema would leave an entry of `logprobs.content` unchanged; false for one with alternatives (`top_logprobs`). */
function isPlainEntry(entry: unknown): boolean {
  if (!isRecord(entry) || typeof entry["token"] !== "string" || !Number.isFinite(entry["logprob"])) return false;
  return isIntegersOrAbsent(entry["bytes"]) && Array.isArray(entry["top_logprobs"]) && entry["top_logprobs"].length === 0;
}

/** Whether `value` is absent, null, or an array of integers. */
function isIntegersOrAbsent(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.every(Number.isSafeInteger));
}

/** Returns a choice with null in place of the arrays that {@link restore} adds again. */
function withoutTokens(choice: unknown): Fields {
  const fields = choice as Fields;
  const logprobs = fields["logprobs"];
  return isRecord(logprobs) ? { ...fields, token_ids: null, logprobs: { ...logprobs, content: null } } : { ...fields, token_ids: null };
}

/** Copies a field of the received object `source`; a field that it lacks is removed from `target`. */
function restore(target: Record<string, unknown>, source: Fields, key: string): void {
  if (key in source) target[key] = source[key];
  else delete target[key];
}
