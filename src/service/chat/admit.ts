/** What a request may have: a place among those running, and sampling parameters within the model's bounds. */
import { randomBytes } from "node:crypto";
import type { BaseModelInfo, SamplingParams } from "../../engine/port.ts";
import { ArgumentError, OverloadedError } from "../../errors.ts";
import type { ChatTokenizer } from "../../tokenizer/index.ts";
import type { GenerationDefaults } from "./generation-defaults.ts";
import { resolveMaxTokens } from "./length.ts";
import { checkRepetitionDetection } from "./repetition.ts";
import type { ChatRequest } from "./request.ts";
import { resolveRules } from "./sampling-rules.ts";

/** Bounds of the chat route. */
export interface ChatLimits {
  /** Choices generated at one time, over all requests; a request that finds no room is answered 429. @default 2048 */
  readonly maxRunningChoices?: number | undefined;
  /** The largest `n`. @default 128 */
  readonly maxChoices?: number | undefined;
  /** The largest `top_logprobs`; what the engine offers bounds it too. @default 20 */
  readonly maxTopLogprobs?: number | undefined;
  /** Stop strings per request: each is searched for after each token. @default 256 */
  readonly maxStopStrings?: number | undefined;
  /** Memory for sampled ids per API key. @default 32 MiB */
  readonly splicingBytesPerKey?: number | undefined;
  /** Whether requests may bring a chat template of their own. It runs with the limits of a model's. @default false */
  readonly trustRequestTemplates?: boolean | undefined;
  /** Whether requests may say which of them goes first when not all can run. @default false */
  readonly priorityScheduling?: boolean | undefined;
  /**
   * How tool calls are written in the text of an answer: `hermes`, as `<tool_call>{"name": …, "arguments": …}</tool_call>`, or
   * `none`, which refuses every request that lets tools be called. @default "hermes"
   */
  readonly toolParser?: "hermes" | "none" | undefined;
  /**
   * How reasoning is written in the text of an answer: `think`, which ends it with `</think>`, or `none`, which leaves the text
   * as it is. @default "none"
   */
  readonly reasoningParser?: "think" | "none" | undefined;
  /** Whether every stream ends with its token counts, asked for or not. @default false */
  readonly alwaysStreamUsage?: boolean | undefined;
  /** What `return_tokens_as_token_ids` is where a request does not say. @default false */
  readonly returnTokensAsTokenIds?: boolean | undefined;
  /** Whether answers carry the header `x-request-id`: that of the request, or one that is drawn. @default false */
  readonly requestIdHeader?: boolean | undefined;
  /** Whether `usage` says how much of the prompt did not have to be computed. @default false */
  readonly reportCachedTokens?: boolean | undefined;
}

/** The bounds with their defaults filled in. */
export type ResolvedChatLimits = { readonly [Name in keyof ChatLimits]-?: NonNullable<ChatLimits[Name]> };

/** Fills in the defaults. */
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
    requestIdHeader: limits.requestIdHeader ?? false,
    reportCachedTokens: limits.reportCachedTokens ?? false,
  };
}

/** Counts the choices that run, so that a flood is answered at once instead of piling up in memory. */
export class Admission {
  readonly #capacity: number;
  #running = 0;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Choices that run now. */
  get running(): number {
    return this.#running;
  }

  /**
   * Takes places for `choices`.
   *
   * @returns Gives the places back; calling it twice is harmless.
   * @throws OverloadedError `E_OVERLOADED` when there is no room. One request alone always has room.
   */
  enter(choices: number): () => void {
    if (this.#running > 0 && this.#running + choices > this.#capacity) {
      throw new OverloadedError(
        `The service generates ${this.#running} choices and has room for ${this.#capacity}; send the request again in a moment`,
        { retryable: true },
      );
    }
    this.#running += choices;
    let isInside = true;
    return () => {
      if (isInside) this.#running -= choices;
      isInside = false;
    };
  }
}

/** Log-probabilities of a prompt, alternatives included, that one answer may carry. */
const MAX_PROMPT_LOGPROBS = 65_536;

/** A sampled temperature below this is raised to it: smaller ones are greedy in all but rounding errors. */
const MIN_SAMPLED_TEMPERATURE = 0.01;

/** Seed that says "no seed". */
const UNSEEDED = -1n;

function outOfRange(field: string, range: string, value: number | string, param: string | null = field): ArgumentError {
  return new ArgumentError(`Expected \`${field}\` to be ${range}, got ${value}`, { param });
}

/**
 * Checks what needs no model but is no matter of types either.
 *
 * @throws ArgumentError `E_ARGUMENT` for `n`, `stop`, `repetition_detection` or `priority` out of bounds.
 */
export function checkCounts(request: ChatRequest, limits: ResolvedChatLimits): void {
  if (request.n < 1 || request.n > limits.maxChoices) throw outOfRange("n", `from 1 to ${limits.maxChoices}`, request.n, null);
  if (request.stop.length > limits.maxStopStrings)
    throw outOfRange("stop", `at most ${limits.maxStopStrings} strings`, request.stop.length, null);
  if (request.stop.includes("")) throw outOfRange("stop", "free of empty strings", '""', null);
  checkRepetitionDetection(request.repetitionDetection);
  if (request.priority !== 0n && !limits.priorityScheduling) {
    throw new ArgumentError(
      `Got \`priority\` ${request.priority}, but this service serves requests in the order of their arrival; send 0, or start it with limits.chat.priorityScheduling`,
      { param: "priority" },
    );
  }
}

