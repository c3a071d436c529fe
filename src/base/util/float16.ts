/** IEEE 754 half precision, float16: 1 sign, 5 exponent and 10 fraction bits. */

/** Largest float16. */
export const MAX_FLOAT16 = 65_504;

/** Bits of infinity: all exponent bits. */
const INFINITY_BITS = 0x7c00;
/** Smallest normal float16. Smaller numbers are multiples of 2^-24. */
const MIN_NORMAL = 2 ** -14;
/** Adding and subtracting this number rounds a smaller positive number to an integer, ties to even. */
const TO_INTEGER = 2 ** 52;

/**
 * Rounds numbers to float16: to nearest, ties to even. Numbers of at most 2^-25 become 0, and numbers from 65,520, beyond
 * {@link MAX_FLOAT16}, become infinite.
 *
 * @param values - Not NaN.
 * @returns Bits of the float16 numbers.
 */
export function toFloat16(values: Float32Array): Uint16Array {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const halves = new Uint16Array(values.length);
  for (let i = 0; i < halves.length; i++) halves[i] = float16Of(bits[i]!, values[i]!);
  return halves;
}

/** Returns the float16 bits of a number, given its float32 bits. */
function float16Of(bits: number, value: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = Math.abs(value);
  if (magnitude < MIN_NORMAL) return sign | (magnitude * 2 ** 24 + TO_INTEGER - TO_INTEGER);
  const positive = bits & 0x7fffffff;
  // Drops the 13 fraction bits that float16 lacks. Adding 0xfff, and 1 more if the last kept bit is set, rounds to nearest, ties to even.
  // 0x38000000 is the difference of the exponent biases, 127 − 15, in the position of the exponent.
  const rounded = (positive + 0xfff + ((positive >>> 13) & 1) - 0x38000000) >>> 13;
  return sign | Math.min(rounded, INFINITY_BITS);
}

/** Returns the index of the first infinite float16; −1 if all are finite. @param halves - Bits of float16 numbers. */
export function firstInfinite(halves: Uint16Array): number {
  for (let i = 0; i < halves.length; i++) if ((halves[i]! & INFINITY_BITS) === INFINITY_BITS) return i;
  return -1;
}

/** All float16 numbers by their bits; made at the first read. */
let allValues: Float32Array | undefined;

/** Reads a little-endian float16 at a byte offset. */
export function readFloat16(view: DataView, offset: number): number {
  return valueOf(view.getUint16(offset, true));
}

/** Number whose float32 bits are read through {@link singleBits}, which shares its memory. */
const single = new Float32Array(1);
const singleBits = new Uint32Array(single.buffer);

/** Returns the nearest float16 of a number that is not NaN, rounded as {@link toFloat16} does. */
export function nearestFloat16(value: number): number {
  single[0] = value;
  return valueOf(float16Of(singleBits[0]!, single[0]));
}

/** Returns the number with the given float16 bits, from the table. */
function valueOf(bits: number): number {
  allValues ??= Float32Array.from({ length: 2 ** 16 }, (_, tableBits) => float16Value(tableBits));
  return allValues[bits]!;
}

/** Computes the number with the given float16 bits. */
function float16Value(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
