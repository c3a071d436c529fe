/**
 * Admission of a chat request: the limits of the route (`ChatLimits`), checks that need no model, and the sampling parameters, which are
 * checked against the bounds of the model (`resolveSampling`).
 */
import { randomBytes } from "node:crypto";
import type { BaseModelInfo, SamplingParams } from "../../../engine/port.ts";
import { ArgumentError } from "../../../base/errors.ts";
import type { ChatTokenizer } from "../../../text/tokenizer/index.ts";
import type { GenerationDefaults } from "../../models/generation-defaults.ts";
import { resolveMaxTokens } from "../prompt/length.ts";
import { checkRepetitionDetection } from "./repetition.ts";
import type { ChatRequest } from "../request/request.ts";
import { checkRanges, resolveRules } from "./sampling-rules.ts";

/** Bounds of the chat route. */
export interface ChatLimits {
  /**
   * Maximum number of choices generated concurrently, over all requests. A request beyond the limit is answered 429, unless its entity has
   * less than its equal part. @default 2048
   */
  readonly maxRunningChoices?: number | undefined;
  /** Maximum `n` of a request. @default 128 */
  readonly maxChoices?: number | undefined;
  /** Maximum `top_logprobs`; the engine's own maximum applies too. @default 20 */
  readonly maxTopLogprobs?: number | undefined;
  /** Maximum number of stop strings per request; each is searched for after each token. @default 256 */
  readonly maxStopStrings?: number | undefined;
  /** Memory for sampled ids per API key, in bytes, of the 32 keys that sampled last. @default 32 MiB */
  readonly splicingBytesPerKey?: number | undefined;
  /** Whether a request may contain its own chat template, which runs under the same limits as a model's template. @default false */
  readonly trustRequestTemplates?: boolean | undefined;
  /** Whether a request may set its `priority` among the requests of its entity when not all can run at once. @default false */
  readonly priorityScheduling?: boolean | undefined;
  /**
   * Format of tool calls in the generated text: `hermes`, as `<tool_call>{"name": …, "arguments": …}</tool_call>`, or `none`, which rejects
   * every request that allows tool calls. @default "hermes"
   */
  readonly toolParser?: "hermes" | "none" | undefined;
  /**
   * Format of reasoning in the generated text: `think`, which ends reasoning with `</think>`, or `none`, which leaves the text unparsed.
   * @default "none"
   */
  readonly reasoningParser?: "think" | "none" | undefined;
  /** Whether every stream ends with its token counts, even if the request does not ask for them. @default false */
  readonly alwaysStreamUsage?: boolean | undefined;
  /** Value of `return_tokens_as_token_ids` for requests that leave the field out. @default false */
  readonly returnTokensAsTokenIds?: boolean | undefined;
  /** Whether `usage` reports the number of prompt tokens that were cached. @default false */
  readonly reportCachedTokens?: boolean | undefined;
}

/** {@link ChatLimits} with a value for each limit. */
export type ResolvedChatLimits = { readonly [Name in keyof ChatLimits]-?: NonNullable<ChatLimits[Name]> };

/** Returns the limits with the defaults of absent ones. */
export function resolveLimits(limits: ChatLimits = {}): ResolvedChatLimits {
  return {
    maxRunningChoices: limits.maxRunningChoices ?? 2048,
    maxChoices: limits.maxChoices ?? 128,
    maxTopLogprobs: limits.maxTopLogprobs ?? 20,
    maxStopStrings: limits.maxStopStrings ?? 256,
    splicingBytesPerKey: limits.splicingBytesPerKey ?? 32 * 2 ** 20,
    trustRequestTemplates: limits.trustRequestTemplates ?? false,
    priorityScheduling: limits.priorityScheduling ?? false,
    toolParser: limits.toolParser ?? "hermes",
    reasoningParser: limits.reasoningParser ?? "none",
    alwaysStreamUsage: limits.alwaysStreamUsage ?? false,
    returnTokensAsTokenIds: limits.returnTokensAsTokenIds ?? false,
    reportCachedTokens: limits.reportCachedTokens ?? false,
  };
}

