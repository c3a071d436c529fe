/** Selection of the largest of many numbers without sorting all of them. Rows contain no NaN. */

/** Number of leading bits of a float32 by which {@link kthLargest} counts. */
const COUNTED_BITS = 12;

/** Buckets per unit of a logit, and their number, by which {@link nucleusFloor} adds probabilities. */
const BUCKETS_PER_UNIT = 32;
const BUCKETS = 1024;

/** Returns the bits of a float32, changed so that their order as unsigned integers is the order of the numbers. */
function toOrdered(bits: number): number {
  return (bits >> 31 === 0 ? bits ^ 0x80000000 : ~bits) >>> 0;
}

/**
 * Returns the `k`-th largest of the values. Counts the values by their leading bits, and sorts only the values that share the leading bits
 * of the result.
 *
 * @param k - From 1 to the number of values.
 */
export function kthLargest(values: Float32Array, k: number): number {
  const bits = new Int32Array(values.buffer, values.byteOffset, values.length);
  const shift = 32 - COUNTED_BITS;
  const counts = new Uint32Array(2 ** COUNTED_BITS);
  for (let id = 0; id < bits.length; id++) counts[toOrdered(bits[id]!) >>> shift]!++;
  let prefix = counts.length - 1;
  let larger = 0;
  for (; larger + counts[prefix]! < k; prefix--) larger += counts[prefix]!;
  const same = new Float32Array(counts[prefix]!);
  for (let id = 0, held = 0; held < same.length; id++) if (toOrdered(bits[id]!) >>> shift === prefix) same[held++] = values[id]!;
  return same.sort().at(larger - k)!;
}

/**
 * Returns the smallest logit that top-p keeps: going from the largest logit down, the logit at which the sum of the probabilities reaches
 * `topP`; −∞ if no sum reaches it.
 *
 * Probabilities are relative to a total that is defined as their sum in ascending order. This function adds them in order of their ids,
 * sorts only the logits of the likeliest buckets, and sorts the whole row if rounding of the total could change the result.
 *
 * @param best - The largest logit.
 */
export function nucleusFloor(logits: Float32Array, best: number, topP: number): number {
  const sums = new Float64Array(BUCKETS);
  const counts = new Uint32Array(BUCKETS);
  let total = 0;
  for (let id = 0; id < logits.length; id++) {
    const below = best - logits[id]!;
    const probability = Math.exp(-below);
    const bucket = Math.min(BUCKETS - 1, below * BUCKETS_PER_UNIT) | 0;
    total += probability;
    sums[bucket]! += probability;
    counts[bucket]!++;
  }
  // Sums of n positive numbers in two orders differ by less than 2nε; twice as much includes the rounding of the products.
  const rounding = 4 * logits.length * Number.EPSILON;
  const [low, high] = [topP * total * (1 - rounding), topP * total * (1 + rounding)];
  let size = 0;
  let end = 0;
  for (let sum = 0; end < BUCKETS - 1 && sum < high * (1 + rounding); end++) {
    sum += sums[end]!;
    size += counts[end]!;
  }
  const likeliest = new Float32Array(size);
  for (let id = 0, held = 0; held < size; id++) if ((best - logits[id]!) * BUCKETS_PER_UNIT < end) likeliest[held++] = logits[id]!;
  likeliest.sort();
  let mass = 0;
  for (let index = size - 1; index >= 0; index--) {
    mass += Math.exp(likeliest[index]! - best);
    if (mass >= high) return likeliest[index]!;
    if (mass >= low) break;
  }
  return sortedFloor(logits, best, topP);
}

/** Computes {@link nucleusFloor} by its definition. */
function sortedFloor(logits: Float32Array, best: number, topP: number): number {
  const sorted = logits.toSorted();
  let total = 0;
  for (const logit of sorted) total += Math.exp(logit - best);
  let mass = 0;
  for (let index = sorted.length - 1; index >= 0; index--) {
    mass += Math.exp(sorted[index]! - best);
    if (mass >= topP * total) return sorted[index]!;
  }
  return -Infinity;
}
