/** First step of a chat completion: parses the bytes of the body into a request of known, typed and supported fields. */
import type { z } from "zod";
import { ArgumentError } from "../../errors.ts";
import { checkFieldLimits, REQUEST_LIMITS } from "../request-limits.ts";
import { bodyText } from "../requests.ts";
import { shown } from "./coercion.ts";
import { BodyError } from "./errors.ts";
import { CARRIED_FIELDS, FIELD_ALIASES, inertFields, readCarried, type CarriedBody, type FieldNeeds } from "./fields.ts";
import { memberText } from "./json-members.ts";
import { toPromptRequest, type PromptRequest } from "./prompt-request.ts";
import { checkRawBody } from "./raw-checks.ts";
import type { RepetitionDetection } from "./repetition.ts";
import { ForcedCalls } from "./structured/forced-calls.ts";
import { toOutputRequest, type OutputRequest } from "./structured/output-request.ts";
import { unknownKeys } from "./unknown-keys.ts";

/** Request with typed and consistent fields. Fields that depend on the model are still unchecked; null means the model's default. */
export interface ChatRequest extends PromptRequest {
  /** Model name; null for the default model of the service. */
  readonly model: string | null;
  /** Whether tool calls are parsed from the text: `tool_choice` is auto and there is at least one tool. */
  readonly shouldParseToolCalls: boolean;
  /** Parser of a text that consists of tool calls only, for `tool_choice` required or a named function; null otherwise. */
  readonly forcedCalls: ForcedCalls | null;
  /** Required form of the text; null for free text. */
  readonly output: OutputRequest | null;
  /** Whether a response may contain more than one tool call. */
  readonly allowsParallelToolCalls: boolean;
  readonly isStream: boolean;
  readonly usage: "none" | "final" | "continuous";
  readonly maxTokens: number | null;
  /** Name of the field that `maxTokens` was read from, for error messages. */
  readonly maxTokensField: "max_tokens" | "max_completion_tokens";
  readonly temperature: number | null;
  readonly topP: number | null;
  readonly topK: number | null;
  readonly n: number;
  /** Scheduling priority; lower values run first. */
  readonly priority: bigint;
  /** Beam search parameters; null for sampling. */
  readonly beamSearch: { readonly lengthPenalty: number } | null;
  readonly seed: bigint | null;
  readonly stop: readonly string[];
  readonly stopTokenIds: readonly number[];
  /** Whether the stop string, or the text of the stop token, stays at the end of the output. */
  readonly includesStop: boolean;
  /** Whether the model's end tokens are ignored. */
  readonly ignoresEos: boolean;
  readonly minTokens: number;
  readonly repetitionDetection: RepetitionDetection | null;
  readonly minP: number | null;
  readonly repetitionPenalty: number | null;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  readonly logitBias: Readonly<Record<string, number>>;
  /** Ids that may be sampled; null for all. */
  readonly allowedTokenIds: readonly number[] | null;
  readonly badWords: readonly string[];
  /** Number of tokens kept from the end of the prompt, -1 for as many as fit; null if a prompt that is too long is an error. */
  readonly truncatePromptTokens: number | null;
  /** Salt of the prefix cache: requests with different salts share no cached prompt. */
  readonly cacheSalt: string | null;
  readonly skipsSpecialTokens: boolean;
  /** Number of alternatives per output token, -1 for the whole vocabulary; null for no log-probabilities. */
  readonly topLogprobs: number | null;
  /** Number of alternatives per prompt token, -1 for the whole vocabulary; null for no log-probabilities of the prompt. */
  readonly promptLogprobs: number | null;
  /** Whether a response in the role of the last message begins with the text of that message. */
  readonly isEchoed: boolean;
  readonly returnTokenIds: boolean;
  /** Whether log-probabilities name tokens by id; null for the service's default. */
  readonly namesTokensById: boolean | null;
  /** Whether the response includes the parsed reasoning. */
  readonly includesReasoning: boolean;
  readonly requestId: string | null;
  /** Unknown field names, at the top level or in messages, tools and stream options: accepted and logged. */
  readonly unknownFields: readonly string[];
  /** Known fields with values that have no effect here: accepted and logged. */
  readonly inertFields: readonly string[];
}

