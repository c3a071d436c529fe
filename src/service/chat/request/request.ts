/**
 * First step of a chat completion: converts a body into a request of known, typed and supported fields. `parseBody` parses the JSON text;
 * `readChat` validates its members.
 */
import type { z } from "zod";
import { ArgumentError } from "../../../base/errors.ts";
import { checkFieldLimits, REQUEST_LIMITS } from "../../http/request-limits.ts";
import { shown } from "../../../base/util/shown.ts";
import { messageOf } from "../../../base/util/values.ts";
import { BodyError } from "./errors.ts";
import { FIELD_NAMES, inertFields, INT64_FIELDS, readChatFields, type ChatFields, type FieldMembers, type FieldNeeds } from "./fields.ts";
import { memberText } from "../text/json-members.ts";
import { toPromptRequest, type PromptRequest } from "./prompt-request.ts";
import { checkRawBody } from "./raw-checks.ts";
import { ForcedCalls } from "../text/forced-calls.ts";
import { toOutputRequest, type OutputRequest } from "./output-request.ts";
import { unknownKeys } from "./unknown-keys.ts";

/**
 * Request with typed and consistent fields, as plain data. Fields that depend on the model are still unchecked; null means the model's
 * default.
 */
export interface ChatRequest extends PromptRequest, FieldMembers {
  /** Whether tool calls are parsed from the text: `tool_choice` is auto and there is at least one tool. */
  readonly shouldParseToolCalls: boolean;
  /** Required form of the text; null for free text. */
  readonly output: OutputRequest | null;
  readonly isStream: boolean;
  readonly usage: "none" | "final" | "continuous";
  readonly maxTokens: number | null;
  /** Name of the field that `maxTokens` was read from, for error messages. */
  readonly maxTokensField: "max_tokens" | "max_completion_tokens";
  /** Number of tokens kept from the end of the prompt, -1 for as many as fit; null if a prompt that is too long is an error. */
  readonly truncatePromptTokens: number | null;
  /** Number of alternatives per output token, -1 for the whole vocabulary; null for no log-probabilities. */
  readonly topLogprobs: number | null;
  /** Number of alternatives per prompt token, -1 for the whole vocabulary; null for no log-probabilities of the prompt. */
  readonly promptLogprobs: number | null;
  /** Whether log-probabilities name tokens by id; null for the service's default. */
  readonly namesTokensById: boolean | null;
  /** Unknown field names, at the top level or in messages, tools and stream options: accepted and logged. */
  readonly unknownFields: readonly string[];
  /** Known fields with values that have no effect here: accepted and logged. */
  readonly inertFields: readonly string[];
}

/**
 * Parses a JSON body into its top-level object, with 64-bit integers kept exact as bigint.
 *
 * @throws {@link BodyError} `E_ARGUMENT` if `text` is not JSON or not an object.
 */
export function parseBody(text: string): Record<string, unknown> {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch (cause) {
    const problem = text.trim() === "" ? "nothing" : messageOf(cause);
    throw new BodyError(`Expected the body to be a JSON object, got ${problem}`, { cause });
  }
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw new BodyError(`Expected the body to be a JSON object, got ${shown(body)}`);
  const fields = body as Record<string, unknown>;
  for (const name of INT64_FIELDS) {
    const value = fields[name];
    // Only an integer beyond 2^53 can have lost digits; the text is scanned for such integers alone.
    if (typeof value !== "number" || !Number.isInteger(value) || Number.isSafeInteger(value)) continue;
    const digits = memberText(text, name)!;
    // A number with a fraction or an exponent, such as 1e30, has the value of its double.
    fields[name] = /^-?\d+$/.test(digits) ? BigInt(digits) : BigInt(value);
  }
  return fields;
}

/** Max issues that an error message lists. */
const MAX_ISSUES = 5;

/** Lists issues for an error message, each with the path of its value. */
function describeIssues(issues: readonly z.core.$ZodIssue[]): string {
  const lines = issues.slice(0, MAX_ISSUES).map((issue) => `\`${issue.path.map(String).join(".")}\`: ${issue.message}`);
  return lines.join("; ") + (issues.length > MAX_ISSUES ? `; and ${issues.length - MAX_ISSUES} more` : "");
}

/** Returns when a stream reports token counts: never, at its end, or in every chunk. Options without `include_usage` include them. */
function toStreamUsage(options: ChatFields["stream_options"]): ChatRequest["usage"] {
  if (!options) return "none";
  const { include_usage: isIncluded = true, continuous_usage_stats: isContinuous } = options;
  if (isIncluded !== true) return "none";
  return isContinuous === true ? "continuous" : "final";
}

