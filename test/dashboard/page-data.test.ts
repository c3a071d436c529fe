import { describe, expect, it, vi } from "vitest";
import { deferred } from "../../src/base/util/deferred.ts";
import { linesOf, smoothed } from "../../src/lab/page/components/series.ts";
import { axisOf, hasAxis } from "../../src/lab/page/components/x-axis.ts";
import type { Page, RunSummary, TrajectoryRow } from "../../src/lab/dashboard/api.ts";
import { addedRuns } from "../../src/lab/page/dashboard/added-runs.ts";
import { FetchedRows } from "../../src/lab/page/dashboard/fetched-rows.ts";
import { mergeMetrics } from "../../src/lab/page/dashboard/merge-metrics.ts";
import { columnOf, settingChoices, sortedRuns } from "../../src/lab/page/dashboard/run-columns.ts";

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
    const axis = axisOf(runs, "step");
    expect(axis.xs).toEqual([0, 1, 2]);
    const lines = linesOf(runs, axis, choice);
    expect(lines.map(({ name, values, band, color }) => [name, values, band, color])).toEqual([
      ["a", [1, null, 3], null, "run-0"],
      ["a (eval)", [1, null, 3], null, "run-0"],
      ["b", [null, 5, null], null, "run-1"],
      ["b (eval)", [null, 5, null], null, "run-1"],
    ]);
  });

  it("have a band and are named by their split if there is only one run", () => {
    const runs = [run("a", [0, 1], [1, 3])];
    expect(linesOf(runs, axisOf(runs, "step"), choice).map(({ name, band }) => [name, band])).toEqual([
      ["train", [1, 3]],
      ["eval", null],
    ]);
  });
});

describe("the horizontal axis", () => {
  const run = (tokens: readonly (number | null)[]) => ({
    name: "a",
    metrics: {
      train: { steps: tokens.map((_, at) => at), columns: { loss: tokens.map((_, at) => at), "tokens/trained": tokens } },
      eval: { steps: [0, 2], columns: { loss: [9, 8] } },
    },
  });

  it("sums the tokens of the steps so far, and places an evaluation at the end of the steps before it", () => {
    const runs = [run([100, null, 50]), run([70])];
    const axis = axisOf(runs, "tokens");
    expect(axis.xs).toEqual([0, 70, 100, 150]);
    const lines = linesOf(runs, axis, { key: "loss", band: null, splits: ["train", "eval"] });
    // The step without tokens stands at the same place as the step before it, and the later one is drawn.
    expect(lines[0]?.values).toEqual([undefined, undefined, 1, 2]);
    expect(lines[1]?.values).toEqual([9, undefined, 8, undefined]);
    expect(lines[2]?.values).toEqual([undefined, 0, undefined, undefined]);
    expect(axis.text(150)).toBe("150 tokens");
  });

  it("is not available if a run lacks the metric", () => {
    expect([hasAxis([run([1])], "tokens"), hasAxis([run([1])], "time"), hasAxis([run([1])], "step")]).toEqual([true, false, true]);
  });

  it("shows time in the unit that fits the longest run", () => {
    const timed = { metrics: { train: { steps: [0, 1], columns: { "time/step_seconds": [90, 90] } }, eval: { steps: [], columns: {} } } };
    const axis = axisOf([timed], "time");
    expect([axis.xs, axis.text(axis.xs[1]!)]).toEqual([[1.5, 3], "3 min"]);
  });
});

describe("the runs that are shown together with another one", () => {
  it("are those in the address, in order and each once, also before their metrics have arrived", () => {
    expect(addedRuns(new URLSearchParams("with=b,a,,c,b"), "a")).toEqual(["b", "c"]);
    expect(addedRuns(new URLSearchParams(), "a")).toEqual([]);
  });
});

describe("the columns of the list of runs", () => {
  const run = (name: string, reward: number | null, ...config: [string, string][]) => ({ name, reward, config }) as unknown as RunSummary;
  const runs = [run("a", 0.5, ["rank", "16"], ["seed", "1"]), run("b", null, ["seed", "1"]), run("c", 0.9, ["rank", "8"], ["seed", "1"])];
  const sorted = (id: string, order: "ascending" | "descending") => sortedRuns(runs, columnOf(id)!, order).map(({ name }) => name);

  it("sort numbers by size, with runs without a value last in both orders", () => {
    expect(sorted("reward", "ascending")).toEqual(["a", "c", "b"]);
    expect(sorted("reward", "descending")).toEqual(["c", "a", "b"]);
    expect(sorted("config.rank", "ascending")).toEqual(["c", "a", "b"]);
    expect(sorted("config.seed", "descending")).toEqual(["a", "b", "c"]);
  });

  it("list the settings in which the runs differ first, also one that a run lacks", () => {
    expect(settingChoices(runs)).toEqual([
      { name: "rank", isDifferent: true },
      { name: "seed", isDifferent: false },
    ]);
  });
});

describe("the fetched rows of a list", () => {
  const step = { split: "train", step: 3, count: 2 } as const;
  const item = { split: "train", step: 3, line: 1, index: 0 } as TrajectoryRow;

  /** Requests the first page of the step. */
  function load() {
    const answer = deferred<Page<TrajectoryRow>>();
    const listener = { onPage: vi.fn(), onFail: vi.fn() };
    const rows = new FetchedRows(() => answer.promise, listener);
    rows.load(step, 0);
    return { answer, listener, rows };
  }

  it("are there once their page has arrived, with the number of rows of the answer", async () => {
    const { answer, listener, rows } = load();
    expect([rows.countOf(step), rows.row(step, 0)]).toEqual([null, undefined]);
    answer.resolve({ items: [item], offset: 0, total: 1 });
    await vi.waitFor(() => expect(listener.onPage).toHaveBeenCalledTimes(1));
    expect([rows.countOf(step), rows.row(step, 0), rows.offsetOf(item)]).toEqual([1, item, 0]);
  });

  it("do not change by an answer that arrives after the list was closed", async () => {
    const { answer, listener, rows } = load();
    rows.close();
    answer.resolve({ items: [item], offset: 0, total: 1 });
    await answer.promise;
    expect(listener.onPage).not.toHaveBeenCalled();
    expect(rows.countOf(step)).toBeNull();
  });
});

describe("smoothed", () => {
  it("is the exponential mean with bias correction, which skips gaps", () => {
    // Weights 0.5: (0.5·2 + 0.25·0) / 0.75 after two values, as in Adam's bias correction.
    expect(smoothed([0, null, 2], 0.5)).toEqual([0, null, 1 / 0.75]);
  });
});
