import { describe, expect, it } from "vitest";
import { bootstrapMean, compare, openRun, openRuns } from "../../src/lab/experiment/index.ts";
import { temporaryDirectory } from "../service/support.ts";
import { writeRunFiles, type RunContents } from "./run-files.ts";

async function runs(...contents: readonly RunContents[]) {
  const parent = await temporaryDirectory();
  const dirs = await Promise.all(contents.map((each, index) => writeRunFiles(`run-${index}`, each, parent)));
  return openRuns(dirs);
}
const steps = (...values: readonly number[]) => values.map((value, step) => ({ step, "reward/mean": value }));

describe("the comparison of runs", () => {
  it("pairs the scenarios of their last evaluations", async () => {
    const [a, b] = await runs(
      { evaluations: { 0: { x: [9], y: [9], z: [9] }, 5: { x: [0, 1], y: [0, 0], z: [1, 1] } } },
      { evaluations: { 8: { z: [1, 0], x: [1, 1], y: [1, 1] } } },
    );
    const found = await compare([a!, b!], { seed: 3 });
    expect(found).toMatchObject({ metric: "reward", by: "scenario", baseline: "run-0" });
    expect(found.runs.map(({ name, mean }) => [name, mean])).toEqual([
      ["run-0", 0.5],
      ["run-1", 2.5 / 3],
    ]);
    const differences = [0.5, 1, -0.5];
    expect(found.differences).toEqual([
      {
        name: "run-1",
        baseline: "run-0",
        pairs: ["x", "y", "z"].map((unit, index) => ({ unit, difference: differences[index] })),
        ...bootstrapMean(differences, { seed: 3 }),
      },
    ]);
    expect(found.table().column("difference")).toEqual([null, 1 / 3]);
  });

  it("narrows the interval by pairing", async () => {
    const scores = (shift: number) => Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`s${index}`, [index + shift]]));
    const found = await compare(await runs({ evaluations: { 1: scores(0) } }, { evaluations: { 1: scores(0.25) } }));
    expect(found.differences[0]).toMatchObject({ mean: 0.25, low: 0.25, high: 0.25 });
    expect(found.runs[0]!.high - found.runs[0]!.low).toBeGreaterThan(2);
  });

  it("compares two evaluations of one run, on any trajectory metric", async () => {
    const run = await openRun(await writeRunFiles("a", { evaluations: { 0: { x: [0, 1], y: [0.5] }, 4: { x: [1, 1], y: [1] } } }));
    const found = await compare([run.at(4), run.at(0)], { metric: "exact", baseline: 1 });
    expect(found.differences.map(({ name, mean }) => [name, mean])).toEqual([["a@4", 0.75]]);
    await expect(compare([run.at(0), run.at(4)], { metric: "exactly" })).rejects.toThrow(/no metric `exactly`; it has: reward, exact/);
  });

  it("leaves out pairs with a scenario that failed in one run, and counts them", async () => {
    const found = await compare(await runs({ evaluations: { 1: { x: [0], y: [1] } } }, { evaluations: { 1: { x: [1], y: null } } }));
    expect(found.runs.map(({ missing, count }) => [missing, count])).toEqual([
      [0, 2],
      [1, 1],
    ]);
    expect(found.differences[0]).toMatchObject({ mean: 1, count: 1 });
  });

  it("rejects different scenarios with the difference, instead of comparing unpaired means", async () => {
    const different = await runs({ evaluations: { 1: { x: [0], y: [1] } } }, { evaluations: { 1: { x: [1], z: [1], w: [0] } } });
    await expect(compare(different)).rejects.toMatchObject({
      code: "E_CONFIG",
      message: expect.stringContaining("`run-1` lacks 1 of them (y); `run-0` lacks 2 of them (z, w). Evaluate both on the same") as string,
    });
  });

  it("pairs training steps if a run has no evaluation", async () => {
    const all = await runs({ metrics: steps(0.1, 0.2, 0.3) }, { metrics: steps(0.2, 0.4, 0.6), evaluations: { 1: { x: [1] } } });
    const found = await compare(all);
    expect(found).toMatchObject({ by: "step", metric: "reward/mean" });
    expect(found.differences[0]?.mean).toBeCloseTo(0.2, 12);
    await expect(compare(all, { by: "scenario" })).rejects.toThrow(/`run-0` has no evaluation/);
    const longer = await runs({ metrics: steps(0, 0) }, { metrics: steps(1, 1, 1, 1) });
    await expect(compare(longer)).rejects.toThrow(/`run-0` lacks 2 of them \(2, 3\). Compare the common steps: `from: 0`, `to: 1`/);
    expect((await compare(longer, { to: 1 })).differences[0]).toMatchObject({ mean: 1, count: 2 });
  });

  it("rejects one run, equal names and a baseline outside the runs", async () => {
    const [a, b] = await runs({ metrics: steps(0, 1) }, { metrics: steps(0, 1) });
    await expect(compare([a!])).rejects.toThrow(/at least two runs to compare, got 1/);
    await expect(compare([a!, b!.named("run-0")])).rejects.toThrow(/distinct names, got `run-0` twice/);
    await expect(compare([a!, b!], { baseline: 2 })).rejects.toMatchObject({ code: "E_ARGUMENT", param: "baseline" });
    await expect(compare([a!, b!], { by: "scenario", to: 1 })).rejects.toMatchObject({ param: "to" });
  });
});
