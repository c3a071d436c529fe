/** Conversion of float32 weights to the element types of exported files. */
import { UnsupportedError } from "../errors.ts";

/** Element type of exported weights: `q8_0` exists only in GGUF, in blocks of 32 elements with a common scale. */
export type ExportDtype = "float32" | "float16" | "bfloat16" | "q8_0";

/** Encoder of one element type. */
export interface ElementEncoder {
  /** Number of elements that are encoded together; every row of a tensor has a multiple of this number. */
  readonly blockLength: number;
  /** Bytes per block. */
  readonly blockBytes: number;
  /**
   * Encodes finite values, little-endian, rounded to nearest, ties to even.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` for a value that is out of the type's range.
   */
  readonly encode: (values: Float32Array) => Uint8Array;
}

/** Elements of a block of Q8_0. */
const Q8_BLOCK = 32;

/** Encoders by element type. */
export const ENCODERS: Readonly<Record<ExportDtype, ElementEncoder>> = {
  float32: { blockLength: 1, blockBytes: 4, encode: (values) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength) },
  float16: { blockLength: 1, blockBytes: 2, encode: toFloat16 },
  bfloat16: { blockLength: 1, blockBytes: 2, encode: toBfloat16 },
  q8_0: { blockLength: Q8_BLOCK, blockBytes: Q8_BLOCK + 2, encode: toQ8 },
};

/** Returns the encoded size of `count` elements in bytes. */
export function encodedBytes({ blockLength, blockBytes }: ElementEncoder, count: number): number {
  return (count / blockLength) * blockBytes;
}

/** Returns the bits of the values; both arrays share memory. */
function bitsOf(values: Float32Array): Uint32Array {
  return new Uint32Array(values.buffer, values.byteOffset, values.length);
}

function bytesOf(elements: Uint16Array): Uint8Array {
  return new Uint8Array(elements.buffer);
}

/** Encodes to the upper 16 bits of float32. */
function toBfloat16(values: Float32Array): Uint8Array {
  const encoded = Uint16Array.from(bitsOf(values), (bits) => (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16);
  requireRange(values, encoded, 0x7f80, "bfloat16");
  return bytesOf(encoded);
}

/** Encodes to IEEE 754 half precision: 1 sign, 5 exponent and 10 fraction bits. */
function toFloat16(values: Float32Array): Uint8Array {
  const bits = bitsOf(values);
  const encoded = new Uint16Array(values.length);
  for (let i = 0; i < encoded.length; i++) encoded[i] = float16Of(bits[i]!, values[i]!);
  requireRange(values, encoded, 0x7c00, "float16");
  return bytesOf(encoded);
}

/** Smallest normal number of half precision. */
const MIN_NORMAL = 2 ** -14;
/** Adding and subtracting this number rounds a smaller positive number to an integer, ties to even. */
const TO_INTEGER = 2 ** 52;

function float16Of(bits: number, value: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = Math.abs(value);
  if (magnitude < MIN_NORMAL) return sign | (magnitude * 2 ** 24 + TO_INTEGER - TO_INTEGER);
  const positive = bits & 0x7fffffff;
  // 0x38000000 is the difference of the exponent biases, 127 − 15, in the position of the exponent.
  const rounded = (positive + 0xfff + ((positive >>> 13) & 1) - 0x38000000) >>> 13;
  return sign | Math.min(rounded, 0x7c00);
}

/** Requires that no finite value was rounded to infinity, which has all exponent bits set. */
function requireRange(values: Float32Array, encoded: Uint16Array, exponent: number, type: string): void {
  const index = encoded.findIndex((bits) => (bits & exponent) === exponent);
  if (index >= 0)
    throw new UnsupportedError(`Expected weights in the range of ${type}, got ${values[index]} at element ${index}: export another dtype`, {
      param: "dtype",
    });
}

/**
 * Encodes blocks of 32 elements as a half-precision scale `max|x| / 127` and 32 signed bytes `x / scale`, rounded half away from zero.
 *
 * @source https://github.com/ggml-org/ggml, `quantize_row_q8_0_ref`
 */
function toQ8(values: Float32Array): Uint8Array {
  const blocks = values.length / Q8_BLOCK;
  const scales = new Float32Array(blocks);
  const encoded = new Uint8Array(blocks * (Q8_BLOCK + 2));
  for (let block = 0; block < blocks; block++) {
    const start = block * Q8_BLOCK;
    let max = 0;
    for (let i = start; i < start + Q8_BLOCK; i++) max = Math.max(max, Math.abs(values[i]!));
    scales[block] = max / 127;
    const inverse = scales[block] === 0 ? 0 : Math.fround(1 / scales[block]!);
    for (let i = 0; i < Q8_BLOCK; i++) {
      const scaled = Math.fround(values[start + i]! * inverse);
      encoded[block * (Q8_BLOCK + 2) + 2 + i] = Math.sign(scaled) * Math.floor(Math.abs(scaled) + 0.5);
    }
  }
  const halves = toFloat16(scales);
  for (let block = 0; block < blocks; block++) encoded.set(halves.subarray(block * 2, block * 2 + 2), block * (Q8_BLOCK + 2));
  return encoded;
}
