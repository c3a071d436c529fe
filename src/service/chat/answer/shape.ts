/**
 * Conversion of generated choices to a response that is not streamed: as an object (`toCompletion`), or as pieces of its JSON
 * (`completionPieces`). Both contain every field of the wire format, null where there is no value. Streams use the parts of this file, too.
 */
import type { ChatCompletion } from "../../../base/schema/index.ts";
import { splitReasoning } from "../text/reasoning.ts";
import { parseToolCalls, type ParsedText, type ParsedToolCall } from "../text/tool-calls.ts";
import type { GeneratedChoice } from "../generate/generate.ts";
import type { ChatRequest } from "../request/request.ts";
import type { ForcedCalls } from "../text/forced-calls.ts";
import { zip } from "../../../base/util/values.ts";

/** Fields that identify a response, the same in all chunks of a stream. */
export interface ResponseHead {
  readonly id: string;
  /** Unix time, seconds. */
  readonly created: number;
  /** Resolved model name with its step. */
  readonly model: string;
}

/** Options of a response besides the generated choices. */
export interface ShapeOptions {
  readonly head: ResponseHead;
  readonly request: ChatRequest;
  readonly promptIds: Int32Array;
  /** Role of the response's messages. */
  readonly role: string;
  /** Text of the last message that precedes each choice's own text; empty without `echo`. */
  readonly echo: string;
  /** Log-probabilities of the prompt, from `toWirePrompt`. Null, and in streams absent, if not requested. */
  readonly promptLogprobs?: readonly unknown[] | null | undefined;
  /** Parser of a text that consists of tool calls only; null if the request forces no calls. */
  readonly forcedCalls: ForcedCalls | null;
  /** Whether the text begins with reasoning. */
  readonly shouldParseReasoning: boolean;
  /** Names in `chat_template_kwargs` that the chat template does not read. */
  readonly unusedTemplateKwargs: readonly string[];
  /** Whether `usage` reports the number of cached prompt tokens. */
  readonly reportsCachedTokens: boolean;
}

/** Returns the extension member with the names that the template does not read; absent without any. */
export function unusedKwargsMember({ unusedTemplateKwargs: names }: ShapeOptions): { readonly unused_template_kwargs?: readonly string[] } {
  return names.length === 0 ? {} : { unused_template_kwargs: names };
}

/** Token counts of the wire format. */
export interface WireUsage {
  readonly prompt_tokens: number;
  readonly total_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details?: { readonly cached_tokens: number };
}

/** Returns the token counts of a response; the prompt counts once, for any number of choices. */
export function toUsage(promptTokens: number, completionTokens: number): WireUsage {
  return { prompt_tokens: promptTokens, total_tokens: promptTokens + completionTokens, completion_tokens: completionTokens };
}

/** Returns the number of cached prompt tokens; null if no token was cached or the count is not reported. */
export function toPromptDetails(cachedTokens: number, { reportsCachedTokens }: ShapeOptions): { readonly cached_tokens: number } | null {
  return reportsCachedTokens && cachedTokens > 0 ? { cached_tokens: cachedTokens } : null;
}

/** Message of a choice: its text, split into content, reasoning and tool calls if these are parsed. */
export interface ChoiceMessage {
  /** Text besides the tool calls and reasoning; null if there is only one of these. */
  readonly content: string | null;
  /** Reasoning; null for a text without reasoning, or if reasoning is not parsed. */
  readonly reasoning: string | null;
  readonly toolCalls: readonly ParsedToolCall[];
}

/** Parses the text of a choice into a message. */
export function parseMessage(
  { index, text, closedBy }: Pick<GeneratedChoice, "index" | "text" | "closedBy">,
  { request, forcedCalls, shouldParseReasoning }: ShapeOptions,
): ChoiceMessage {
  const { shouldParseToolCalls, parallelToolCalls } = request;
  const { reasoning, content: answer } = shouldParseReasoning ? splitReasoning(text) : { reasoning: "", content: text };
  let parsed: ParsedText;
  if (forcedCalls !== null) parsed = forcedCalls.read(index, answer, closedBy !== null);
  else if (shouldParseToolCalls) parsed = parseToolCalls(answer);
  else parsed = { content: answer, toolCalls: [] };
  const { content, toolCalls } = parsed;
  // Forced calls have empty content; in any other parsed text, empty content is null.
  const isNull = content === "" && forcedCalls === null && (toolCalls.length > 0 || shouldParseReasoning);
  return {
    content: isNull ? null : content,
    reasoning: reasoning === "" ? null : reasoning,
    toolCalls: parallelToolCalls ? toolCalls : toolCalls.slice(0, 1),
  };
}

/**
 * Returns the finish reason of a choice: `tool_calls` if its whole text has tool calls, else the reason for its end. Two kinds of forced
 * calls also keep the reason for the end: calls that were cut short, and the call of a function that the request names.
 *
 * @param choice - The choice, with the reason for its end.
 * @param toolCalls - Tool calls of the whole text.
 * @param forced - Parser of forced calls; null if the request forces none.
 */
