/** Request fields that change logits (penalties, biases, allowed and banned tokens), checked and converted to the engine's parameters. */
import type { SamplingParams } from "../../../engine/port.ts";
import { ArgumentError } from "../../../base/errors.ts";
import type { ChatTokenizer } from "../../../text/tokenizer/index.ts";
import { shown } from "../../../base/util/shown.ts";
import type { GenerationDefaults } from "../../models/generation-defaults.ts";
import { RANGED_FIELDS } from "../request/fields.ts";
import type { ChatRequest } from "../request/request.ts";

/** Maximum magnitude of a logit bias; larger values are clamped. */
const MAX_BIAS = 100;

/** Context of {@link resolveRules}. */
export interface RulesContext {
  readonly tokenizer: ChatTokenizer;
  /** Number of token ids; every id is below it. */
  readonly vocabularySize: number;
  readonly defaults: GenerationDefaults;
  /** Maximum number of tokens that the request may generate. */
  readonly maxTokens: number;
}

/** Returns the error for a value out of its range. */
function rangeError(field: string, range: string, value: unknown, param: string | null = null): ArgumentError {
  return new ArgumentError(`Expected \`${field}\` to be ${range}, got ${shown(value)}`, { param });
}

/** Checks that ids are in the vocabulary. @throws ArgumentError `E_ARGUMENT`, param `field`, naming the other ids. */
function checkIds(field: string, ids: readonly number[], vocabularySize: number): void {
  const outside = ids.filter((id) => id < 0 || id >= vocabularySize);
  if (outside.length > 0)
    throw rangeError(field, `token ids of the vocabulary, from 0 to ${vocabularySize - 1} (of ${vocabularySize} tokens)`, outside, field);
}

/** Returns the biases by token id, clamped. @throws ArgumentError `E_ARGUMENT` for a key that is not a token id of the vocabulary. */
function toBias(requested: Readonly<Record<string, number>>, vocabularySize: number): ReadonlyMap<number, number> {
  const bias = new Map<number, number>();
  for (const [key, value] of Object.entries(requested)) {
    if (!/^\s*[+-]?\d+\s*$/.test(key)) throw rangeError("logit_bias", "keyed by token ids", key, "logit_bias");
    bias.set(Number(key), Math.min(Math.max(value, -MAX_BIAS), MAX_BIAS));
  }
  checkIds("logit_bias", [...bias.keys()], vocabularySize);
  return bias;
}

/**
 * Returns the token sequences of a word: at the beginning of a text, and after a space, unless the sequence there has another length or the
 * same first token.
 */
function sequencesOf(word: string, tokenizer: ChatTokenizer): number[][] {
  const trimmed = word.trimStart();
  const bare = [...tokenizer.encode(trimmed)];
  if (bare.length === 0) throw rangeError("bad_words", "free of empty words", word);
  const spaced = [...tokenizer.encode(` ${trimmed}`)];
  return spaced.length === bare.length && spaced[0] !== bare[0] ? [bare, spaced] : [bare];
}

/**
 * Checks the numbers that have a range.
 *
 * @throws ArgumentError `E_ARGUMENT` for the first number out of its range.
 */
export function checkRanges(request: ChatRequest): void {
  for (const { name, member, range } of RANGED_FIELDS) {
    const value = request[member];
    if (typeof value === "number" && range?.has(value) === false)
      throw rangeError(name, range.text, value, range.hasParam === true ? name : null);
  }
}

/**
 * Returns the engine's parameters for the logit rules of a request; a parameter without effect is absent.
 *
 * @param request - The parsed request.
 * @param context - Tokenizer, vocabulary size and defaults of the model, and the request's token limit.
 * @throws ArgumentError `E_ARGUMENT` for `min_tokens` over the limit, an id outside the vocabulary, and rules that forbid every allowed
 *   token.
 */
export function resolveRules(request: ChatRequest, context: RulesContext): Partial<SamplingParams> {
  const { defaults, tokenizer, vocabularySize } = context;
  const { minTokens, stopTokenIds, allowedTokenIds, frequencyPenalty, presencePenalty } = request;
  const minP = request.minP ?? defaults.minP;
  const repetitionPenalty = request.repetitionPenalty ?? defaults.repetitionPenalty;
  if (minTokens < 0 || minTokens > context.maxTokens)
    throw rangeError("min_tokens", `from 0 to the limit of ${context.maxTokens}`, minTokens);

  const logitBias = toBias(request.logitBias, vocabularySize);
  if (allowedTokenIds?.length === 0) throw rangeError("allowed_token_ids", "at least one token id", allowedTokenIds, "allowed_token_ids");
  checkIds("allowed_token_ids", allowedTokenIds ?? [], vocabularySize);
  const bannedSequences = request.badWords.flatMap((word) => sequencesOf(word, tokenizer));
  // An id outside the vocabulary stops nothing and need not be suppressed.
  const endTokenIds = [...tokenizer.eosTokenIds, ...stopTokenIds].filter((id) => id >= 0 && id < vocabularySize);
  // Tokens that the engine suppresses until `minTokens` are sampled.
  const lateTokenIds = minTokens > 0 ? [...new Set(endTokenIds)] : [];
  const bannedTokenIds = bannedSequences.filter((sequence) => sequence.length === 1).flat();
  const forbidden = new Set([...lateTokenIds, ...bannedTokenIds]);
  if (allowedTokenIds?.every((id) => forbidden.has(id)))
    throw rangeError(
      "allowed_token_ids",
      "left with a token once `bad_words` and `min_tokens` are applied",
      allowedTokenIds,
      "allowed_token_ids",
    );

  return {
    ...(minP === 0 ? {} : { minP }),
    ...(allowedTokenIds === null ? {} : { allowedTokenIds }),
    ...(bannedSequences.length === 0 ? {} : { bannedSequences }),
    ...(minTokens === 0 ? {} : { minTokens, lateTokenIds }),
    ...(logitBias.size === 0 ? {} : { logitBias }),
    ...(repetitionPenalty === 1 ? {} : { repetitionPenalty }),
    ...(frequencyPenalty === 0 ? {} : { frequencyPenalty }),
    ...(presencePenalty === 0 ? {} : { presencePenalty }),
  };
}
