/** Last sampling step: the choice of one token from a row. */

/** Returns the index of the largest element; the first at a tie. */
export function argmax(x: Float32Array): number {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i]! > x[best]!) best = i;
  return best;
}

/**
 * Draws from `softmax(logits)` by the inverse of the cumulative distribution; the total is summed too, so rounding cannot leave a gap at
 * the end. Tokens of −∞ are never drawn.
 *
 * @param logits - `[V]`, with no element far above 0: log-probabilities, or logits with a maximum of 0.
 * @param u - Uniform random number in (0, 1).
 * @returns Id of the drawn token.
 */
export function draw(logits: Float32Array, u: number): number {
  let total = 0;
  for (let i = 0; i < logits.length; i++) total += Math.exp(logits[i]!);
  let rest = u * total;
  for (let i = 0; i < logits.length; i++) {
    rest -= Math.exp(logits[i]!);
    if (rest < 0) return i;
  }
  return argmax(logits);
}

/**
 * Draws from probabilities by the inverse of the cumulative distribution. The total is summed too, because the probabilities of a float32
 * softmax add up to 1 only up to rounding.
 *
 * @param u - Uniform random number in (0, 1).
 * @returns Id of the drawn token.
 */
export function drawFrom(probs: Float32Array, u: number): number {
  let total = 0;
  for (let i = 0; i < probs.length; i++) total += probs[i]!;
  let rest = u * total;
  for (let i = 0; i < probs.length; i++) {
    rest -= probs[i]!;
    if (rest < 0) return i;
  }
  return argmax(probs);
}
