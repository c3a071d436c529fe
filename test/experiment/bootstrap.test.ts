import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { bootstrapMean } from "../../src/lab/experiment/index.ts";

interface Expected {
  readonly rows: readonly {
    readonly values: readonly number[];
    readonly draws: number;
    readonly seed: number;
    readonly level: number;
    readonly mean: number;
    readonly standard_error: number;
    readonly low: number;
    readonly high: number;
  }[];
}
const { rows } = JSON.parse(readFileSync(join(import.meta.dirname, "bootstrap.json"), "utf8")) as Expected;

describe("the bootstrap of a mean", () => {
  it.each(rows.map((row) => [row.values.length, row.draws, row.seed, row.level, row] as const))(
    "of %i values, %i draws, seed %i and level %d agrees with NumPy to 1e-9 on the same draws",
    (_, draws, seed, level, row) => {
      const found = bootstrapMean(row.values, { draws, seed, level });
      for (const [got, expected] of [
        [found.mean, row.mean],
        [found.standardError, row.standard_error],
        [found.low, row.low],
        [found.high, row.high],
      ] as const) {
        expect(Math.abs(got - expected)).toBeLessThan(1e-9);
      }
      expect(found).toMatchObject({ level, count: row.values.length });
    },
  );

  it("has 95 % level, 10,000 draws and seed 0 by default", () => {
    const values = [0.3, 0.1, -0.2, 0.4];
    expect(bootstrapMean(values)).toEqual(bootstrapMean(values, { level: 0.95, draws: 10_000, seed: 0 }));
    expect(bootstrapMean(values, { seed: 1 })).not.toEqual(bootstrapMean(values));
  });

  it("has no interval for one value, and no mean without values", () => {
    expect(bootstrapMean([0.5])).toEqual({
      mean: 0.5,
      standardError: Number.NaN,
      low: Number.NaN,
      high: Number.NaN,
      level: 0.95,
      count: 1,
    });
    expect(bootstrapMean([])).toMatchObject({ mean: Number.NaN, count: 0 });
  });

  it.each([
    [[0, 1], { level: 1 }, "level"],
    [[0, 1], { draws: 0 }, "draws"],
    [[0, 1], { draws: 1.5 }, "draws"],
    [[0, 1], { seed: 0.5 }, "seed"],
    [[0, Number.NaN], {}, "values"],
  ] as const)("rejects %j with %j", (values, options, param) => {
    expect(() => bootstrapMean(values, options)).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }) as Error);
  });
});
