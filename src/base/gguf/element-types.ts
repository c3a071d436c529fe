/**
 * Element types of tensors in GGUF files, and their conversion to float32. In the 4-bit and 5-bit types of 32 elements per block, byte `i`
 * of the block's 16 bytes holds the lower 4 bits of element `i` in its lower half, and of element `i + 16` in its upper half.
 */
import { DataError, UnsupportedError } from "../errors.ts";
import { readFloat16 } from "../util/float16.ts";
import { levels4K, q4K, q5K, q6K } from "./k-quants.ts";

/**
 * Converts whole blocks to float32. Results equal those of `dequantize` in the Python package `gguf` bit by bit: every product is exact in
 * float32, so each element is rounded at most once.
 *
 * @param from - Bytes of whole blocks.
 * @param to - Written in full: as many elements as the blocks have.
 */
export type Decode = (from: DataView, to: Float32Array) => void;

/**
 * Visits each 32 elements of whole blocks as integers with a common scale and offset: an element is `scale · level + offset`, up to the
 * rounding of the offset to float32. The levels are valid only during the call.
 */
export type DecodeLevels = (from: DataView, visit: (levels: Int8Array, scale: number, offset: number) => void) => void;

/** Type of a tensor's elements: blocks of elements with common scales. */
export interface ElementType {
  readonly name: string;
  /** Elements per block. */
  readonly blockSize: number;
  /** Bytes per block. */
  readonly blockBytes: number;
  readonly decode: Decode;
  /** Elements as integers of a number of bits; absent for types in which 32 elements have no common scale. */
  readonly levels?: { readonly bits: number; readonly decode: DecodeLevels };
}

/** Supported types by their number in ggml. The decoders below step through the bytes of {@link ElementType.blockBytes}. */
const TYPES: ReadonlyMap<number, ElementType> = new Map([
  [0, { name: "F32", blockSize: 1, blockBytes: 4, decode: float32 }],
  [1, { name: "F16", blockSize: 1, blockBytes: 2, decode: float16 }],
  [2, { name: "Q4_0", blockSize: 32, blockBytes: 18, decode: q40, levels: { bits: 4, decode: levels40 } }],
  [3, { name: "Q4_1", blockSize: 32, blockBytes: 20, decode: q41, levels: { bits: 4, decode: levels41 } }],
  [6, { name: "Q5_0", blockSize: 32, blockBytes: 22, decode: q50 }],
  [7, { name: "Q5_1", blockSize: 32, blockBytes: 24, decode: q51 }],
  [8, { name: "Q8_0", blockSize: 32, blockBytes: 34, decode: q80, levels: { bits: 8, decode: levels80 } }],
  [12, { name: "Q4_K", blockSize: 256, blockBytes: 144, decode: q4K, levels: { bits: 4, decode: levels4K } }],
  [13, { name: "Q5_K", blockSize: 256, blockBytes: 176, decode: q5K }],
  [14, { name: "Q6_K", blockSize: 256, blockBytes: 210, decode: q6K }],
  [30, { name: "BF16", blockSize: 1, blockBytes: 2, decode: bfloat16 }],
]);

/** Names of ggml's other types, for error messages. */
const UNSUPPORTED_NAMES: Readonly<Record<number, string>> = {
  9: "Q8_1",
  10: "Q2_K",
  11: "Q3_K",
  15: "Q8_K",
  16: "IQ2_XXS",
  17: "IQ2_XS",
  18: "IQ3_XXS",
  19: "IQ1_S",
  20: "IQ4_NL",
  21: "IQ3_S",
  22: "IQ2_S",
  23: "IQ4_XS",
  24: "I8",
  25: "I16",
  26: "I32",
  27: "I64",
  28: "F64",
  29: "IQ1_M",
  34: "TQ1_0",
  35: "TQ2_0",
  39: "MXFP4",
  40: "NVFP4",
};

/**
 * Returns the element type with a number of ggml.
 *
 * @param where - File and tensor for error messages.
 * @throws UnsupportedError `E_UNSUPPORTED` naming a type of ggml that is not supported.
 * @throws DataError `E_DATA` for a number without a type.
 */
export function elementTypeOf(number: number, where: string): ElementType {
  const type = TYPES.get(number);
  if (type !== undefined) return type;
  const name = UNSUPPORTED_NAMES[number];
  if (name === undefined) throw new DataError(`${where}: expected the number of a type of ggml, got ${number}`);
  const names = [...TYPES.values()].map((each) => each.name).join(", ");
  throw new UnsupportedError(
    `${where}: type ${name} is not supported, ${names} are; choose a file in one of them, for example Q4_K_M or Q8_0`,
  );
}

/** Copies float32, which the file holds in little-endian order, as every supported platform does. */
function float32(from: DataView, to: Float32Array): void {
  new Uint8Array(to.buffer, to.byteOffset, to.byteLength).set(new Uint8Array(from.buffer, from.byteOffset, from.byteLength));
}

/** Decodes float16. */
function float16(from: DataView, to: Float32Array): void {
  for (let i = 0, offset = 0; i < to.length; i++, offset += 2) to[i] = readFloat16(from, offset);
}