/** Maximum number of prompt log-probabilities in one response, alternatives included. */
const MAX_PROMPT_LOGPROBS = 65_536;

/** Minimum temperature above 0. Smaller ones, which are greedy except for rounding errors, are raised to it. */
const MIN_SAMPLED_TEMPERATURE = 0.01;

/** Value of `seed` that means "no seed". */
const UNSEEDED = -1n;

/** Returns the error for a value out of its range. `param` is the field that the error names; null for none. */
function rangeError(field: string, range: string, value: number | string, param: string | null = field): ArgumentError {
  return new ArgumentError(`Expected \`${field}\` to be ${range}, got ${value}`, { param });
}

/**
 * Checks the fields that need no model and that the type check does not cover.
 *
 * @throws ArgumentError `E_ARGUMENT` for `n`, `stop`, `repetition_detection` or `priority` out of bounds.
 */
export function checkRequestCounts(request: ChatRequest, limits: ResolvedChatLimits): void {
  if (request.n < 1 || request.n > limits.maxChoices) throw rangeError("n", `from 1 to ${limits.maxChoices}`, request.n, null);
  if (request.stop.length > limits.maxStopStrings)
    throw rangeError("stop", `at most ${limits.maxStopStrings} strings`, request.stop.length, null);
  if (request.stop.includes("")) throw rangeError("stop", "free of empty strings", '""', null);
  checkRepetitionDetection(request.repetitionDetection);
  if (request.priority !== 0n && !limits.priorityScheduling) {
    throw new ArgumentError(
      `Got \`priority\` ${request.priority}, but this service serves requests in the order of their arrival; send 0, or start it with limits.chat.priorityScheduling`,
      { param: "priority" },
    );
  }
}

/**
 * Checks that a request contains no chat template unless the service trusts templates of requests.
 *
 * @throws ArgumentError `E_ARGUMENT`.
 */
export function checkTemplate({ template }: ChatRequest, limits: ResolvedChatLimits): void {
  if (template === null || limits.trustRequestTemplates) return;
  throw new ArgumentError(
    "`chat_template` is passed with the request, but this service does not trust templates of requests; leave it out, or start the service with limits.chat.trustRequestTemplates",
  );
}

/**
 * Checks that a request allows no tool calls if the service has no tool parser.
 *
 * @throws ArgumentError `E_ARGUMENT`.
 */
export function checkToolParser({ shouldParseToolCalls, output }: ChatRequest, limits: ResolvedChatLimits): void {
  const isForced = output?.form.kind === "calls" || output?.form.kind === "arguments";
  if ((!shouldParseToolCalls && !isForced) || limits.toolParser !== "none") return;
  throw new ArgumentError(
    '`tool_choice` (auto where there are `tools`, required, or a function) needs a tool parser, which this service was started without; send tool_choice: "none", or start it with another limits.chat.toolParser',
  );
}

/** Context of {@link resolveSampling}. */
export interface SamplingContext {
  readonly base: BaseModelInfo;
  readonly tokenizer: ChatTokenizer;
  readonly promptTokens: number;
  readonly defaults: GenerationDefaults;
  /** Maximum `top_logprobs` that the engine supports. */
  readonly engineTopLogprobs: number;
  /** Max output tokens, in addition to the limits of request, model and context. @default no further limit */
  readonly maxOutputTokens?: number | undefined;
}

/**
 * Returns the sampling parameters of choice 0; choice `i` differs only in its seed, see {@link choiceSeed}.
 *
 * @throws ArgumentError `E_ARGUMENT` for a prompt that is too long, or a number out of its range.
 */
