/** Choice of a token from a row of log-probabilities. */
import { NonFiniteError } from "../../../base/errors.ts";
import { uniform } from "../../../base/util/rng.ts";
import type { PromptToken, SamplingParams, TokenLogprob } from "../../port.ts";
import { argmax, draw, drawFrom } from "./logits/draw.ts";
import { applyTemperature, keepMinP, keepTopK, keepTopP } from "./logits/filters.ts";
import type { LogitRules } from "./logits/rules.ts";
import { kthLargest } from "./logits/select.ts";

/** Parameters that decide which token is drawn. */
export type ChoiceParams = Pick<SamplingParams, "temperature" | "minP" | "topP" | "topK" | "seed">;

/**
 * Draws token number `index` of a request. Applies the request's rules, then takes the likeliest token at temperature 0, else draws from
 * `softmax(logits / temperature)` after min-p, top-k and top-p, in this order.
 *
 * The random number is a function of the seed and `index` alone, so the draw is batch-invariant.
 *
 * @param logits - `[V]`, not modified; log-probabilities unless the rules need logits.
 * @param rules - Rules that change the logits. @default none
 * @param probs - `softmax(logits)` if already known: a plain draw then computes no exponentials.
 * @throws UnsupportedError `E_UNSUPPORTED` if the rules leave no token.
 */
export function chooseToken(
  logits: Float32Array,
  params: ChoiceParams,
  index: number,
  rules: LogitRules | null = null,
  probs: Float32Array | null = null,
): number {
  const changed = rules?.apply(logits);
  const { temperature, minP = 0, topK, topP } = params;
  if (temperature === 0) return argmax(changed ?? logits);
  const u = uniform(params.seed, index);
  const isPlain = temperature === 1 && minP === 0 && topP === 1 && (topK === 0 || topK >= logits.length);
  if (isPlain && changed === undefined) return probs ? drawFrom(probs, u) : draw(logits, u);
  const shaped = changed ?? logits.slice();
  applyTemperature(shaped, temperature);
  if (minP > 0) keepMinP(shaped, minP);
  if (topK > 0) keepTopK(shaped, topK);
  if (topP < 1) keepTopP(shaped, topP);
  return draw(shaped, u);
}

/**
 * Checks a row of log-probabilities.
 *
 * @param logprobs - `[V]`, a `log softmax`: one NaN or +∞ among the logits makes every element NaN.
 * @param position - Position of the token in its sequence, from 0; for the message.
 * @throws NonFiniteError `E_NON_FINITE` if the log-probabilities are NaN.
 */
export function requireDistribution(logprobs: Float32Array, position: number): void {
  if (Number.isNaN(logprobs[0])) throw nonFinite(position);
}

/**
 * Checks the log-probability of a token that a graph drew.
 *
 * @param position - Position of the token in its sequence, from 0; for the message.
 * @throws NonFiniteError `E_NON_FINITE` if the log-probability is not finite.
 */
export function requireFiniteLogprob(logprob: number, position: number): void {
  if (!Number.isFinite(logprob)) throw nonFinite(position);
}

function nonFinite(position: number): NonFiniteError {
  return new NonFiniteError(
    `The weights give no finite log-probabilities for the token at position ${position}: values in the network are NaN or overflow. Sample from another checkpoint, or train this one again with a lower learning rate`,
  );
}

/**
 * Scores a given token: its log-probability, its rank (the number of tokens at least as likely, so 1 = likeliest) and the `count` best
 * tokens.
 */
export function placeToken(logprobs: Float32Array, id: number, count: number): PromptToken {
  const logprob = logprobs[id]!;
  let rank = 0;
  for (let other = 0; other < logprobs.length; other++) if (logprobs[other]! >= logprob) rank++;
  return { id, logprob, rank, top: topTokens(logprobs, count) };
}

/** Max number of alternatives for which keeping the best in order is cheaper than sorting the whole row. */
const FEW = 64;

/** Returns the `count` best tokens, best first; at a tie, the lower id first. */
export function topTokens(logprobs: Float32Array, count: number): TokenLogprob[] {
  const size = Math.min(count, logprobs.length);
  if (size === 0) return [];
  const ids = size > FEW ? sortedBest(logprobs, size) : insertedBest(logprobs, size);
  return Array.from(ids, (id) => ({ id, logprob: logprobs[id]! }));
}

/** Returns the ids of the best tokens in one pass over the row, which keeps the best ones so far in order. */
function insertedBest(logprobs: Float32Array, size: number): Int32Array {
  const ids = new Int32Array(size);
  const best = new Float32Array(size).fill(-Infinity);
  let count = 0;
  // Log-probability that a token must exceed once `size` tokens are kept.
  let floor = -Infinity;
  for (let id = 0; id < logprobs.length; id++) {
    const logprob = logprobs[id]!;
    if (count === size && logprob <= floor) continue;
    let rank = count < size ? count++ : size - 1;
    for (; rank > 0 && best[rank - 1]! < logprob; rank--) {
      best[rank] = best[rank - 1]!;
      ids[rank] = ids[rank - 1]!;
    }
    best[rank] = logprob;
    ids[rank] = id;
    floor = best[size - 1]!;
  }
  return ids;
}

/** Returns the ids of the best tokens by sorting only the ids of the numbers that are large enough. */
function sortedBest(logprobs: Float32Array, size: number): Int32Array {
  const floor = kthLargest(logprobs, size);
  const ids: number[] = [];
  for (let id = 0; id < logprobs.length; id++) if (logprobs[id]! >= floor) ids.push(id);
  return Int32Array.from(ids.sort((a, b) => logprobs[b]! - logprobs[a]! || a - b).slice(0, size));
}
