/** Element types of weights, with finiteness checks and conversion from and to float32. */
import { firstNonFinite } from "../../../util/finite.ts";

/** Supported element type. */
export interface ElementType {
  /** Bytes per element. */
  readonly width: number;
  /** Returns the index of the first element that is NaN or infinite; −1 if all elements are finite. */
  readonly findNonFinite: (raw: ArrayBuffer) => number;
  readonly decode: (raw: ArrayBuffer) => Float32Array;
}

/** Supported element types by their name in safetensors. */
export const ELEMENT_TYPES: Readonly<Record<string, ElementType>> = {
  F32: { width: 4, findNonFinite: (raw) => firstNonFinite(new Float32Array(raw)), decode: (raw) => new Float32Array(raw) },
  F16: { width: 2, findNonFinite: (raw) => firstWithExponent(raw, 0x7c00), decode: fromFloat16 },
  BF16: { width: 2, findNonFinite: (raw) => firstWithExponent(raw, 0x7f80), decode: fromBfloat16 },
};

/** Returns the index of the first 16-bit element with all exponent bits set (NaN or infinity), or −1. */
function firstWithExponent(raw: ArrayBuffer, exponent: number): number {
  const bits = new Uint16Array(raw);
  for (let i = 0; i < bits.length; i++) if ((bits[i]! & exponent) === exponent) return i;
  return -1;
}

/** Decodes bfloat16, the upper half of a float32. */
function fromBfloat16(raw: ArrayBuffer): Float32Array {
  const halves = new Uint16Array(raw);
  const bits = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) bits[i] = halves[i]! << 16;
  return new Float32Array(bits.buffer);
}

let float16Values: Float32Array | undefined;

/** Decodes IEEE 754 half precision. */
function fromFloat16(raw: ArrayBuffer): Float32Array {
  float16Values ??= Float32Array.from({ length: 2 ** 16 }, (_, bits) => float16Value(bits));
  const halves = new Uint16Array(raw);
  const values = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) values[i] = float16Values[halves[i]!]!;
  return values;
}

/** Returns the number with the given bits: 1 sign, 5 exponent and 10 fraction bits. */
function float16Value(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Largest float16. */
export const MAX_FLOAT16 = 65_504;
/** Bits of the smallest float32 that rounds to infinity, 65,520. */
const OVERFLOW = 0x477f_f000;
/** Bits of the smallest normal float16, 2^-14, as float32. */
const MIN_NORMAL = 0x3880_0000;
/** Bits of 0.5 as float32. From 0.5 to 1, float32 numbers have the distance of subnormal float16 numbers, 2^-24. */
const HALF = 0x3f00_0000;
/** Difference of the exponents of float32 and float16, 127 − 15, in the bits of a float16. */
const EXPONENT_DIFFERENCE = 112 << 10;

/**
 * Rounds float32 numbers to the nearest float16; of two equally near ones, to the even one. Numbers up to 2^-25 become 0.
 *
 * @returns Bits of the float16 numbers; or the index of the first number beyond {@link MAX_FLOAT16}, rounded, or NaN.
 */
export function toFloat16(values: Float32Array): Uint16Array | number {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const halves = new Uint16Array(values.length);
  const sum = new Float32Array(1);
  const sumBits = new Uint32Array(sum.buffer);
  for (let i = 0; i < values.length; i++) {
    const sign = (bits[i]! >>> 16) & 0x8000;
    const magnitude = bits[i]! & 0x7fff_ffff;
    if (magnitude >= OVERFLOW) return i;
    if (magnitude >= MIN_NORMAL) halves[i] = sign | (((magnitude + 0xfff + ((magnitude >>> 13) & 1)) >>> 13) - EXPONENT_DIFFERENCE);
    else {
      sum[0] = Math.abs(values[i]!) + 0.5;
      halves[i] = sign | (sumBits[0]! - HALF);
    }
  }
  return halves;
}