/** Decodes bfloat16, the upper half of a float32. */
function bfloat16(from: DataView, to: Float32Array): void {
  const bits = new Uint32Array(to.buffer, to.byteOffset, to.length);
  for (let i = 0, offset = 0; i < bits.length; i++, offset += 2) bits[i] = from.getUint16(offset, true) << 16;
}

/** Decodes blocks of a float16 scale d and 16 bytes with two 4-bit numbers q each: `d · (q − 8)`. */
function q40(from: DataView, to: Float32Array): void {
  for (let offset = 0, out = 0; offset < from.byteLength; offset += 18, out += 32) {
    const d = readFloat16(from, offset);
    for (let i = 0; i < 16; i++) {
      const q = from.getUint8(offset + 2 + i);
      to[out + i] = d * ((q & 15) - 8);
      to[out + 16 + i] = d * ((q >> 4) - 8);
    }
  }
}

/** Decodes blocks of a float16 scale d, a float16 minimum m and 4-bit numbers q: `d · q + m`. */
function q41(from: DataView, to: Float32Array): void {
  for (let offset = 0, out = 0; offset < from.byteLength; offset += 20, out += 32) {
    const d = readFloat16(from, offset);
    const m = readFloat16(from, offset + 2);
    for (let i = 0; i < 16; i++) {
      const q = from.getUint8(offset + 4 + i);
      to[out + i] = d * (q & 15) + m;
      to[out + 16 + i] = d * (q >> 4) + m;
    }
  }
}

/** Decodes blocks of a float16 scale d, 32 fifth bits and 4-bit numbers, which form 5-bit numbers q: `d · (q − 16)`. */
function q50(from: DataView, to: Float32Array): void {
  for (let offset = 0, out = 0; offset < from.byteLength; offset += 22, out += 32) {
    const d = readFloat16(from, offset);
    const high = from.getUint32(offset + 2, true);
    for (let i = 0; i < 16; i++) {
      const q = from.getUint8(offset + 6 + i);
      to[out + i] = d * (((q & 15) | (((high >>> i) & 1) << 4)) - 16);
      to[out + 16 + i] = d * (((q >> 4) | (((high >>> (i + 16)) & 1) << 4)) - 16);
    }
  }
}

/** Decodes blocks of a float16 scale d, a float16 minimum m, 32 fifth bits and 4-bit numbers, which form 5-bit numbers q: `d · q + m`. */
function q51(from: DataView, to: Float32Array): void {
  for (let offset = 0, out = 0; offset < from.byteLength; offset += 24, out += 32) {
    const d = readFloat16(from, offset);
    const m = readFloat16(from, offset + 2);
    const high = from.getUint32(offset + 4, true);
    for (let i = 0; i < 16; i++) {
      const q = from.getUint8(offset + 8 + i);
      to[out + i] = d * ((q & 15) | (((high >>> i) & 1) << 4)) + m;
      to[out + 16 + i] = d * ((q >> 4) | (((high >>> (i + 16)) & 1) << 4)) + m;
    }
  }
}

/** Decodes blocks of a float16 scale d and 32 signed bytes q: `d · q`. */
function q80(from: DataView, to: Float32Array): void {
  for (let offset = 0, out = 0; offset < from.byteLength; offset += 34, out += 32) {
    const d = readFloat16(from, offset);
    for (let i = 0; i < 32; i++) to[out + i] = d * from.getInt8(offset + 2 + i);
  }
}

/** Visits blocks of {@link q40}. */
function levels40(from: DataView, visit: Parameters<DecodeLevels>[1]): void {
  const levels = new Int8Array(32);
  for (let offset = 0; offset < from.byteLength; offset += 18) {
    readNibbles(from, offset + 2, levels);
    visit(levels, readFloat16(from, offset), 0);
  }
}

/** Visits blocks of {@link q41}: `d · q + m` is `d · (q − 8) + (m + 8d)`. */
function levels41(from: DataView, visit: Parameters<DecodeLevels>[1]): void {
  const levels = new Int8Array(32);
  for (let offset = 0; offset < from.byteLength; offset += 20) {
    const d = readFloat16(from, offset);
    readNibbles(from, offset + 4, levels);
    visit(levels, d, readFloat16(from, offset + 2) + 8 * d);
  }
}

/** Reads 32 4-bit numbers less 8: the lower bits of 16 bytes, then the upper bits. */
function readNibbles(from: DataView, offset: number, levels: Int8Array): void {
  for (let i = 0; i < 16; i++) {
    const q = from.getUint8(offset + i);
    levels[i] = (q & 15) - 8;
    levels[16 + i] = (q >> 4) - 8;
  }
}

/** Visits blocks of {@link q80}. */
function levels80(from: DataView, visit: Parameters<DecodeLevels>[1]): void {
  for (let offset = 0; offset < from.byteLength; offset += 34)
    visit(new Int8Array(from.buffer, from.byteOffset + offset + 2, 32), readFloat16(from, offset), 0);
}