export function resolveSampling(request: ChatRequest, limits: ResolvedChatLimits, context: SamplingContext): SamplingParams {
  const { base, defaults } = context;
  const maxTokens = Math.min(
    resolveMaxTokens(request, context.promptTokens, base.contextLength, defaults),
    context.maxOutputTokens ?? Infinity,
  );
  checkRanges(request);
  const temperature = request.temperature ?? defaults.temperature;
  const topP = request.topP ?? defaults.topP;
  const topK = request.topK ?? defaults.topK;
  const isGreedy = temperature === 0;
  if (isGreedy && request.n > 1 && !request.useBeamSearch)
    throw new ArgumentError("`n` must be 1 when using greedy sampling (temperature 0): every choice would be the same");
  const { topLogprobs, promptLogprobs } = resolveAlternatives(request, limits, context);
  const rules = resolveRules(request, { tokenizer: context.tokenizer, vocabularySize: base.vocabularySize, defaults, maxTokens });
  const eosTokenIds = request.ignoreEos ? [] : context.tokenizer.eosTokenIds;
  return {
    ...rules,
    maxTokens,
    temperature: isGreedy ? 0 : Math.max(temperature, MIN_SAMPLED_TEMPERATURE),
    topP: isGreedy ? 1 : topP,
    topK: isGreedy || topK < 1 || topK >= base.vocabularySize ? 0 : topK,
    seed: request.seed === null || request.seed === UNSEEDED ? randomBytes(8).readBigInt64LE() : request.seed,
    stopTokenIds: [...new Set([...eosTokenIds, ...request.stopTokenIds])],
    topLogprobs,
    ...(promptLogprobs === null ? {} : { promptLogprobs }),
    ...(request.priority === 0n ? {} : { priority: request.priority }),
  };
}

/**
 * Returns the numbers of alternatives per token of the output, and per token of the prompt; null without log-probabilities of the prompt.
 *
 * @throws ArgumentError `E_ARGUMENT` for more alternatives than service or engine permit, and for too many log-probabilities of the prompt.
 */
function resolveAlternatives(
  request: ChatRequest,
  limits: ResolvedChatLimits,
  { base, promptTokens, engineTopLogprobs }: SamplingContext,
): { readonly topLogprobs: number; readonly promptLogprobs: number | null } {
  const maxCount = Math.min(limits.maxTopLogprobs, engineTopLogprobs);
  const checkedCount = (field: string, requested: number, param: string): number => {
    const count = requested === -1 ? base.vocabularySize : requested;
    if (count <= maxCount) return count;
    throw rangeError(field, `at most ${maxCount}`, requested === -1 ? `-1, which means all ${count}` : count, param);
  };
  const topLogprobs = checkedCount("top_logprobs", request.topLogprobs ?? 0, "logprobs");
  if (request.useBeamSearch && 2 * request.n > maxCount) {
    throw new ArgumentError(
      `Expected \`n\` to be at most ${Math.floor(maxCount / 2)} with \`use_beam_search\`, which compares twice as many tokens, got ${request.n}`,
      { param: "logprobs" },
    );
  }
  if (request.promptLogprobs === null) return { topLogprobs, promptLogprobs: null };
  const promptLogprobs = checkedCount("prompt_logprobs", request.promptLogprobs, "prompt_logprobs");
  const entries = promptLogprobs === 0 ? 0 : promptTokens * (promptLogprobs + 1);
  if (entries > MAX_PROMPT_LOGPROBS) {
    const maxAlternatives = Math.max(0, Math.floor(MAX_PROMPT_LOGPROBS / promptTokens) - 1);
    throw rangeError(
      "prompt_logprobs",
      `at most ${maxAlternatives} with a prompt of ${promptTokens} tokens (${MAX_PROMPT_LOGPROBS} entries in all)`,
      promptLogprobs,
    );
  }
  return { topLogprobs, promptLogprobs };
}

/** Returns the seed of one choice: the request's seed plus the choice's index, wrapped to a signed 64-bit integer. */
export function choiceSeed(seed: bigint, index: number): bigint {
  return BigInt.asIntN(64, seed + BigInt(index));
}
