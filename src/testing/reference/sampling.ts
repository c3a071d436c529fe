/**
 * Token selection of the reference engine: every sampling parameter by its definition in {@link SamplingParams}, in float64, with sorted
 * lists and without shortcuts. Shares no code with the selection of the embedded engine.
 */
import { NonFiniteError, UnsupportedError } from "../../base/errors.ts";
import { uniform } from "../../base/util/rng.ts";
import type { PromptToken, SamplingParams, TokenLogprob } from "../../engine/port.ts";

/** Tokens of the prompt, and tokens sampled so far. */
interface Context {
  readonly prompt: ArrayLike<number>;
  readonly outputs: readonly number[];
}

/**
 * Computes `log_softmax(logits)`; tokens of −∞ stay −∞.
 *
 * @param logits - `[V]`, not modified.
 * @param position - Position of the predicted token in its sequence, from 0; for the message.
 * @throws NonFiniteError `E_NON_FINITE` if a logit is NaN or +∞, or none is finite.
 */
export function referenceLogSoftmax(logits: Float64Array, position: number): Float64Array {
  const max = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!Number.isFinite(max)) throw new NonFiniteError(`The weights give no finite log-probabilities for the token at position ${position}`);
  const total = logits.reduce((sum, logit) => sum + Math.exp(logit - max), 0);
  return logits.map((logit) => logit - max - Math.log(total));
}

/** Returns the `count` best tokens, best first; at a tie, the lower id first. */
export function bestTokens(logprobs: Float64Array, count: number): TokenLogprob[] {
  return Array.from(logprobs, (logprob, id) => ({ id, logprob }))
    .sort((a, b) => b.logprob - a.logprob || a.id - b.id)
    .slice(0, count);
}

/** Returns a token with its rank (1 = the most likely token) and the `count` best tokens. */
export function rankToken(logprobs: Float64Array, id: number, count: number): PromptToken {
  const logprob = logprobs[id] ?? NaN;
  return { id, logprob, rank: logprobs.filter((other) => other >= logprob).length, top: bestTokens(logprobs, count) };
}

/** Whether `outputs` followed by `id` ends with `sequence`. */
function completes(sequence: readonly number[], outputs: readonly number[], id: number): boolean {
  const lastTokens = [...outputs, id].slice(-sequence.length);
  return lastTokens.length === sequence.length && lastTokens.every((token, index) => token === sequence[index]);
}

/**
 * Returns the logits after the rules of a request, in this order: allowed tokens, banned sequences, tokens that may not be sampled before
 * `minTokens` (`lateTokenIds`), bias, and penalties.
 */
function ruledLogits(logits: Float64Array, params: SamplingParams, { prompt, outputs }: Context): Float64Array {
  const { allowedTokenIds, bannedSequences = [], minTokens = 0, lateTokenIds = [], logitBias } = params;
  const { repetitionPenalty = 1, frequencyPenalty = 0, presencePenalty = 0 } = params;
  return logits.map((logit, id) => {
    if (allowedTokenIds !== undefined && !allowedTokenIds.includes(id)) return -Infinity;
    if (bannedSequences.some((sequence) => completes(sequence, outputs, id))) return -Infinity;
    if (outputs.length < minTokens && lateTokenIds.includes(id)) return -Infinity;
    const biased = logit + (logitBias?.get(id) ?? 0);
    const count = outputs.filter((token) => token === id).length;
    const hasOccurred = count > 0 || Array.from(prompt).includes(id);
    const penalized = biased > 0 ? biased / repetitionPenalty : biased * repetitionPenalty;
    return (hasOccurred ? penalized : biased) - frequencyPenalty * count - (count > 0 ? presencePenalty : 0);
  });
}

/** Returns the relative probabilities after temperature, min-p, top-k and top-p; tokens that cannot be drawn have 0. */
function drawWeights(logits: Float64Array, { temperature, minP = 0, topK, topP }: SamplingParams): Float64Array {
  const max = Math.max(...logits);
  /** Tokens that can be drawn, best first. */
  let candidates = Array.from(logits, (logit, id) => ({ id, weight: Math.exp((logit - max) / temperature) }))
    .filter(({ weight }) => weight > 0 && weight >= minP)
    .sort((a, b) => b.weight - a.weight);
  /** Removes the tokens less likely than the last of the `count` best ones. */
  const keepBest = (count: number) => {
    const minWeight = candidates[Math.min(count, candidates.length) - 1]?.weight ?? 0;
    candidates = candidates.filter(({ weight }) => weight >= minWeight);
  };
  if (topK > 0) keepBest(topK);
  if (topP < 1) {
    const total = candidates.reduce((sum, { weight }) => sum + weight, 0);
    let mass = 0;
    const lastIndex = candidates.findIndex(({ weight }) => {
      mass += weight;
      return mass >= topP * total;
    });
    keepBest(lastIndex + 1);
  }
  const weights = new Float64Array(logits.length);
  for (const { id, weight } of candidates) weights[id] = weight;
  return weights;
}

/**
 * Chooses the next token: the most likely one at temperature 0, else a draw by the inverse of the cumulative distribution with the random
 * number of the request's seed and the number of sampled tokens.
 *
 * @param logits - `[V]`, not modified; −∞ for the tokens that a grammar excludes.
 * @throws UnsupportedError `E_UNSUPPORTED` if the rules leave no token.
 */
export function chooseReferenceToken(logits: Float64Array, params: SamplingParams, context: Context): number {
  const ruled = ruledLogits(logits, params, context);
  const max = Math.max(...ruled);
  if (max === -Infinity)
    throw new UnsupportedError(`The rules of the request leave no token to sample after ${context.outputs.length}; allow more tokens`);
  if (params.temperature === 0) return ruled.indexOf(max);
  const weights = drawWeights(ruled, params);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let remainingMass = uniform(params.seed, context.outputs.length) * total;
  const drawn = weights.findIndex((weight) => {
    remainingMass -= weight;
    return remainingMass < 0;
  });
  // Rounding may leave a little mass after the last token.
  return drawn < 0 ? ruled.indexOf(max) : drawn;
}