/** Fields with integers that a double may round; they are parsed from the digits in the body. */
const INT64_FIELDS = ["seed", "truncate_prompt_tokens", "priority"] as const;

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
    const problem = text.trim() === "" ? "nothing" : cause instanceof Error ? cause.message : "something else";
    throw new BodyError(`Expected the body to be a JSON object, got ${problem}`, { cause });
  }
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw new BodyError(`Expected the body to be a JSON object, got ${shown(body)}`);
  const fields = body as Record<string, unknown>;
  for (const name of INT64_FIELDS) {
    const value = fields[name];
    // Only an integer beyond 2^53 can have lost digits; the text is scanned for such integers alone.
    if (typeof value !== "number" || !Number.isInteger(value) || Number.isSafeInteger(value)) continue;
    const literal = memberText(text, name)!;
    fields[name] = /^-?\d+$/.test(literal) ? BigInt(literal) : BigInt(value);
  }
  return fields;
}

function describeIssues(issues: readonly z.core.$ZodIssue[]): string {
  const lines = issues.slice(0, 5).map((issue) => `\`${issue.path.map(String).join(".")}\`: ${issue.message}`);
  return lines.join("; ") + (issues.length > 5 ? `; and ${issues.length - 5} more` : "");
}

function toStreamUsage(
  options: { include_usage?: boolean | null | undefined; continuous_usage_stats?: boolean | null | undefined } | null | undefined,
): ChatRequest["usage"] {
  if (!options) return "none";
  const isIncluded = options.include_usage === undefined ? true : options.include_usage === true;
  if (!isIncluded) return "none";
  return options.continuous_usage_stats === true ? "continuous" : "final";
}

/** Returns the unknown top-level field names of a body. */
function unknownNames(raw: Readonly<Record<string, unknown>>): string[] {
  return Object.keys(raw).filter((name) => !Object.hasOwn(CARRIED_FIELDS, name) && !Object.hasOwn(FIELD_ALIASES, name));
}

/** Returns the body with every alias renamed to its field; if both are given, the field's own value wins. */
function withoutAliases(raw: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const given = Object.keys(FIELD_ALIASES).filter((alias) => Object.hasOwn(raw, alias));
  if (given.length === 0) return raw;
  return { ...Object.fromEntries(given.map((alias) => [FIELD_ALIASES[alias]!, raw[alias]])), ...raw };
}

function toRepetitionDetection(given: CarriedBody["repetition_detection"]): RepetitionDetection | null {
  if (!given) return null;
  const { max_pattern_size: max, min_pattern_size: min, min_count: count } = given;
  return { maxPatternSize: max ?? 0, minPatternSize: min ?? 0, minCount: count ?? 0 };
}

function toForcedCalls(output: OutputRequest | null): ForcedCalls | null {
  if (output?.form.kind === "arguments") return new ForcedCalls(output.form.tool.function.name);
  return output?.form.kind === "calls" ? new ForcedCalls(null) : null;
}

/**
 * Returns the number of alternatives per prompt token, null for none. Streams have no log-probabilities of the prompt; `echo` implies
 * log-probabilities of the prompt, with as many alternatives as the output has.
 */
function toPromptLogprobs(body: CarriedBody): number | null {
  if (body.stream === true) return null;
  return body.prompt_logprobs ?? (body.echo === true ? (body.top_logprobs ?? 0) : null);
}

function checkLimits(given: Record<string, unknown>): void {
  try {
    checkFieldLimits(given, REQUEST_LIMITS.chat.fields);
  } catch (cause) {
    if (!(cause instanceof ArgumentError)) throw cause;
    throw new BodyError(cause.message, { cause });
  }
}

/** Unparsed body of a chat completion. */
export interface ChatBody {
  readonly bytes: Uint8Array;
  /** Value of the `content-type` header. */
  readonly contentType: string | undefined;
  /** Server features that some fields need. */
  readonly needs: FieldNeeds;
}

