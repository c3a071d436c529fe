import { describe, expect, it } from "vitest";
import { consecutive, logRange, roundTicks, tickText, valueRange } from "../../src/lab/report/axis.ts";

const ticks = (from: number, step: number, count = 5) => Array.from({ length: count }, (_, index) => tickText(from + index * step, step));

describe("tick labels", () => {
  it.each([
    [1e-7, 2e-8, ["1e-7", "1.2e-7", "1.4e-7", "1.6e-7", "1.8e-7"]],
    [0, 0.25, ["0", "0.25", "0.5", "0.75", "1"]],
    [0.5, 0.0001, ["0.5", "0.5001", "0.5002", "0.5003", "0.5004"]],
    [12_000, 500, ["12k", "12.5k", "13k", "13.5k", "14k"]],
    [1_000_000, 50_000, ["1e+6", "1.05e+6", "1.1e+6", "1.15e+6", "1.2e+6"]],
  ] as const)("from %s in steps of %s are distinct", (from, step, expected) => {
    expect(ticks(from, step)).toEqual(expected);
  });
});

describe("value ranges", () => {
  it("pad the values, and scale a constant by its order of magnitude", () => {
    expect(valueRange(0, 1)).toEqual([-0.1, 1.1]);
    expect(valueRange(0, 0)).toEqual([0, 1]);
    expect(valueRange(2, 2)).toEqual([1.8, 2.2]);
    expect(valueRange(-4, -4)).toEqual([-4.4, -3.6]);
    const [low, high] = valueRange(6 - 1e-15, 6);
    expect(low).toBeCloseTo(5.4, 9);
    expect(high).toBeCloseTo(6.6, 9);
    expect(valueRange(null, null)).toEqual([0, 1]);
  });

  it("of a logarithmic axis are rounded outwards to one digit", () => {
    expect(logRange(25, 2600)).toEqual([20, 3000]);
    expect(logRange(7, 7)).toEqual([7, 8]);
    expect(logRange(null, null)).toEqual([1, 10]);
  });
});

describe("steps of the charts", () => {
  it("include steps without metrics, so that curves have gaps", () => {
    expect(consecutive([4, 1, 2, 4])).toEqual([1, 2, 3, 4]);
    expect(consecutive([])).toEqual([]);
  });
});

describe("round ticks", () => {
  it.each([
    [[0, 1], 6, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]],
    [[0, 20], 8, 1, [0, 5, 10, 15, 20]],
    [[0, 2], 8, 1, [0, 1, 2]],
    [[-0.04, 0.04], 4, 0, [-0.04, -0.02, 0, 0.02, 0.04]],
    [[1234, 5678], 6, 0, [2000, 3000, 4000, 5000]],
  ] as const)("of %j, at most %i intervals of at least %d", (range, count, minStep, expected) => {
    const { values } = roundTicks(range, count, minStep);
    expect(values.map((value) => Number(value.toPrecision(12)))).toEqual(expected);
  });
});
