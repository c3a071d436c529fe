/**
 * Counter-based random numbers: every draw is a pure function of a seed and its coordinates (step, row, epoch, …), never of the number of
 * earlier draws. Runs therefore resume and parallelize without changing any value.
 */

import { ArgumentError } from "../errors.ts";

/** Four unsigned 32-bit words. */
export type Philox4x32Block = readonly [number, number, number, number];

/** Multipliers, key increments (Weyl constants) and rounds of Philox4x32-10; see {@link philox4x32} for the source. */
const MULTIPLIER_0 = 0xd2511f53;
const MULTIPLIER_1 = 0xcd9e8d57;
const WEYL_0 = 0x9e3779b9;
const WEYL_1 = 0xbb67ae85;
const ROUNDS = 10;

/**
 * Computes Philox4x32-10, a keyed bijection of 128-bit counters; its outputs pass BigCrush.
 *
 * @param counter - Four unsigned 32-bit words.
 * @param key - Two unsigned 32-bit words.
 * @returns Four unsigned 32-bit words.
 * @source Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 * @example
 * ```ts
 * philox4x32([0, 0, 0, 0], [0, 0]); // [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
 * ```
 */
export function philox4x32(counter: Philox4x32Block, key: readonly [number, number]): Philox4x32Block {
  let c0 = counter[0];
  let c1 = counter[1];
  let c2 = counter[2];
  let c3 = counter[3];
  let k0 = key[0];
  let k1 = key[1];
  for (let round = 0; round < ROUNDS; round++) {
    const high0 = multiplyHigh(MULTIPLIER_0, c0);
    const low0 = Math.imul(MULTIPLIER_0, c0) >>> 0;
    const high1 = multiplyHigh(MULTIPLIER_1, c2);
    const low1 = Math.imul(MULTIPLIER_1, c2) >>> 0;
    c0 = (high1 ^ c1 ^ k0) >>> 0;
    c1 = low1;
    c2 = (high0 ^ c3 ^ k1) >>> 0;
    c3 = low0;
    k0 = (k0 + WEYL_0) >>> 0;
    k1 = (k1 + WEYL_1) >>> 0;
  }
  return [c0, c1, c2, c3];
}

/**
 * Cached key of the last seed of {@link uniform}. Consecutive draws usually share a seed, and splitting the BigInt is half of their cost.
 */
let lastSeed = 0n;
let lastKey: readonly [number, number] = [0, 0];

/**
 * Returns a uniform float64 in the open interval (0, 1), keyed by `seed` and up to four counters (missing counters are 0).
 *
 * The value is `(k + ½) / 2^52` with 52 random bits `k`: an exact 53-bit fraction. Neither 0 nor 1 can occur, and `log(u)` is always
 * finite.
 *
 * @param seed - Any integer; taken modulo 2^64.
 * @param counters - At most four integers in [0, 2^32).
 * @throws ArgumentError `E_ARGUMENT` for more than four counters, or a counter outside its range.
 * @example
 * ```ts
 * uniform(7n, 3, 0, 12); // seed 7, step 3, row 0, position 12
 * ```
 */
export function uniform(seed: bigint, ...counters: readonly number[]): number {
  if (counters.length > 4) {
    throw new ArgumentError(`Expected at most 4 counters, got ${counters.length}.`, { param: "counters" });
  }
  for (let index = 0; index < counters.length; index++) {
    const value = counters[index]!;
    // `value >>> 0` equals `value` only for an unsigned 32-bit integer.
    if (value >>> 0 !== value) {
      throw new ArgumentError(`Expected each counter to be an integer in [0, 2^32), got ${value}.`, { param: "counters" });
    }
  }
  if (seed !== lastSeed) {
    const bits = BigInt.asUintN(64, seed);
    lastSeed = seed;
    lastKey = [Number(bits & 0xffff_ffffn), Number(bits >> 32n)];
  }
  const [high, low] = philox4x32([counters[0] ?? 0, counters[1] ?? 0, counters[2] ?? 0, counters[3] ?? 0], lastKey);
  // The upper 26 bits of two words.
  return ((high >>> 6) * 2 ** 26 + (low >>> 6) + 0.5) / 2 ** 52;
}

/** Returns the upper 32 bits of the 64-bit product, computed in 16-bit limbs: a double holds only 53 bits, and BigInt is slow here. */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const carry = aLow * bHigh + (middle & 0xffff);
  return (aHigh * bHigh + (middle >>> 16) + (carry >>> 16)) >>> 0;
}
