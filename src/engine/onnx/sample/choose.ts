/** From a row of log-probabilities to a token. */
import { uniform } from "../../../util/rng.ts";
import type { SamplingParams, TokenLogprob } from "../../port.ts";

/** The parameters that decide which token is drawn. */
export type ChoiceParams = Pick<SamplingParams, "temperature" | "topP" | "topK" | "seed">;

/**
 * Draws token number `index` of a request from `softmax(logprobs / temperature)` after top-k and top-p.
 *
 * The random number is a function of the seed and `index` alone, so what else runs beside a request changes nothing.
 *
 * @param logprobs - `[V]`, `log softmax` of the raw logits.
 */
export function chooseToken(logprobs: Float32Array, params: ChoiceParams, index: number): number {
  if (params.temperature === 0) return argmax(logprobs);
  const u = uniform(params.seed, index);
  const isPlain = params.temperature === 1 && params.topP === 1 && (params.topK === 0 || params.topK >= logprobs.length);
  return isPlain ? drawPlain(logprobs, u) : drawFiltered(logprobs, params, u);
}

/** The first of the largest. */
export function argmax(x: Float32Array): number {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i]! > x[best]!) best = i;
  return best;
}

/** Inverse of the cumulative distribution; the total is summed too, so rounding cannot leave a gap at the end. */
function drawPlain(logprobs: Float32Array, u: number): number {
  let total = 0;
  for (let i = 0; i < logprobs.length; i++) total += Math.exp(logprobs[i]!);
  let rest = u * total;
  for (let i = 0; i < logprobs.length; i++) {
    rest -= Math.exp(logprobs[i]!);
    if (rest < 0) return i;
  }
  return argmax(logprobs);
}

function drawFiltered(logprobs: Float32Array, { temperature, topK, topP }: ChoiceParams, u: number): number {
  // Relative to the largest, so that a small temperature cannot underflow everything.
  const best = logprobs[argmax(logprobs)]!;
  const weights = Float64Array.from(logprobs, (x) => Math.exp((x - best) / temperature));
  let order = Array.from(weights.keys()).sort((a, b) => weights[b]! - weights[a]! || a - b);
  if (topK > 0 && topK < order.length) {
    // Ties with the k-th survive.
    const floor = weights[order[topK - 1]!]!;
    order = order.filter((id) => weights[id]! >= floor);
  }
  let total = order.reduce((sum, id) => sum + weights[id]!, 0);
  if (topP < 1) {
    let mass = 0;
    const kept: number[] = [];
    for (const id of order) {
      if (kept.length > 0 && mass >= topP * total) break;
      kept.push(id);
      mass += weights[id]!;
    }
    order = kept;
    total = mass;
  }
  let rest = u * total;
  for (const id of order) {
    rest -= weights[id]!;
    if (rest < 0) return id;
  }
  return order[0]!;
}

/** The `count` best tokens, best first; the lower id first at a tie. */
export function topTokens(logprobs: Float32Array, count: number): TokenLogprob[] {
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
