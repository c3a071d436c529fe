import { fc, test } from "@fast-check/vitest";
import { expect } from "vitest";
import { firstNonFinite } from "../../src/base/util/finite.ts";

test.prop([fc.integer({ min: 0, max: 9000 }), fc.constantFrom(NaN, Infinity, -Infinity), fc.nat(9000), fc.nat(9000)], { numRuns: 100 })(
  "finds the first element in the range that is not finite",
  (length, value, first, second) => {
    const values = Float32Array.from({ length }, (_, i) => (i % 2 ? -3.4e38 : 1e-45));
    expect(firstNonFinite(values)).toBe(-1);
    for (const at of [first, second]) if (at < length) values[at] = value;
    const expected = values.findIndex((each) => !Number.isFinite(each));
    expect(firstNonFinite(values)).toBe(expected);
    if (expected < 0) return;
    expect(firstNonFinite(values, 0, expected)).toBe(-1);
    expect(firstNonFinite(values, expected, expected + 1)).toBe(expected);
  },
);
