/** Comparison of typed arrays in matchers such as `toEqual`: element by element, a million numbers take 2.5 s of CPU time. */
import { expect } from "vitest";

let isRegistered = false;

/** Makes matchers compare the bytes of typed arrays before they compare elements. Files of one fork share their matchers. */
export function compareTypedArraysByBytes(): void {
  if (!isRegistered) expect.addEqualityTesters([haveEqualBytes]);
  isRegistered = true;
}

/** Returns true for typed arrays of one type with equal bytes. All other values are left to the matcher: NaN has several encodings. */
function haveEqualBytes(a: unknown, b: unknown): boolean | undefined {
  if (!ArrayBuffer.isView(a) || !ArrayBuffer.isView(b)) return undefined;
  const hasSameType = Object.getPrototypeOf(a) === Object.getPrototypeOf(b);
  return hasSameType && Buffer.compare(bytesOf(a), bytesOf(b)) === 0 ? true : undefined;
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array => new Uint8Array(buffer, byteOffset, byteLength);
