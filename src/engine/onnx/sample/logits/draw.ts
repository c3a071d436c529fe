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

/** Number of probabilities that are summed before the search looks at single ones. */
const BLOCK = 256;

/**
 * Draws from probabilities by the inverse of the cumulative distribution. The total is summed too, because the probabilities of a float32
 * softmax add up to 1 only up to rounding. Tokens of probability 0 are never drawn.
 *
 * @param u - Uniform random number in (0, 1).
 * @returns Id of the drawn token.
 */
export function drawFrom(probs: Float32Array, u: number): number {
  const sums = new Float64Array(Math.ceil(probs.length / BLOCK));
  let total = 0;
  for (let block = 0; block < sums.length; block++) total += sums[block] = sumOf(probs, block * BLOCK);
  let rest = u * total;
  for (let block = 0; block < sums.length; block++) {
    if (rest >= sums[block]!) {
      rest -= sums[block]!;
      continue;
    }
    const end = Math.min((block + 1) * BLOCK, probs.length);
    for (let i = block * BLOCK; i < end; i++) {
      rest -= probs[i]!;
      if (rest < 0) return i;
    }
    // Single probabilities may add up to less than their block, which rounds in another order: the next token is drawn.
    rest = 0;
  }
  return argmax(probs);
}

/** Sums a block of probabilities from `start` on. Four independent sums, because each addition waits for the previous one. */
function sumOf(probs: Float32Array, start: number): number {
  const end = Math.min(start + BLOCK, probs.length);
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  let i = start;
  for (; i + 3 < end; i += 4) {
    a += probs[i]!;
    b += probs[i + 1]!;
    c += probs[i + 2]!;
    d += probs[i + 3]!;
  }
  for (; i < end; i++) a += probs[i]!;
  return a + b + (c + d);
}
