import { chatCompletion, type ChatCompletion } from "../schema/index.ts";
import { parseAnswer } from "./wire.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Checks a completion.
 *
 * What grows with the number of tokens is checked in place and kept as it came, where the schema would leave it as it is:
 * the schema alone takes longer than `JSON.parse`. Everything else, and whatever is out of the ordinary, goes through the schema.
 *
 * @throws ProtocolError `E_PROTOCOL` when it does not fit.
 */
export function parseCompletion(answer: unknown): ChatCompletion {
  if (!isFields(answer) || !Array.isArray(answer["choices"]) || !isIds(answer["prompt_token_ids"])) return parse(answer);
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
  return parseAnswer(chatCompletion, answer, "chat completion");
}

function isOrdinary(choice: unknown): choice is Fields {
  if (!isFields(choice) || !isIds(choice["token_ids"])) return false;
  const logprobs = choice["logprobs"];
  if (logprobs === undefined || logprobs === null) return true;
  return isFields(logprobs) && Array.isArray(logprobs["content"]) && logprobs["content"].every(isEntry);
}

/** An entry of `logprobs.content` to which the schema would add nothing. Alternatives of a token are left to the schema. */
function isEntry(entry: unknown): boolean {
  if (!isFields(entry) || typeof entry["token"] !== "string" || !Number.isFinite(entry["logprob"])) return false;
  return isIds(entry["bytes"]) && Array.isArray(entry["top_logprobs"]) && entry["top_logprobs"].length === 0;
}

/** Absent, null, or an array of integers. */
function isIds(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.every(Number.isSafeInteger));
}

function withoutTokens(choice: unknown): Fields {
  const fields = choice as Fields;
  const logprobs = fields["logprobs"];
  return isFields(logprobs) ? { ...fields, token_ids: null, logprobs: { ...logprobs, content: null } } : { ...fields, token_ids: null };
}

/** As it was, absence included. */
function restore(target: Record<string, unknown>, source: Fields, key: string): void {
  if (key in source) target[key] = source[key];
  else delete target[key];
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
