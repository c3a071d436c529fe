/**
 * Conversion of k-quants to float32: super-blocks of 256 elements, in which blocks of 16 or 32 elements have quantized scales.
 *
 * @source https://github.com/ggml-org/llama.cpp, `ggml/src/ggml-quants.c`
 */
import { readFloat16 } from "../util/float16.ts";

/** Elements per super-block. */
const SUPER_BLOCK = 256;

/**
 * Decodes super-blocks of 144 bytes: float16 factors `d` and `dmin`, 6-bit scales `s` and minimums `m` of 8 blocks in 12 bytes, and 4-bit
 * numbers `q`, those of blocks `2k` and `2k + 1` in the lower and upper halves of the same 32 bytes. An element is `(d·s) · q − (dmin·m)`.
 */
export function q4K(from: DataView, to: Float32Array): void {
  for (let offset = 0, out = 0; offset < from.byteLength; offset += 144, out += SUPER_BLOCK) {
    const d = readFloat16(from, offset);
    const dMin = readFloat16(from, offset + 2);
    for (let block = 0; block < 8; block++) {
      const scale = d * scaleOf(from, offset + 4, block);
      const min = dMin * minOf(from, offset + 4, block);
      const nibbles = offset + 16 + 32 * (block >> 1);
      const shift = 4 * (block & 1);
      for (let i = 0; i < 32; i++) to[out + 32 * block + i] = scale * ((from.getUint8(nibbles + i) >> shift) & 15) - min;
    }
  }
}

/** Visits the blocks of {@link q4K} as levels `q − 8` with the offset `8·(d·s) − (dmin·m)`. */
export function levels4K(from: DataView, visit: (levels: Int8Array, scale: number, offset: number) => void): void {
  const levels = new Int8Array(32);
  for (let start = 0; start < from.byteLength; start += 144) {
    const [d, dMin] = [readFloat16(from, start), readFloat16(from, start + 2)];
    for (let block = 0; block < 8; block++) {
      const scale = d * scaleOf(from, start + 4, block);
      const nibbles = start + 16 + 32 * (block >> 1);
      const shift = 4 * (block & 1);
      for (let i = 0; i < 32; i++) levels[i] = ((from.getUint8(nibbles + i) >> shift) & 15) - 8;
      visit(levels, scale, 8 * scale - dMin * minOf(from, start + 4, block));
    }
  }
}

/**
 * Decodes super-blocks of 176 bytes, as {@link q4K} with fifth bits in 32 bytes before the 4-bit numbers: bit `b` of byte `i` belongs to
 * element `i` of block `b`.
 */
export function q5K(from: DataView, to: Float32Array): void {
  for (let offset = 0, out = 0; offset < from.byteLength; offset += 176, out += SUPER_BLOCK) {
    const d = readFloat16(from, offset);
    const dMin = readFloat16(from, offset + 2);
    const fifthBits = offset + 16;
    for (let block = 0; block < 8; block++) {
      const scale = d * scaleOf(from, offset + 4, block);
      const min = dMin * minOf(from, offset + 4, block);
      const nibbles = offset + 48 + 32 * (block >> 1);
      const shift = 4 * (block & 1);
      for (let i = 0; i < 32; i++) {
        const q = ((from.getUint8(nibbles + i) >> shift) & 15) | (((from.getUint8(fifthBits + i) >> block) & 1) << 4);
        to[out + 32 * block + i] = scale * q - min;
      }
    }
  }
}

/**
 * Decodes super-blocks of 210 bytes: 4 lower and 2 upper bits per element in 128 and 64 bytes, 16 signed 8-bit scales `s` and a float16
 * factor `d`. An element is `(d·s) · (q − 32)`.
 */
export function q6K(from: DataView, to: Float32Array): void {
  for (let offset = 0, out = 0; offset < from.byteLength; offset += 210, out += SUPER_BLOCK) {
    const d = readFloat16(from, offset + 208);
    for (let half = 0; half < 2; half++) {
      const lowerBits = offset + 64 * half;
      const upperBits = offset + 128 + 32 * half;
      const scales = offset + 192 + 8 * half;
      const firstElement = out + 128 * half;
      for (let quarter = 0; quarter < 4; quarter++) {
        const lowStart = lowerBits + 32 * (quarter & 1);
        const shift = 4 * (quarter >> 1);
        for (let i = 0; i < 32; i++) {
          const q = ((from.getUint8(lowStart + i) >> shift) & 15) | (((from.getUint8(upperBits + i) >> (2 * quarter)) & 3) << 4);
          to[firstElement + 32 * quarter + i] = d * from.getInt8(scales + 2 * quarter + (i >> 4)) * (q - 32);
        }
      }
    }
  }
}

/**
 * Returns the 6-bit scale of a block. The first 8 of 12 bytes hold, in their lower 6 bits, scales 0–3 and minimums 0–3. The last 4 bytes
 * hold the lower 4 bits of scale and minimum of each block 4–7, whose upper 2 bits are the upper bits of the first 8 bytes.
 */
function scaleOf(from: DataView, offset: number, block: number): number {
  return block < 4
    ? from.getUint8(offset + block) & 63
    : (from.getUint8(offset + block + 4) & 15) | ((from.getUint8(offset + block - 4) >> 6) << 4);
}

/** Returns the 6-bit minimum of a block, packed as {@link scaleOf} describes. */
function minOf(from: DataView, offset: number, block: number): number {
  return block < 4
    ? from.getUint8(offset + block + 4) & 63
    : (from.getUint8(offset + block + 4) >> 4) | ((from.getUint8(offset + block) >> 6) << 4);
}