/**
 * Checks that a request brings no template where none is trusted.
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
 * Checks that a request lets no tool be called where nothing reads calls out of the text.
 *
 * @throws ArgumentError `E_ARGUMENT`.
 */
export function checkToolParser({ shouldParseToolCalls, forcedCalls }: ChatRequest, limits: ResolvedChatLimits): void {
  if ((!shouldParseToolCalls && forcedCalls === null) || limits.toolParser !== "none") return;
  throw new ArgumentError(
    '`tool_choice` (auto where there are `tools`, required, or a function) needs a tool parser, which this service was started without; send tool_choice: "none", or start it with another limits.chat.toolParser',
  );
}

/** What the sampling parameters depend on besides the request. */
export interface SamplingContext {
  readonly base: BaseModelInfo;
  readonly tokenizer: ChatTokenizer;
  readonly promptTokens: number;
  readonly defaults: GenerationDefaults;
  /** The largest `top_logprobs` the engine can serve. */
  readonly engineTopLogprobs: number;
}

/**
 * The sampling parameters of choice 0; choice `i` differs in its seed alone, see {@link choiceSeed}.
 *
 * @throws ArgumentError `E_ARGUMENT` for a prompt too long, or a number out of its range.
 */
export function resolveSampling(request: ChatRequest, limits: ResolvedChatLimits, context: SamplingContext): SamplingParams {
  const { base, defaults } = context;
  const maxTokens = resolveMaxTokens(request, context.promptTokens, base.contextLength, defaults);
  const asked = request.temperature ?? defaults.temperature;
  if (asked < 0) throw outOfRange("temperature", "at least 0", asked);
  const topP = request.topP ?? defaults.topP;
  if (!(topP > 0 && topP <= 1)) throw outOfRange("top_p", "above 0 and at most 1", topP);
  const topK = request.topK ?? defaults.topK;
  if (topK < -1) throw outOfRange("top_k", "-1 or more (0 and -1 turn it off)", topK, null);
  const isGreedy = asked === 0;
  if (isGreedy && request.n > 1 && request.beamSearch === null)
    throw new ArgumentError("`n` must be 1 when using greedy sampling (temperature 0): every choice would be the same");
  const most = Math.min(limits.maxTopLogprobs, context.engineTopLogprobs);
  const bounded = (field: string, wanted: number, param: string): number => {
    const count = wanted === -1 ? base.vocabularySize : wanted;
    if (count <= most) return count;
    throw outOfRange(field, `at most ${most}`, wanted === -1 ? `-1, which means all ${count}` : count, param);
  };
  const topLogprobs = bounded("top_logprobs", request.topLogprobs ?? 0, "logprobs");
  if (request.beamSearch !== null && 2 * request.n > most) {
    throw new ArgumentError(
      `Expected \`n\` to be at most ${Math.floor(most / 2)} with \`use_beam_search\`, which compares twice as many tokens, got ${request.n}`,
      { param: "logprobs" },
    );
  }
  const promptLogprobs = request.promptLogprobs === null ? null : bounded("prompt_logprobs", request.promptLogprobs, "prompt_logprobs");
  const promptEntries = promptLogprobs === null || promptLogprobs === 0 ? 0 : context.promptTokens * (promptLogprobs + 1);
  if (promptEntries > MAX_PROMPT_LOGPROBS)
    throw outOfRange(
      "prompt_logprobs",
      `at most ${Math.floor(MAX_PROMPT_LOGPROBS / context.promptTokens) - 1} with a prompt of ${context.promptTokens} tokens (${MAX_PROMPT_LOGPROBS} entries in all)`,
      promptLogprobs ?? 0,
    );
  const rules = resolveRules(request, { tokenizer: context.tokenizer, vocabularySize: base.vocabularySize, defaults, maxTokens });
  const eosTokenIds = request.ignoresEos ? [] : context.tokenizer.eosTokenIds;
  return {
    ...rules,
    maxTokens,
    temperature: isGreedy ? 0 : Math.max(asked, MIN_SAMPLED_TEMPERATURE),
    topP: isGreedy ? 1 : topP,
    topK: isGreedy || topK < 1 || topK >= base.vocabularySize ? 0 : topK,
    seed: request.seed === null || request.seed === UNSEEDED ? randomBytes(8).readBigInt64LE() : request.seed,
    stopTokenIds: [...new Set([...eosTokenIds, ...request.stopTokenIds])],
    topLogprobs,
    ...(promptLogprobs === null ? {} : { promptLogprobs }),
    ...(request.priority === 0n ? {} : { priority: request.priority }),
    ...(request.cacheSalt === null ? {} : { cacheSalt: request.cacheSalt }),
  };
}

/** The seed of one choice: the request's plus the index, around the end of 64 bits. */
export function choiceSeed(seed: bigint, index: number): bigint {
  return BigInt.asIntN(64, seed + BigInt(index));
}
