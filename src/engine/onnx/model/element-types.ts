/** Element types of weight files, with finiteness checks and conversion to float32. */
import { firstNonFinite } from "../../../base/util/finite.ts";
import { readFloat16 } from "../../../base/util/float16.ts";

/** Supported element type. */
export interface TensorType {
  /** Bytes per element. */
  readonly width: number;
  /** Returns the index of the first element that is NaN or infinite; −1 if all elements are finite. */
  readonly findNonFinite: (raw: Uint8Array) => number;
  /** Converts the elements to float32, without rounding. The result may be a view of them. */
  readonly decode: (raw: Uint8Array) => Float32Array;
}

/** Supported element types by their name in safetensors. */
export const ELEMENT_TYPES: Readonly<Record<string, TensorType>> = {
  F32: { width: 4, findNonFinite: (raw) => firstNonFinite(asFloat32(raw)), decode: asFloat32 },
  F16: { width: 2, findNonFinite: (raw) => firstWithExponent(raw, 0x7c00), decode: fromFloat16 },
  BF16: { width: 2, findNonFinite: (raw) => firstWithExponent(raw, 0x7f80), decode: fromBfloat16 },
};

function asFloat32({ buffer, byteOffset, byteLength }: Uint8Array): Float32Array {
  return new Float32Array(buffer, byteOffset, byteLength / 4);
}

/** Returns the index of the first 16-bit element with all bits of the mask `exponent` set (NaN or infinity), or −1. */
function firstWithExponent({ buffer, byteOffset, byteLength }: Uint8Array, exponent: number): number {
  const bits = new Uint16Array(buffer, byteOffset, byteLength / 2);
  for (let i = 0; i < bits.length; i++) if ((bits[i]! & exponent) === exponent) return i;
  return -1;
}

/** Decodes bfloat16, the upper half of a float32. */
function fromBfloat16({ buffer, byteOffset, byteLength }: Uint8Array): Float32Array {
  const halves = new Uint16Array(buffer, byteOffset, byteLength / 2);
  const bits = new Uint32Array(halves.length);
  for (let i = 0; i < bits.length; i++) bits[i] = halves[i]! << 16;
  return new Float32Array(bits.buffer);
}

/** Decodes IEEE 754 half precision. */
function fromFloat16(raw: Uint8Array): Float32Array {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const values = new Float32Array(raw.byteLength / 2);
  for (let i = 0; i < values.length; i++) values[i] = readFloat16(view, 2 * i);
  return values;
}