/** {@link ChatRequest} as plain data, which can be passed between threads. */
export type ParsedChat = Omit<ChatRequest, "forcedCalls">;

/** Adds to a parsed request the members that are not plain data. */
export function toChatRequest(parsed: ParsedChat): ChatRequest {
  return { ...parsed, forcedCalls: toForcedCalls(parsed.output) };
}

/**
 * Parses the body of a chat completion.
 *
 * @throws {@link BodyError} `E_ARGUMENT` for another media type, invalid JSON, a wrong type, contradicting fields.
 * @throws ArgumentError `E_ARGUMENT` for a field over its limit, and for message content that is not text.
 */
export function readChat({ bytes, contentType, needs }: ChatBody): ParsedChat {
  const mediaType = contentType?.split(";", 1)[0]!.trim().toLowerCase();
  if (mediaType !== "application/json")
    throw new BodyError(`Expected the content type application/json, got ${mediaType ? shown(mediaType) : "none"}`);
  const given = parseBody(bodyText("chat", bytes));
  checkLimits(given);
  const raw = withoutAliases(given);
  checkRawBody(raw);

  const read = readCarried(raw);
  if ("issues" in read) throw new BodyError(describeIssues(read.issues));

  const { body } = read;
  const prompt = toPromptRequest(body);
  const output = toOutputRequest(body);
  // An explicit null for top_logprobs turns log-probabilities off; a missing field means no alternatives to the sampled token.
  const topLogprobs = body.logprobs === true && body.top_logprobs !== null ? (body.top_logprobs ?? 0) : null;
  return {
    ...prompt,
    model: body.model ?? null,
    output,
    shouldParseToolCalls: prompt.tools !== null && (body.tool_choice ?? "auto") === "auto",
    allowsParallelToolCalls: body.parallel_tool_calls ?? true,
    isStream: body.stream === true,
    usage: toStreamUsage(body.stream_options),
    maxTokens: body.max_completion_tokens ?? body.max_tokens ?? null,
    maxTokensField:
      body.max_completion_tokens === null || body.max_completion_tokens === undefined ? "max_tokens" : "max_completion_tokens",
    minTokens: body.min_tokens ?? 0,
    temperature: body.temperature ?? null,
    topP: body.top_p ?? null,
    topK: body.top_k ?? null,
    minP: body.min_p ?? null,
    repetitionPenalty: body.repetition_penalty ?? null,
    frequencyPenalty: body.frequency_penalty ?? 0,
    presencePenalty: body.presence_penalty ?? 0,
    logitBias: body.logit_bias ?? {},
    allowedTokenIds: body.allowed_token_ids ?? null,
    badWords: body.bad_words ?? [],
    n: body.n ?? 1,
    priority: body.priority ?? 0n,
    beamSearch: body.use_beam_search === true ? { lengthPenalty: body.length_penalty ?? 1 } : null,
    seed: body.seed ?? null,
    stop: typeof body.stop === "string" ? [body.stop] : (body.stop ?? []),
    stopTokenIds: body.stop_token_ids ?? [],
    includesStop: body.include_stop_str_in_output === true,
    ignoresEos: body.ignore_eos === true,
    repetitionDetection: toRepetitionDetection(body.repetition_detection),
    truncatePromptTokens:
      body.truncate_prompt_tokens === null || body.truncate_prompt_tokens === undefined ? null : Number(body.truncate_prompt_tokens),
    cacheSalt: body.cache_salt ?? null,
    topLogprobs,
    promptLogprobs: toPromptLogprobs(body),
    isEchoed: body.echo === true,
    skipsSpecialTokens: body.skip_special_tokens ?? true,
    returnTokenIds: body.return_token_ids === true,
    namesTokensById: body.return_tokens_as_token_ids ?? null,
    includesReasoning: body.include_reasoning ?? true,
    requestId: body.request_id ?? null,
    unknownFields: [...unknownNames(raw), ...unknownKeys(raw)],
    inertFields: inertFields(body, needs),
  };
}
