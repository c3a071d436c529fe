import { describe, expect, it } from "vitest";
import { selectSteps } from "../../src/lab/report/select-steps.ts";

const range = (count: number) => Array.from({ length: count }, (_, index) => index);

describe("selectSteps", () => {
  it("selects the last, the first, the best, then the middle of the largest gap", () => {
    const rewards = new Map([
      [0, 0.1],
      [90, 0.8],
      [100, 0.5],
    ]);
    expect(selectSteps(range(101), { rewards, count: 5 })).toEqual([
      { step: 100, reason: "last" },
      { step: 0, reason: "first" },
      { step: 90, reason: "best" },
      { step: 45, reason: "spaced" },
      { step: 22, reason: "spaced" },
    ]);
  });

  it("selects every step once if all fit, in any input order", () => {
    const chosen = selectSteps([7, 3, 3, 5], { rewards: new Map([[7, 1]]), count: 10 });
    expect(chosen.map(({ step }) => step).toSorted((a, b) => a - b)).toEqual([3, 5, 7]);
  });

  it("selects 16 of 400 steps without a gap of more than 60", () => {
    const steps = selectSteps(range(400), { rewards: new Map(), count: 16 })
      .map(({ step }) => step)
      .toSorted((a, b) => a - b);
    expect(steps).toHaveLength(16);
    expect(Math.max(...steps.slice(1).map((step, index) => step - (steps[index] as number)))).toBeLessThanOrEqual(60);
  });

  it("selects the earliest of equal rewards, and nothing from an empty list", () => {
    const rewards = new Map(range(9).map((step) => [step, step === 3 || step === 5 ? 1 : 0]));
    expect(selectSteps(range(9), { rewards, count: 3 })[2]).toEqual({ step: 3, reason: "best" });
    expect(selectSteps([], { rewards, count: 3 })).toEqual([]);
    expect(selectSteps([1, 2], { rewards, count: 0 })).toEqual([]);
  });
});
