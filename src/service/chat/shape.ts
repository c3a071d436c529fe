/** A finished request as one JSON object: every field of the wire is there, null where nothing is to be said. */
import { splitReasoning } from "./reasoning.ts";
import { parseToolCalls, type ParsedToolCall } from "./tool-calls.ts";
import type { GeneratedChoice } from "./generate.ts";
import type { ForcedCalls } from "./structured/forced-calls.ts";

/** What identifies a response, the same in all chunks of a stream. */
export interface ResponseHead {
  readonly id: string;
  /** Unix time, seconds. */
  readonly created: number;
  /** The resolved name with its step. */
  readonly model: string;
}

/** What shapes a response besides what was generated. */
export interface ShapeOptions {
  readonly head: ResponseHead;
  readonly promptIds: Int32Array;
  /** In whose name the answer speaks. */
  readonly role: string;
  /** What each choice begins with besides what it says; often empty. */
  readonly echo: string;
  /** Log-probabilities of the prompt, `toWirePrompt`. Null, and in streams absent, when not asked for. */
  readonly promptLogprobs?: readonly unknown[] | null | undefined;
  readonly shouldParseToolCalls: boolean;
  /** The tool calls that the text is; null where it is none by itself. */
  readonly forcedCalls: ForcedCalls | null;
  /** Whether the text begins with reasoning. */
  readonly shouldParseReasoning: boolean;
  /** Otherwise reasoning is told apart and left out. */
  readonly includesReasoning: boolean;
  readonly returnTokenIds: boolean;
  /** Whether the counts say how much of the prompt did not have to be computed. */
  readonly reportsCachedTokens: boolean;
}

/** Token counts on the wire. */
export interface WireUsage {
  readonly prompt_tokens: number;
  readonly total_tokens: number;
  readonly completion_tokens: number;
}

/** The counts of a prompt and what was generated for it; a prompt counts once, however many choices there are. */
export function toUsage(promptTokens: number, completionTokens: number): WireUsage {
  return { prompt_tokens: promptTokens, total_tokens: promptTokens + completionTokens, completion_tokens: completionTokens };
}

/** How much of a prompt did not have to be computed; null where all of it had, or nobody is told. */
export function toPromptDetails(cachedTokens: number, { reportsCachedTokens }: ShapeOptions): { readonly cached_tokens: number } | null {
  return reportsCachedTokens && cachedTokens > 0 ? { cached_tokens: cachedTokens } : null;
}

/** The message of a choice: what its text says, taken apart where tools are at hand. */
export interface ChoiceMessage {
  /** Null for tool calls, or reasoning, without a word beside them. */
  readonly content: string | null;
  /** Null where there is none, or none is told apart. */
  readonly reasoning: string | null;
  readonly toolCalls: readonly ParsedToolCall[];
}

/** How {@link toMessage} reads. */
export interface MessageOptions {
  readonly shouldParseToolCalls: boolean;
  readonly forcedCalls: ForcedCalls | null;
  readonly shouldParseReasoning: boolean;
  /** Otherwise all tool calls but the first are dropped. */
  readonly allowsParallelToolCalls: boolean;
}

/** Reads a choice's text. */
export function toMessage(
  { index, text }: Pick<GeneratedChoice, "index" | "text">,
  { shouldParseToolCalls, forcedCalls, shouldParseReasoning, allowsParallelToolCalls }: MessageOptions,
): ChoiceMessage {
  const { reasoning, content: said } = shouldParseReasoning ? splitReasoning(text) : { reasoning: "", content: text };
  const { content, toolCalls } =
    forcedCalls?.read(index, said) ?? (shouldParseToolCalls ? parseToolCalls(said) : { content: said, toolCalls: [] });
  return {
    content: content === "" && forcedCalls === null && (toolCalls.length > 0 || shouldParseReasoning) ? null : content,
    reasoning: reasoning === "" ? null : reasoning,
    toolCalls: allowsParallelToolCalls ? toolCalls : toolCalls.slice(0, 1),
  };
}

/** Calls are why an answer ends, but for those that were cut short or are the arguments of a function that the request named. */
function finishReason({ finishReason: reason }: GeneratedChoice, { toolCalls }: ChoiceMessage, forced: ForcedCalls | null): string {
  if (toolCalls.length === 0 || (forced !== null && (forced.name !== null || reason !== "stop"))) return reason;
  return "tool_calls";
}

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
      reasoning: options.includesReasoning ? message.reasoning : null,
    },
    logprobs: choice.logprobs === null ? null : { content: choice.logprobs },
    finish_reason: finishReason(choice, message, options.forcedCalls),
    stop_reason: choice.stopReason,
    token_ids: options.returnTokenIds ? choice.ids : null,
  };
}

/** Entries of log-probabilities in one piece of a response; with their alternatives a piece takes a few milliseconds to write. */
const PIECE_ENTRIES = 256;

/** A JSON array in pieces. */
function* listPieces(entries: readonly unknown[]): Generator<string> {
  yield "[";
  for (let at = 0; at < entries.length; at += PIECE_ENTRIES)
    yield `${at === 0 ? "" : ","}${JSON.stringify(entries.slice(at, at + PIECE_ENTRIES)).slice(1, -1)}`;
  yield "]";
}

/**
 * The response of a request that is not streamed, as JSON in pieces: many choices with log-probabilities make a text of hundreds of
 * megabytes.
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
  yield `${JSON.stringify({ id, object: "chat.completion", created, model }).slice(0, -1)},"choices":[`;
  for (const [index, choice] of choices.entries()) {
    const { logprobs, ...rest } = toWireChoice(choice, messages[index]!, options);
    yield `${index === 0 ? "" : ","}${JSON.stringify(rest).slice(0, -1)},"logprobs":`;
    if (logprobs === null) yield "null}";
    else {
      yield '{"content":';
      yield* listPieces(logprobs.content);
      yield "}}";
    }
  }
  const usage = {
    ...toUsage(
      promptIds.length,
      choices.reduce((sum, choice) => sum + choice.ids.length, 0),
    ),
    prompt_tokens_details: toPromptDetails(choices[0]?.cachedTokens ?? 0, options),
  };
  yield `],${JSON.stringify({ service_tier: null, system_fingerprint: null, usage }).slice(1, -1)},"prompt_logprobs":`;
  if (promptLogprobs === null) yield "null";
  else yield* listPieces(promptLogprobs);
  yield `,${JSON.stringify({ prompt_token_ids: options.returnTokenIds ? [...promptIds] : null, kv_transfer_params: null }).slice(1)}`;
}

/** Log-probabilities in a response, alternatives included. */
export function countLogprobs(choices: readonly GeneratedChoice[]): number {
  return choices.reduce((sum, { logprobs }) => sum + (logprobs?.length ?? 0) * (1 + (logprobs?.[0]?.top_logprobs.length ?? 0)), 0);
}