/** Aliases of fields, each with the name of its field. */
const ALIASES = [...FIELD_NAMES].filter(([alias, name]) => alias !== name);

/** Returns the body with the value of each alias under the name of its field, too; if a body has both, the value of the field's name wins. */
function withAliasedFields(raw: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const usedAliases = ALIASES.filter(([alias]) => Object.hasOwn(raw, alias));
  if (usedAliases.length === 0) return raw;
  return { ...Object.fromEntries(usedAliases.map(([alias, name]) => [name, raw[alias]])), ...raw };
}

/** Returns the parser of a text that consists of tool calls only, for `tool_choice` required or a named function; null otherwise. */
export function forcedCallsOf({ output }: ChatRequest): ForcedCalls | null {
  if (output?.form.kind === "arguments") return new ForcedCalls(output.form.tool.function.name);
  return output?.form.kind === "calls" ? new ForcedCalls(null) : null;
}

/**
 * Returns the number of alternatives per prompt token, null for none. Streams have no log-probabilities of the prompt; `echo` implies
 * log-probabilities of the prompt, with as many alternatives as the output has.
 */
function toPromptLogprobs(body: ChatFields): number | null {
  if (body.stream === true) return null;
  const logprobsOfEcho = body.echo === true ? (body.top_logprobs ?? 0) : null;
  return body.prompt_logprobs ?? logprobsOfEcho;
}

/** Checks the limits of the fields. @throws {@link BodyError} `E_ARGUMENT` for a field over its limit. */
function checkLimits(members: Readonly<Record<string, unknown>>): void {
  try {
    checkFieldLimits(members, REQUEST_LIMITS.chat.fields);
  } catch (cause) {
    if (!(cause instanceof ArgumentError)) throw cause;
    throw new BodyError(cause.message, { cause });
  }
}

/** Options of {@link readChat}. */
export interface ChatReading {
  /** Server features that some fields need. */
  readonly needs: FieldNeeds;
  /** Whether the body has `messages`; false for a prompt that is given besides the body. @default true */
  readonly hasMessages?: boolean | undefined;
}

/** Rejects a body of another media type than JSON. @throws {@link BodyError} `E_ARGUMENT` */
export function checkMediaType(contentType: string | undefined): void {
  const mediaType = contentType?.replace(/;.*/su, "").trim().toLowerCase();
  if (mediaType !== "application/json")
    throw new BodyError(`Expected the content type application/json, got ${mediaType ? shown(mediaType) : "none"}`);
}

/**
 * Validates the parsed body of a chat completion.
 *
 * @param bodyMembers - Members of the body, from {@link parseBody}.
 * @throws {@link BodyError} `E_ARGUMENT` for a value of a wrong type, a field over its limit, and contradicting fields.
 * @throws ArgumentError `E_ARGUMENT` for message content that is not text.
 */
export function readChat(bodyMembers: Readonly<Record<string, unknown>>, { needs, hasMessages = true }: ChatReading): ChatRequest {
  checkLimits(bodyMembers);
  const raw = withAliasedFields(bodyMembers);
  checkRawBody(raw);

  const read = readChatFields(raw, { hasMessages });
  if ("issues" in read) throw new BodyError(describeIssues(read.issues));

  const { body, members } = read;
  const prompt = toPromptRequest(body);
  const output = toOutputRequest(body);
  // An explicit null for top_logprobs turns log-probabilities off; a missing field means no alternatives to the sampled token.
  const topLogprobs = body.logprobs === true && body.top_logprobs !== null ? (body.top_logprobs ?? 0) : null;
  const combined: Omit<ChatRequest, keyof FieldMembers | keyof PromptRequest> = {
    output,
    shouldParseToolCalls: prompt.tools !== null && (body.tool_choice ?? "auto") === "auto",
    isStream: body.stream === true,
    usage: toStreamUsage(body.stream_options),
    maxTokens: body.max_completion_tokens ?? body.max_tokens ?? null,
    maxTokensField: (body.max_completion_tokens ?? null) === null ? "max_tokens" : "max_completion_tokens",
    truncatePromptTokens: body.truncate_prompt_tokens ?? null,
    topLogprobs,
    promptLogprobs: toPromptLogprobs(body),
    namesTokensById: body.return_tokens_as_token_ids ?? null,
    unknownFields: [...Object.keys(raw).filter((name) => !FIELD_NAMES.has(name)), ...unknownKeys(raw)],
    inertFields: inertFields(body, needs),
  };
  // Spreading so many members into one literal would take 0.1 ms.
  return Object.assign(members, prompt, combined);
}
