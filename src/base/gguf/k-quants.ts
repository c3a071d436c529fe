/**
 * Conversion of k-quants to float32: super-blocks of 256 elements, in which blocks of 16 or 32 elements have quantized scales.
 *
 * @source https://github.com/ggml-org/llama.cpp, `ggml/src/ggml-quants.c`
 */
import { readFloat16 } from "../util/float16.ts";

/** Elements per super-block. */
const SUPER = 256;

/** Decodes blocks of two float16 factors, 6-bit scales and minimums of 8 blocks, and 4-bit numbers q: `(d·s) · q − (dmin·m)`. */
export function q4K(from: DataView, to: Float32Array): void {
  for (let at = 0, out = 0; at < from.byteLength; at += 144, out += SUPER) {
    const d = readFloat16(from, at);
    const dMin = readFloat16(from, at + 2);
    for (let block = 0; block < 8; block++) {
      const scale = d * scaleOf(from, at + 4, block);
      const min = dMin * minOf(from, at + 4, block);
      const numbers = at + 16 + 32 * (block >> 1);
      const shift = 4 * (block & 1);
      for (let i = 0; i < 32; i++) to[out + 32 * block + i] = scale * ((from.getUint8(numbers + i) >> shift) & 15) - min;
    }
  }
}

/** Decodes blocks like {@link q4K}, with fifth bits in 32 separate bytes: bit `b` of byte `i` belongs to element `i` of block `b`. */
export function q5K(from: DataView, to: Float32Array): void {
  for (let at = 0, out = 0; at < from.byteLength; at += 176, out += SUPER) {
    const d = readFloat16(from, at);
    const dMin = readFloat16(from, at + 2);
    const high = at + 16;
    for (let block = 0; block < 8; block++) {
      const scale = d * scaleOf(from, at + 4, block);
      const min = dMin * minOf(from, at + 4, block);
      const numbers = at + 48 + 32 * (block >> 1);
      const shift = 4 * (block & 1);
      for (let i = 0; i < 32; i++) {
        const q = ((from.getUint8(numbers + i) >> shift) & 15) | (((from.getUint8(high + i) >> block) & 1) << 4);
        to[out + 32 * block + i] = scale * q - min;
      }
    }
  }
}

/** Decodes blocks of 4 lower and 2 upper bits per element, 16 signed 8-bit scales and a float16 factor: `(d·s) · (q − 32)`. */
export function q6K(from: DataView, to: Float32Array): void {
  for (let at = 0, out = 0; at < from.byteLength; at += 210, out += SUPER) {
    const d = readFloat16(from, at + 208);
    for (let half = 0; half < 2; half++) {
      const [low, high, scales, first] = [at + 64 * half, at + 128 + 32 * half, at + 192 + 8 * half, out + 128 * half];
      for (let quarter = 0; quarter < 4; quarter++) {
        const lowStart = low + 32 * (quarter & 1);
        const shift = 4 * (quarter >> 1);
        for (let i = 0; i < 32; i++) {
          const q = ((from.getUint8(lowStart + i) >> shift) & 15) | (((from.getUint8(high + i) >> (2 * quarter)) & 3) << 4);
          to[first + 32 * quarter + i] = d * from.getInt8(scales + 2 * quarter + (i >> 4)) * (q - 32);
        }
      }
    }
  }
}

/** Returns the 6-bit scale of a block. The 12 bytes hold scales 0–3, minimums 0–3, then nibbles of 4–7 with upper bits in the former. */
function scaleOf(from: DataView, at: number, block: number): number {
  return block < 4 ? from.getUint8(at + block) & 63 : (from.getUint8(at + block + 4) & 15) | ((from.getUint8(at + block - 4) >> 6) << 4);
}

/** Returns the 6-bit minimum of a block. */
function minOf(from: DataView, at: number, block: number): number {
  return block < 4 ? from.getUint8(at + block + 4) & 63 : (from.getUint8(at + block + 4) >> 4) | ((from.getUint8(at + block) >> 6) << 4);
}
