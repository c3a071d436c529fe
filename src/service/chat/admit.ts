/** What a request may have: a place among those running, and sampling parameters within the model's bounds. */
import { randomBytes } from "node:crypto";
import type { BaseModelInfo, SamplingParams } from "../../engine/port.ts";
import { ArgumentError, OverloadedError } from "../../errors.ts";
import type { GenerationDefaults } from "./generation-defaults.ts";
import type { ChatRequest } from "./request.ts";

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
}

/** The bounds with their defaults filled in. */
export type ResolvedChatLimits = { readonly [Name in keyof ChatLimits]-?: number };

/** Fills in the defaults. */
export function resolveLimits(limits: ChatLimits = {}): ResolvedChatLimits {
  return {
    maxRunningChoices: limits.maxRunningChoices ?? 2048,
    maxChoices: limits.maxChoices ?? 128,
    maxTopLogprobs: limits.maxTopLogprobs ?? 20,
    maxStopStrings: limits.maxStopStrings ?? 256,
    splicingBytesPerKey: limits.splicingBytesPerKey ?? 32 * 2 ** 20,
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
 * @throws ArgumentError `E_ARGUMENT` for `n` or `stop` out of bounds.
 */
export function checkCounts(request: ChatRequest, limits: ResolvedChatLimits): void {
  if (request.n < 1 || request.n > limits.maxChoices) throw outOfRange("n", `from 1 to ${limits.maxChoices}`, request.n, null);
  if (request.stop.length > limits.maxStopStrings)
    throw outOfRange("stop", `at most ${limits.maxStopStrings} strings`, request.stop.length, null);
  if (request.stop.includes("")) throw outOfRange("stop", "free of empty strings", '""', null);
}

/** Tokens this request may generate: what it asks for, else what the model's author wants, and never more than fits. */
function resolveMaxTokens(request: ChatRequest, promptTokens: number, contextLength: number, defaults: GenerationDefaults): number {
  const asked = request.maxTokens ?? 0;
  const field = request.maxTokensField;
  if (asked > contextLength) {
    throw new ArgumentError(`This model's maximum context length is ${contextLength} tokens, and \`${field}\` alone asks for ${asked}`, {
      param: field,
    });
  }
  if (promptTokens > contextLength - asked) {
    const wanted = asked > 0 ? ` and \`${field}\` asks for ${asked} more; shorten the messages or \`${field}\`` : "; shorten the messages";
    throw new ArgumentError(`This model's maximum context length is ${contextLength} tokens; the messages have ${promptTokens}${wanted}`, {
      param: "input_tokens",
    });
  }
  const room = contextLength - promptTokens;
  const limit = Math.min(room, request.maxTokens ?? defaults.maxTokens ?? room);
  if (limit < 1) {
    throw new ArgumentError(
      `Expected \`${field}\` to be at least 1, got ${limit}: the messages have ${promptTokens} tokens of a context length of ${contextLength}`,
      { param: "max_tokens" },
    );
  }
  return limit;
}

/** What the sampling parameters depend on besides the request. */
export interface SamplingContext {
  readonly base: BaseModelInfo;
  readonly promptTokens: number;
  readonly defaults: GenerationDefaults;
  readonly stopTokenIds: readonly number[];
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
  if (isGreedy && request.n > 1)
    throw new ArgumentError("`n` must be 1 when using greedy sampling (temperature 0): every choice would be the same");
  const topLogprobs = request.topLogprobs === -1 ? base.vocabularySize : (request.topLogprobs ?? 0);
  const maxTop = Math.min(limits.maxTopLogprobs, context.engineTopLogprobs);
  if (topLogprobs > maxTop) {
    const value = request.topLogprobs === -1 ? `-1, which means all ${topLogprobs}` : topLogprobs;
    throw new ArgumentError(`Expected \`top_logprobs\` to be at most ${maxTop}, got ${value}`, { param: "logprobs" });
  }
  return {
    maxTokens,
    temperature: isGreedy ? 0 : Math.max(asked, MIN_SAMPLED_TEMPERATURE),
    topP: isGreedy ? 1 : topP,
    topK: isGreedy || topK < 1 || topK >= base.vocabularySize ? 0 : topK,
    seed: request.seed === null || request.seed === UNSEEDED ? randomBytes(8).readBigInt64LE() : request.seed,
    stopTokenIds: context.stopTokenIds,
    topLogprobs,
  };
}

/** The seed of one choice: the request's plus the index, around the end of 64 bits. */
export function choiceSeed(seed: bigint, index: number): bigint {
  return BigInt.asIntN(64, seed + BigInt(index));
}