export function finishReason(
  { finishReason: reason }: Pick<GeneratedChoice, "finishReason">,
  toolCalls: readonly ParsedToolCall[],
  forced: ForcedCalls | null,
): "stop" | "length" | "repetition" | "tool_calls" {
  const isCutShort = forced !== null && reason !== "stop";
  const isNamedFunction = forced !== null && forced.name !== null;
  return toolCalls.length === 0 || isCutShort || isNamedFunction ? reason : "tool_calls";
}

/** Returns a choice in the wire format. */
function toWireChoice(choice: GeneratedChoice, message: ChoiceMessage, options: ShapeOptions) {
  return {
    index: choice.index,
    message: {
      role: options.role,
      content: options.echo === "" ? message.content : options.echo + (message.content ?? ""),
      refusal: null,
      annotations: null,
      audio: null,
      function_call: null,
      tool_calls: message.toolCalls,
      reasoning: options.request.includeReasoning ? message.reasoning : null,
    },
    finish_reason: finishReason(choice, message.toolCalls, options.forcedCalls),
    stop_reason: choice.stopReason,
    token_ids: options.request.returnTokenIds ? choice.ids : null,
    // Last, because `completionPieces` writes it after all other members.
    logprobs: choice.logprobs === null ? null : { content: choice.logprobs },
  };
}

/** Returns the token counts of all choices together. The cached tokens are those of the first choice, which computes the prompt. */
function usageOf(choices: readonly GeneratedChoice[], options: ShapeOptions) {
  const count = choices.reduce((sum, choice) => sum + choice.ids.length, 0);
  return { ...toUsage(options.promptIds.length, count), prompt_tokens_details: toPromptDetails(choices[0]?.cachedTokens ?? 0, options) };
}

/**
 * Returns a response that is not streamed.
 *
 * @param messages - Shape `[n]`, one per choice.
 */
export function toCompletion(
  choices: readonly GeneratedChoice[],
  messages: readonly ChoiceMessage[],
  options: ShapeOptions,
): ChatCompletion {
  const { head, promptIds, promptLogprobs = null } = options;
  const { id, created, model } = head;
  return {
    id,
    object: "chat.completion",
    created,
    model,
    choices: zip(choices, messages).map(([choice, message]) => toWireChoice(choice, message, options)),
    service_tier: null,
    system_fingerprint: null,
    usage: usageOf(choices, options),
    prompt_logprobs: promptLogprobs,
    prompt_token_ids: options.request.returnTokenIds ? [...promptIds] : null,
    kv_transfer_params: null,
    ...unusedKwargsMember(options),
  } as unknown as ChatCompletion;
}

/** Log-probability entries in one piece of a response; a piece with alternatives takes a few milliseconds to serialize. */
const PIECE_ENTRIES = 256;

/** Returns the JSON of an object or an array without the enclosing braces or brackets. */
function innerJson(value: object): string {
  return JSON.stringify(value).slice(1, -1);
}

/** Yields a JSON array in pieces. */
function* listPieces(entries: readonly unknown[]): Generator<string> {
  yield "[";
  for (let start = 0; start < entries.length; start += PIECE_ENTRIES) {
    const separator = start === 0 ? "" : ",";
    yield separator + innerJson(entries.slice(start, start + PIECE_ENTRIES));
  }
  yield "]";
}

/**
 * Yields the JSON of {@link toCompletion} in pieces, byte for byte: many choices with log-probabilities make a text of hundreds of megabytes.
 *
 * @param messages - Shape `[n]`, one per choice.
 */
export function* completionPieces(
  choices: readonly GeneratedChoice[],
  messages: readonly ChoiceMessage[],
  options: ShapeOptions,
): Generator<string> {
  const { head, promptIds, promptLogprobs = null } = options;
  const { id, created, model } = head;
  yield `{${innerJson({ id, object: "chat.completion", created, model })},"choices":[`;
  for (const [index, [choice, message]] of zip(choices, messages).entries()) {
    const { logprobs, ...otherMembers } = toWireChoice(choice, message, options);
    yield `${index === 0 ? "" : ","}{${innerJson(otherMembers)},"logprobs":`;
    if (logprobs === null) yield "null";
    else {
      yield '{"content":';
      yield* listPieces(logprobs.content);
      yield "}";
    }
    yield "}";
  }
  const usage = usageOf(choices, options);
  yield `],${innerJson({ service_tier: null, system_fingerprint: null, usage })},"prompt_logprobs":`;
  if (promptLogprobs === null) yield "null";
  else yield* listPieces(promptLogprobs);
  const promptTokenIds = options.request.returnTokenIds ? [...promptIds] : null;
  yield `,${innerJson({ prompt_token_ids: promptTokenIds, kv_transfer_params: null, ...unusedKwargsMember(options) })}}`;
}

/**
 * Estimates the number of log-probabilities in a response, of output and prompt. Assumes that each token has as many alternatives as the
 * first one.
 */
export function countLogprobs(choices: readonly GeneratedChoice[]): number {
  let count = 0;
  for (const { logprobs, promptTokens } of choices) {
    count += (logprobs?.length ?? 0) * (1 + (logprobs?.[0]?.top_logprobs.length ?? 0));
    count += (promptTokens?.length ?? 0) * (1 + (promptTokens?.[0]?.top.length ?? 0));
  }
  return count;
}
