/** Conversion of float32 weights to the element types of exported files. */
import { UnsupportedError } from "../base/errors.ts";
import { toFloat16 } from "../base/util/float16.ts";

/** Element type of exported weights: `q8_0` exists only in GGUF, in blocks of 32 elements with a common scale. */
export type ExportDtype = "float32" | "float16" | "bfloat16" | "q8_0";

/** Encoder of one element type. */
export interface ElementEncoder {
  /** Number of elements that are encoded together; every row of a tensor has a multiple of this number. */
  readonly blockLength: number;
  /** Bytes per block. */
  readonly blockBytes: number;
  /**
   * Encodes finite values, little-endian, rounded to nearest: ties to even, or with `q8_0` away from zero.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` for a value that is out of the type's range.
   */
  readonly encode: (values: Float32Array) => Uint8Array;
}

/** Elements of a block of Q8_0. */
const Q8_BLOCK = 32;
/** Bytes of a block of Q8_0: a float16 scale and the elements. */
const Q8_BLOCK_BYTES = Q8_BLOCK + 2;

/** Encoders by element type. */
export const ENCODERS: Readonly<Record<ExportDtype, ElementEncoder>> = {
  float32: { blockLength: 1, blockBytes: 4, encode: (values) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength) },
  float16: { blockLength: 1, blockBytes: 2, encode: encodeFloat16 },
  bfloat16: { blockLength: 1, blockBytes: 2, encode: encodeBfloat16 },
  q8_0: { blockLength: Q8_BLOCK, blockBytes: Q8_BLOCK_BYTES, encode: encodeQ8 },
};

/** Returns the encoded size of `count` elements in bytes. */
export function encodedBytes({ blockLength, blockBytes }: ElementEncoder, count: number): number {
  return (count / blockLength) * blockBytes;
}

/** Returns the bits of the values; both arrays share memory. */
function bitsOf(values: Float32Array): Uint32Array {
  return new Uint32Array(values.buffer, values.byteOffset, values.length);
}

/** Returns the bytes of 16-bit elements, in little-endian order as every supported platform has it. */
function bytesOf(elements: Uint16Array): Uint8Array {
  return new Uint8Array(elements.buffer);
}

/** Encodes to the upper 16 bits of float32, rounded to nearest, ties to even. */
function encodeBfloat16(values: Float32Array): Uint8Array {
  const encoded = Uint16Array.from(bitsOf(values), (bits) => (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16);
  requireRange(values, encoded, 0x7f80, "bfloat16");
  return bytesOf(encoded);
}

/** Encodes to IEEE 754 half precision. */
function encodeFloat16(values: Float32Array): Uint8Array {
  const encoded = toFloat16(values);
  requireRange(values, encoded, 0x7c00, "float16");
  return bytesOf(encoded);
}

/** Requires that no finite value was rounded to infinity, which has all bits of `exponentMask` set. */
function requireRange(values: Float32Array, encoded: Uint16Array, exponentMask: number, type: string): void {
  const index = encoded.findIndex((bits) => (bits & exponentMask) === exponentMask);
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
function encodeQ8(values: Float32Array): Uint8Array {
  const blocks = values.length / Q8_BLOCK;
  const scales = new Float32Array(blocks);
  const encoded = new Uint8Array(blocks * Q8_BLOCK_BYTES);
  for (let block = 0; block < blocks; block++) {
    const start = block * Q8_BLOCK;
    let maxMagnitude = 0;
    for (let i = start; i < start + Q8_BLOCK; i++) maxMagnitude = Math.max(maxMagnitude, Math.abs(values[i]!));
    scales[block] = maxMagnitude / 127;
    const inverse = scales[block] === 0 ? 0 : Math.fround(1 / scales[block]!);
    for (let i = 0; i < Q8_BLOCK; i++) {
      const scaled = Math.fround(values[start + i]! * inverse);
      encoded[block * Q8_BLOCK_BYTES + 2 + i] = Math.sign(scaled) * Math.floor(Math.abs(scaled) + 0.5);
    }
  }
  const halves = encodeFloat16(scales);
  for (let block = 0; block < blocks; block++) encoded.set(halves.subarray(block * 2, block * 2 + 2), block * Q8_BLOCK_BYTES);
  return encoded;
}
