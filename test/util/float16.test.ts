/** `test/export/element-encoders.test.ts` compares the same conversion with NumPy. */
import { expect, test } from "vitest";
import { ELEMENT_TYPES } from "../../src/engine/onnx/model/element-types.ts";
import { firstInfinite, MAX_FLOAT16, toFloat16 } from "../../src/base/util/float16.ts";

/** Returns the numbers with these float16 bits. */
const numbersOf = (halves: Uint16Array) => ELEMENT_TYPES["F16"]!.decode(new Uint8Array(halves.slice().buffer));
const rounded = (...values: number[]) => Array.from(numbersOf(toFloat16(Float32Array.from(values))));
/** Bits of all finite float16 numbers from 0, ascending. */
const POSITIVE = Uint16Array.from({ length: 0x7c00 }, (_, bits) => bits);

test("float16 numbers stay the same bits, with both signs", () => {
  expect(toFloat16(numbersOf(POSITIVE))).toEqual(POSITIVE);
  const negative = POSITIVE.map((bits) => bits | 0x8000);
  expect(toFloat16(numbersOf(negative))).toEqual(negative);
});

test("a number between two float16 numbers is rounded to the nearest, the middle to the even one", () => {
  const numbers = numbersOf(POSITIVE);
  const middles = Float32Array.from({ length: numbers.length - 1 }, (_, i) => (numbers[i]! + numbers[i + 1]!) / 2);
  const around = (factor: number) => toFloat16(middles.map((middle) => middle * factor));
  expect(toFloat16(middles)).toEqual(POSITIVE.subarray(0, -1).map((bits) => bits + (bits % 2)));
  expect(around(1 - 2 ** -20)).toEqual(POSITIVE.subarray(0, -1));
  expect(around(1 + 2 ** -20)).toEqual(POSITIVE.subarray(1));
});

test("numbers up to 2^-25 become 0, and numbers from 65,520 infinite", () => {
  expect(rounded(2 ** -25, 2 ** -25 * (1 + 2 ** -23), 2 ** -149, -(2 ** -26))).toEqual([0, 2 ** -24, 0, -0]);
  const large = toFloat16(Float32Array.of(1, 65_519, -65_519, -65_520, 7e4));
  expect(Array.from(numbersOf(large))).toEqual([1, MAX_FLOAT16, -MAX_FLOAT16, -Infinity, Infinity]);
  expect(firstInfinite(large)).toBe(3);
  expect(firstInfinite(large.subarray(0, 3))).toBe(-1);
});

test("bfloat16 numbers from 2^-17 to the largest float16 are exact", () => {
  const bits = Uint16Array.from({ length: 2 ** 16 }, (_, i) => i);
  const all = ELEMENT_TYPES["BF16"]!.decode(new Uint8Array(bits.buffer)).filter(
    (value) => Math.abs(value) >= 2 ** -17 && Math.abs(value) <= MAX_FLOAT16,
  );
  expect(all).toHaveLength(2 * 33 * 128);
  expect(numbersOf(toFloat16(all))).toEqual(all);
  // The next smaller bfloat16 number has bits below the smallest float16.
  expect(rounded(2 ** -17 * (1 - 2 ** -8))).toEqual([2 ** -17]);
});

test("converts a part of an array", () => {
  expect(toFloat16(Float32Array.of(9, 1, 2, 9).subarray(1, 3))).toEqual(Uint16Array.of(0x3c00, 0x4000));
});
