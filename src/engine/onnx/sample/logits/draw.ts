/** The last step: one token of a row. */

/** The first of the largest. */
export function argmax(x: Float32Array): number {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i]! > x[best]!) best = i;
  return best;
}

/**
 * Draws from `softmax(logits)` by the inverse of the cumulative distribution; the total is summed too, so rounding cannot leave
 * a gap at the end. Tokens of −∞ are never drawn.
 *
 * @param logits - `[V]`, none far above 0: log-probabilities, or logits whose largest is 0.
 * @param u - In (0, 1).
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

/** The same from probabilities. Those of a float32 softmax add up to 1 but for rounding, so their total is summed too. */
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
