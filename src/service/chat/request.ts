/** First step of a request: from the bytes on the wire to a request whose every field is known, typed and carried out. */
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

/** A request whose fields are typed and consistent; what depends on the model is still unchecked. `null` means the model's default. */
export interface ChatRequest extends PromptRequest {
  /** Null for the served default. */
  readonly model: string | null;
  /** Whether tool calls are read out of the text: `tool_choice` auto with at least one tool. */
  readonly shouldParseToolCalls: boolean;
  /** The tool calls that the text is, with `tool_choice` required or the name of a function; null for no such thing. */
  readonly forcedCalls: ForcedCalls | null;
  /** What the text must look like; null for anything. */
  readonly output: OutputRequest | null;
  /** Whether an answer may hold more than one tool call. */
  readonly allowsParallelToolCalls: boolean;
  readonly isStream: boolean;
  readonly usage: "none" | "final" | "continuous";
  readonly maxTokens: number | null;
  /** The field `maxTokens` came from, for messages. */
  readonly maxTokensField: "max_tokens" | "max_completion_tokens";
  readonly temperature: number | null;
  readonly topP: number | null;
  readonly topK: number | null;
  readonly n: number;
  /** Lower goes first. */
  readonly priority: bigint;
  /** Null for sampling. */
  readonly beamSearch: { readonly lengthPenalty: number } | null;
  readonly seed: bigint | null;
  readonly stop: readonly string[];
  readonly stopTokenIds: readonly number[];
  /** Whether what stopped an output stays at its end. */
  readonly includesStop: boolean;
  /** Whether the model's end tokens end nothing. */
  readonly ignoresEos: boolean;
  readonly minTokens: number;
  readonly repetitionDetection: RepetitionDetection | null;
  readonly minP: number | null;
  readonly repetitionPenalty: number | null;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  readonly logitBias: Readonly<Record<string, number>>;
  /** Null for all. */
  readonly allowedTokenIds: readonly number[] | null;
  readonly badWords: readonly string[];
  /** How many tokens to keep of the end of the prompt, -1 for as many as fit; null for all or an error. */
  readonly truncatePromptTokens: number | null;
  /** Requests with different salts share no computed prompt. */
  readonly cacheSalt: string | null;
  readonly skipsSpecialTokens: boolean;
  /** How many alternatives come with each token, -1 for the whole vocabulary; null for no logprobs at all. */
  readonly topLogprobs: number | null;
  /** How many alternatives come with each token of the prompt, -1 for the whole vocabulary; null for no tokens of the prompt. */
  readonly promptLogprobs: number | null;
  /** Whether an answer in the role of the last message begins with its text. */
  readonly isEchoed: boolean;
  readonly returnTokenIds: boolean;
  /** Whether log-probabilities name tokens by their ids; null for the server's default. */
  readonly namesTokensById: boolean | null;
  /** Whether the answer shows the reasoning it was told apart into. */
  readonly includesReasoning: boolean;
  readonly requestId: string | null;
  /** Names nobody knows, at the top level or in messages, tools and stream options: accepted, to be logged. */
  readonly unknownFields: readonly string[];
  /** Known names whose values act on nothing here: accepted, to be logged. */
  readonly inertFields: readonly string[];
}

/** Integers that a double would round; judged on the digits the client wrote. */
const INT64_FIELDS = ["seed", "truncate_prompt_tokens", "priority"] as const;

/**
 * The top-level object of a JSON body, with 64-bit integers kept whole as bigint.
 *
 * @throws {@link BodyError} `E_ARGUMENT` when `text` is not JSON or not an object.
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
    // Only a number beyond 2^53 can have lost digits, so the text is walked for those alone.
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

/** The names in a body that nobody knows. */
function unknownNames(raw: Readonly<Record<string, unknown>>): string[] {
  return Object.keys(raw).filter((name) => !Object.hasOwn(CARRIED_FIELDS, name) && !Object.hasOwn(FIELD_ALIASES, name));
}

/** The body with every alias under its own name; a field given under both keeps its own. */
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

/** A stream has no place for the prompt; an echo brings it along, with as many alternatives as the output has. */
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

/** Body of a chat completion as it came. */
export interface ChatBody {
  readonly bytes: Uint8Array;
  /** The `content-type` header. */
  readonly contentType: string | undefined;
  /** Features of the server that some fields need. */
  readonly needs: FieldNeeds;
}

/** A {@link ChatRequest} as plain data. */
export type ParsedChat = Omit<ChatRequest, "forcedCalls">;

/** Adds what is no plain data. */
export function toChatRequest(parsed: ParsedChat): ChatRequest {
  return { ...parsed, forcedCalls: toForcedCalls(parsed.output) };
}

/**
 * Reads the body of a chat completion.
 *
 * @throws {@link BodyError} `E_ARGUMENT` for another media type, bad JSON, a wrong type, contradicting fields.
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
  // An explicit null for top_logprobs turns the logprobs off; absence means none besides the sampled token.
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
