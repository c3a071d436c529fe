import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../src/base/errors.ts";
import { philox4x32, uniform } from "../../src/base/util/rng.ts";

describe("philox4x32", () => {
  // The known-answer vectors published with Random123 (kat_vectors, "philox4x32 10").
  it.each([
    { counter: [0, 0, 0, 0], key: [0, 0], expected: [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8] },
    {
      counter: [0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff],
      key: [0xffffffff, 0xffffffff],
      expected: [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
    },
    {
      counter: [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
      key: [0xa4093822, 0x299f31d0],
      expected: [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
    },
  ] as const)("returns the published result for counter $counter", ({ counter, key, expected }) => {
    expect(philox4x32(counter, key)).toEqual(expected);
  });
});

describe("uniform", () => {
  propertyTest.prop([fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }), fc.array(fc.nat(0xffffffff), { maxLength: 4 })])(
    "is strictly between 0 and 1 and a function of its arguments alone",
    (seed, counters) => {
      const value = uniform(seed, ...counters);
      expect(value).toBeGreaterThan(0);
      expect(value).toBeLessThan(1);
      expect(uniform(seed, ...counters)).toBe(value);
    },
  );

  it("treats a missing counter as 0 and a seed modulo 2^64", () => {
    expect(uniform(5n, 1)).toBe(uniform(5n, 1, 0, 0, 0));
    expect(uniform(-1n, 1)).toBe(uniform(2n ** 64n - 1n, 1));
    expect(uniform(5n, 1)).not.toBe(uniform(5n, 2));
    expect(uniform(5n, 1)).not.toBe(uniform(5n + 2n ** 32n, 1));
  });

  it("has the mean and variance of a uniform distribution", () => {
    const count = 20_000;
    let sum = 0;
    let squares = 0;
    for (let index = 0; index < count; index++) {
      const value = uniform(42n, index);
      sum += value;
      squares += value * value;
    }
    const mean = sum / count;
    // Five standard errors: sqrt(1/12/n) for the mean.
    expect(Math.abs(mean - 0.5)).toBeLessThan(5 * Math.sqrt(1 / 12 / count));
    expect(Math.abs(squares / count - mean * mean - 1 / 12)).toBeLessThan(0.003);
  });

  it.each([[[-1]], [[2 ** 32]], [[0.5]], [[Number.NaN]], [[0, 0, 0, 0, 0]]])("rejects the counters %j", (counters) => {
    expect(() => uniform(0n, ...counters)).toThrow(ArgumentError);
  });
});
