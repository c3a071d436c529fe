/** First step of a request: from the bytes on the wire to a request whose every field is known, typed and carried out. */
import { z } from "zod";
import { requestTool, type RequestTool } from "../../schema/chat.ts";
import type { ChatMessage } from "../../tokenizer/index.ts";
import { laxBoolean, laxInt64, laxInteger, laxNumber, shown, strictString } from "./coercion.ts";
import { BodyError } from "./errors.ts";
import { memberText } from "./json-members.ts";
import { toTemplateMessage, wireMessage } from "./messages.ts";
import { checkRawBody } from "./raw-checks.ts";
import { judgeRefusedField } from "./refused-fields.ts";

/** The fields this build carries out, as they are on the wire. */
export const CARRIED_FIELDS = {
  messages: z
    .array(wireMessage, {
      error: (issue) => `expected an array of messages, got ${issue.input === undefined ? "nothing" : shown(issue.input)}`,
    })
    .min(1, { error: "expected at least one message, got an empty array" }),
  model: strictString.nullish(),
  logprobs: laxBoolean.nullish(),
  top_logprobs: laxInteger.nullish(),
  max_tokens: laxInteger.nullish(),
  max_completion_tokens: laxInteger.nullish(),
  n: laxInteger.nullish(),
  seed: laxInt64().nullish(),
  stop: z
    .union([z.string(), z.array(z.string())], { error: (issue) => `expected a string or an array of strings, got ${shown(issue.input)}` })
    .nullish(),
  stream: laxBoolean.nullish(),
  stream_options: z.object({ include_usage: laxBoolean.nullish(), continuous_usage_stats: laxBoolean.nullish() }).nullish(),
  temperature: laxNumber.nullish(),
  top_p: laxNumber.nullish(),
  top_k: laxInteger.nullish(),
  tools: z.array(requestTool).nullish(),
  tool_choice: z.union([z.string(), z.record(z.string(), z.unknown())]).nullish(),
  user: strictString.nullish(),
  request_id: strictString.nullish(),
  return_token_ids: laxBoolean.nullish(),
} as const;

const carriedBody = z.object(CARRIED_FIELDS);

/** A request whose fields are typed and consistent; what depends on the model is still unchecked. `null` means the model's default. */
export interface ChatRequest {
  readonly messages: readonly ChatMessage[];
  /** Null for the served default. */
  readonly model: string | null;
  /** What the template is shown; null when there are none. */
  readonly tools: readonly RequestTool[] | null;
  /** Whether tool calls are read out of the text: `tool_choice` auto with at least one tool. */
  readonly shouldParseToolCalls: boolean;
  readonly isStream: boolean;
  readonly usage: "none" | "final" | "continuous";
  readonly maxTokens: number | null;
  /** The field `maxTokens` came from, for messages. */
  readonly maxTokensField: "max_tokens" | "max_completion_tokens";
  readonly temperature: number | null;
  readonly topP: number | null;
  readonly topK: number | null;
  readonly n: number;
  readonly seed: bigint | null;
  readonly stop: readonly string[];
  /** How many alternatives come with each token, -1 for the whole vocabulary; null for no logprobs at all. */
  readonly topLogprobs: number | null;
  readonly returnTokenIds: boolean;
  readonly requestId: string | null;
  /** Top-level names nobody knows: accepted, to be logged. */
  readonly unknownFields: readonly string[];
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

function describeIssues(issues: readonly z.core.$ZodIssue[], prefix: readonly PropertyKey[] = []): string {
  const lines = issues.slice(0, 5).map((issue) => `\`${[...prefix, ...issue.path].map(String).join(".")}\`: ${issue.message}`);
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

/**
 * Reads the body of a chat completion.
 *
 * @param text - The body.
 * @param contentType - The `content-type` header.
 * @throws {@link BodyError} `E_ARGUMENT` for another media type, bad JSON, a wrong type, contradicting fields.
 * @throws UnsupportedError `E_UNSUPPORTED` naming a field whose value this build does not carry out.
 * @throws ArgumentError `E_ARGUMENT` for message content that is not text.
 */
export function parseChatRequest(text: string, contentType: string | undefined): ChatRequest {
  const mediaType = contentType?.split(";", 1)[0]!.trim().toLowerCase();
  if (mediaType !== "application/json")
    throw new BodyError(`Expected the content type application/json, got ${mediaType ? shown(mediaType) : "none"}`);
  const raw = parseBody(text);
  checkRawBody(raw);

  const parsed = carriedBody.safeParse(raw);
  if (!parsed.success) throw new BodyError(describeIssues(parsed.error.issues));
  const unknownFields: string[] = [];
  let refused: Error | undefined;
  for (const name of Object.keys(raw)) {
    if (Object.hasOwn(CARRIED_FIELDS, name)) continue;
    const verdict = judgeRefusedField(name, raw[name]);
    if (verdict.kind === "invalid") throw new BodyError(describeIssues(verdict.issues, [name]));
    if (verdict.kind === "unknown") unknownFields.push(name);
    // A wrong type further down is the graver error: it is reported first.
    if (verdict.kind === "refused") refused ??= verdict.error;
  }
  if (refused !== undefined) throw refused;

  const body = parsed.data;
  const tools = body.tools?.length ? body.tools : null;
  // An explicit null for top_logprobs turns the logprobs off; absence means none besides the sampled token.
  const topLogprobs = body.logprobs === true && body.top_logprobs !== null ? (body.top_logprobs ?? 0) : null;
  return {
    messages: body.messages.map(toTemplateMessage),
    model: body.model ?? null,
    tools,
    shouldParseToolCalls: tools !== null && body.tool_choice !== "none",
    isStream: body.stream === true,
    usage: toStreamUsage(body.stream_options),
    maxTokens: body.max_completion_tokens ?? body.max_tokens ?? null,
    maxTokensField:
      body.max_completion_tokens === null || body.max_completion_tokens === undefined ? "max_tokens" : "max_completion_tokens",
    temperature: body.temperature ?? null,
    topP: body.top_p ?? null,
    topK: body.top_k ?? null,
    n: body.n ?? 1,
    seed: body.seed ?? null,
    stop: typeof body.stop === "string" ? [body.stop] : (body.stop ?? []),
    topLogprobs,
    returnTokenIds: body.return_token_ids === true,
    requestId: body.request_id ?? null,
    unknownFields,
  };
}
