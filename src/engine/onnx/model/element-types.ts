/** Element types of weight files, with finiteness checks and conversion to float32. */
import { firstNonFinite } from "../../../base/util/finite.ts";
import { readFloat16 } from "../../../base/util/float16.ts";

/** Supported element type. */
export interface TensorType {
  /** Bytes per element. */
  readonly width: number;
  /** Returns the index of the first element that is NaN or infinite; −1 if all elements are finite. */
  readonly findNonFinite: (raw: ArrayBuffer) => number;
  /** Converts the elements to float32, without rounding. */
  readonly decode: (raw: ArrayBuffer) => Float32Array;
}

/** Supported element types by their name in safetensors. */
export const ELEMENT_TYPES: Readonly<Record<string, TensorType>> = {
  F32: { width: 4, findNonFinite: (raw) => firstNonFinite(new Float32Array(raw)), decode: (raw) => new Float32Array(raw) },
  F16: { width: 2, findNonFinite: (raw) => firstWithExponent(raw, 0x7c00), decode: fromFloat16 },
  BF16: { width: 2, findNonFinite: (raw) => firstWithExponent(raw, 0x7f80), decode: fromBfloat16 },
};

/** Returns the index of the first 16-bit element with all bits of the mask `exponent` set (NaN or infinity), or −1. */
function firstWithExponent(raw: ArrayBuffer, exponent: number): number {
  const bits = new Uint16Array(raw);
  for (let i = 0; i < bits.length; i++) if ((bits[i]! & exponent) === exponent) return i;
  return -1;
}

/** Decodes bfloat16, the upper half of a float32. */
function fromBfloat16(raw: ArrayBuffer): Float32Array {
  const view = new DataView(raw);
  const bits = new Uint32Array(raw.byteLength / 2);
  for (let i = 0; i < bits.length; i++) bits[i] = view.getUint16(2 * i, true) << 16;
  return new Float32Array(bits.buffer);
}

/** Decodes IEEE 754 half precision. */
function fromFloat16(raw: ArrayBuffer): Float32Array {
  const view = new DataView(raw);
  const values = new Float32Array(raw.byteLength / 2);
  for (let i = 0; i < values.length; i++) values[i] = readFloat16(view, 2 * i);
  return values;
}
