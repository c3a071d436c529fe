/** Choice of a token from a row of log-probabilities. */
import { NonFiniteError } from "../../../errors.ts";
import { uniform } from "../../../util/rng.ts";
import type { PromptToken, SamplingParams, TokenLogprob } from "../../port.ts";
import { argmax, draw, drawFrom } from "./logits/draw.ts";
import { applyTemperature, keepMinP, keepTopK, keepTopP } from "./logits/filters.ts";
import type { LogitRules } from "./logits/rules.ts";

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
export function requireFinite(logprob: number, position: number): void {
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
  for (const other of logprobs) if (other >= logprob) rank++;
  return { id, logprob, rank, top: topTokens(logprobs, count) };
}

/** Max number of alternatives for which keeping the best in order is cheaper than sorting the whole row. */
const FEW = 64;

/** Returns the `count` best tokens, best first; at a tie, the lower id first. */
export function topTokens(logprobs: Float32Array, count: number): TokenLogprob[] {
  if (count > FEW) {
    const all = Array.from(logprobs, (logprob, id): TokenLogprob => ({ id, logprob }));
    return all.sort((a, b) => (a.logprob === b.logprob ? a.id - b.id : b.logprob - a.logprob)).slice(0, count);
  }
  const top: TokenLogprob[] = [];
  for (let id = 0; id < logprobs.length && count > 0; id++) {
    const logprob = logprobs[id]!;
    if (top.length === count && logprob <= top.at(-1)!.logprob) continue;
    let at = top.length;
    while (at > 0 && top[at - 1]!.logprob < logprob) at--;
    top.splice(at, 0, { id, logprob });
    if (top.length > count) top.pop();
  }
  return top;
}
