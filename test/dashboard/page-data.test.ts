import { describe, expect, it } from "vitest";
import { linesOf, sharedSteps, smoothed } from "../../src/page/components/series.ts";
import { mergeMetrics } from "../../src/page/dashboard/merge-metrics.ts";

const none = { steps: [], columns: {} };

describe("mergeMetrics", () => {
  it("replaces a known step, inserts a new one in order, and fills missing values with null", () => {
    const known = { train: { steps: [0, 1, 3], columns: { loss: [3, 2, 1], kl: [0, 0, 0] } }, eval: none };
    const added = { train: { steps: [1, 2], columns: { loss: [2.5, 1.5], reward: [0.1, 0.2] } }, eval: none };
    expect(mergeMetrics(known, added)).toEqual({
      train: {
        steps: [0, 1, 2, 3],
        columns: { kl: [0, null, null, 0], loss: [3, 2.5, 1.5, 1], reward: [null, 0.1, 0.2, null] },
      },
      eval: none,
    });
  });

  it("returns the same columns if nothing was added, so that no chart is drawn again", () => {
    const known = { train: { steps: [0], columns: { loss: [1] } }, eval: none };
    expect(mergeMetrics(known, { train: none, eval: none }).train).toBe(known.train);
  });
});

describe("lines of several runs", () => {
  const run = (name: string, steps: readonly number[], reward: readonly number[]) => ({
    name,
    metrics: { train: { steps, columns: { reward, std: reward } }, eval: { steps, columns: { reward } } },
  });
  const choice = { key: "reward", band: "std", splits: ["train", "eval"] } as const;

  it("share the steps of all runs, with gaps, one color per run and no band", () => {
    const runs = [run("a", [0, 2], [1, 3]), run("b", [1], [5])];
    const steps = sharedSteps(runs);
    expect(steps).toEqual([0, 1, 2]);
    const lines = linesOf(runs, steps, choice);
    expect(lines.map(({ name, values, band, color }) => [name, values, band, color])).toEqual([
      ["a", [1, null, 3], null, "run-0"],
      ["a (eval)", [1, null, 3], null, "run-0"],
      ["b", [null, 5, null], null, "run-1"],
      ["b (eval)", [null, 5, null], null, "run-1"],
    ]);
  });

  it("have a band and are named by their split if there is only one run", () => {
    const runs = [run("a", [0, 1], [1, 3])];
    expect(linesOf(runs, sharedSteps(runs), choice).map(({ name, band }) => [name, band])).toEqual([
      ["train", [1, 3]],
      ["eval", null],
    ]);
  });
});

describe("smoothed", () => {
  it("is the exponential mean with bias correction, which skips gaps", () => {
    // Weights 0.5: (0.5·2 + 0.25·0) / 0.75 after two values, as in Adam's bias correction.
    expect(smoothed([0, null, 2], 0.5)).toEqual([0, null, 1 / 0.75]);
  });
});
