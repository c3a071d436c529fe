/**
 * Quantized tensors in blocks of 32 elements of a row: an element is `scale · (q − 2^(bits − 1)) + offset`, with a float32 scale and, if
 * any block has one, a float32 offset per block. `q − 2^(bits − 1)` is called the level of the element.
 */
import { nearestFloat16 } from "../util/float16.ts";

/** Elements of a block. */
export const BLOCK_ELEMENTS = 32;

/** Bits of an element. */
export type BlockBits = 4 | 8;

/** Rows in blocks. A row that is no multiple of 32 elements long ends with a block padded with zeros. */
export interface BlockTensor {
  readonly bits: BlockBits;
  /** Quantized elements, `[rows, blocks, 4 · bits]`: bytes, or pairs of 4-bit numbers with the first of a pair in the lower bits. */
  readonly q: Uint8Array;
  /** Scales, `[rows, blocks]`. */
  readonly scales: Float32Array;
  /** Offsets, `[rows, blocks]`; null if all are 0. */
  readonly offsets: Float32Array | null;
}

/** Writer of a tensor in blocks. Blocks may be written in any order; a block that is not written stays 0. */
export class BlockWriter {
  readonly bits: BlockBits;
  readonly #q: Uint8Array;
  readonly #scales: Float32Array;
  #offsets: Float32Array | null = null;

  /**
   * @param bits - Bits of an element.
   * @param count - Number of blocks.
   */
  constructor(bits: BlockBits, count: number) {
    this.bits = bits;
    this.#q = new Uint8Array(count * (BLOCK_ELEMENTS / 8) * bits);
    this.#scales = new Float32Array(count);
  }

  /** Tensor as written so far. */
  get tensor(): BlockTensor {
    return { bits: this.bits, q: this.#q, scales: this.#scales, offsets: this.#offsets };
  }

  /**
   * Writes a block.
   *
   * @param block - Index of the block.
   * @param levels - 32 integers from `−2^(bits − 1)` to `2^(bits − 1) − 1`.
   */
  write(block: number, levels: Int8Array, scale: number, offset: number): void {
    this.#scales[block] = scale;
    if (offset !== 0) {
      this.#offsets ??= new Float32Array(this.#scales.length);
      this.#offsets[block] = offset;
    }
    const q = this.#q;
    if (this.bits === 8) {
      const firstByte = block * BLOCK_ELEMENTS;
      for (let i = 0; i < BLOCK_ELEMENTS; i++) q[firstByte + i] = levels[i]! + 128;
      return;
    }
    const firstByte = (block * BLOCK_ELEMENTS) / 2;
    for (let i = 0; i < BLOCK_ELEMENTS; i += 2) q[firstByte + i / 2] = (levels[i]! + 8) | ((levels[i + 1]! + 8) << 4);
  }
}

/**
 * Converts consecutive blocks to float32.
 *
 * @param firstBlock - Index of the first block.
 * @param output - Written in full; its length, a multiple of 32, determines the number of blocks.
 */
export function dequantize({ bits, q, scales, offsets }: BlockTensor, firstBlock: number, output: Float32Array): void {
  const zero = 2 ** (bits - 1);
  for (let out = 0, block = firstBlock; out < output.length; block++) {
    const [scale, offset] = [scales[block]!, offsets?.[block] ?? 0];
    const start = block * BLOCK_ELEMENTS;
    for (let i = start; i < start + BLOCK_ELEMENTS; i++, out++) {
      const level = (bits === 8 ? q[i]! : (q[i >> 1]! >> (4 * (i & 1))) & 15) - zero;
      output[out] = Math.fround(scale * level) + offset;
    }
  }
}

/**
 * Quantizes a block of finite numbers as llama.cpp does for `Q4_0` (4 bits: the scale is the number of largest magnitude, divided by −8) or
 * `Q8_0` (8 bits: the largest magnitude, divided by 127).
 *
 * @param values - 32 numbers.
 * @param levels - 32 integers, written: `values ≈ scale · levels`.
 * @returns The scale, rounded to float16; infinite if it is beyond the range of float16.
 * @source https://github.com/ggml-org/ggml, `quantize_row_q4_0_ref` and `quantize_row_q8_0_ref`
 */
export function roundBlock(bits: BlockBits, values: Float32Array, levels: Int8Array): number {
  let largestMagnitude = 0;
  let largestValue = 0;
  for (let i = 0; i < BLOCK_ELEMENTS; i++) {
    const magnitude = Math.abs(values[i]!);
    if (magnitude <= largestMagnitude) continue;
    largestMagnitude = magnitude;
    largestValue = values[i]!;
  }
  // As in llama.cpp, levels are rounded with the float32 scale, and only the returned scale is rounded to float16.
  const scale = Math.fround(bits === 4 ? largestValue / -8 : largestMagnitude / 127);
  const inverse = scale === 0 ? 0 : Math.fround(1 / scale);
  if (bits === 4) {
    for (let i = 0; i < BLOCK_ELEMENTS; i++) levels[i] = Math.min(15, Math.trunc(Math.fround(Math.fround(values[i]! * inverse) + 8.5))) - 8;
  } else {
    for (let i = 0; i < BLOCK_ELEMENTS; i++) {
      const scaled = Math.fround(values[i]! * inverse);
      levels[i] = scaled < 0 ? -Math.floor(0.5 - scaled) : Math.floor(scaled + 0.5);
    }
  }
  return nearestFloat16(scale);
}
