import { writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { metricsTable, openRun, openRuns } from "../../src/lab/experiment/index.ts";
import { temporaryDirectory } from "../service/support.ts";
import { setUp, start } from "../train/support.ts";
import { writeRunFiles } from "./run-files.ts";

const row = (step: number, more: object = {}) => ({ step, split: "train", "reward/mean": step / 3, ...more });
const started = { type: "run-start" };

describe("a run directory of trainRl", () => {
  it("opens with state, metrics, evaluations and rollouts", async () => {
    const set = await setUp();
    await start(set, { steps: 2, evaluation: { every: 2 } }).done;
    const run = await openRun(set.runDir);
    expect(run).toMatchObject({ name: "run", state: "completed", error: null, steps: 2, evaluations: [0, 2] });
    expect(run.config).toMatchObject({ kind: "rl", group_size: 3 });
    expect(run.checkpoints.map(({ step }) => step)).toEqual([1, 2]);
    expect(run.series("reward/mean").map(([step]) => step)).toEqual([0, 1]);
    const evaluation = await run.evaluation();
    expect(evaluation).toEqual(await run.evaluation(2));
    expect(evaluation.map(({ scenario, rewards }) => [scenario, rewards.length])).toEqual([
      ["eval-0", 1],
      ["eval-1", 1],
    ]);
    const mean = evaluation.reduce((sum, { rewards }) => sum + (rewards[0] as number), 0) / 2;
    expect(run.series("reward/mean", "eval").at(-1)).toEqual([2, mean]);
    const rewards: number[] = [];
    for await (const group of run.groups({ step: 0 })) rewards.push(...group.rewards);
    expect(rewards).toHaveLength(6);
    expect(rewards.reduce((sum, value) => sum + value, 0) / 6).toBeCloseTo(run.series("reward/mean")[0]?.[1] ?? 0, 12);
  });

  it("is running while its process lives, and interrupted afterwards", async () => {
    const dir = await writeRunFiles("a", { metrics: [row(0)], events: [started] });
    expect((await openRun(dir)).state).toBe("interrupted");
    await writeFile(join(dir, "run.lock"), JSON.stringify({ pid: process.ppid, host: hostname() }));
    expect((await openRun(dir)).state).toBe("running");
    await writeFile(join(dir, "run.lock"), JSON.stringify({ pid: 2 ** 22 + 1, host: hostname() }));
    expect((await openRun(dir)).state).toBe("interrupted");
  });

  it("reports how it ended; the last start counts", async () => {
    const failed = { type: "run-fail", message: "no space" };
    const first = await openRun(await writeRunFiles("a", { events: [started, failed] }));
    expect(first).toMatchObject({ state: "failed", error: "no space" });
    const resumed = await openRun(await writeRunFiles("a", { events: [started, failed, { type: "run-resume" }] }));
    expect(resumed).toMatchObject({ state: "interrupted", error: null });
    expect((await openRun(await writeRunFiles("a", {}))).state).toBe("unknown");
  });

  it("skips an incomplete last line and keeps all digits", async () => {
    const dir = await writeRunFiles("a", { metrics: [row(0), row(1)] });
    await writeFile(join(dir, "metrics.jsonl"), `${JSON.stringify(row(1))}\n{"step":2,"spl`);
    expect((await openRun(dir)).series("reward/mean")).toEqual([[1, 1 / 3]]);
  });

  it("names the metrics and evaluations that exist", async () => {
    const run = await openRun(await writeRunFiles("a", { metrics: [row(0)], evaluations: { 4: { x: [1] } } }));
    expect(() => run.series("loss")).toThrow(/has no metric `loss` in its train rows; it has: reward\/mean/);
    await expect(run.evaluation(5)).rejects.toThrow(/evaluations after 4 steps, and none after 5 steps/);
    await expect(openRun(await temporaryDirectory())).rejects.toMatchObject({ code: "E_NOT_FOUND" });
  });
});

describe("several run directories", () => {
  it("are selected by globs, with distinct names", async () => {
    const parent = await temporaryDirectory();
    for (const path of ["one/rl", "one/sft", "two/rl"]) await writeRunFiles(path, { metrics: [row(0)] }, parent);
    const runs = await openRuns([join(parent, "one/*"), join(parent, "two/rl"), join(parent, "one/rl")]);
    expect(runs.map(({ name }) => name)).toEqual(["one/rl", "one/sft", "two/rl"]);
    expect((await openRuns(join(parent, "one/*"))).map(({ name }) => name)).toEqual(["rl", "sft"]);
    await expect(openRuns(join(parent, "three/*"))).rejects.toThrow(/three\/\*` to be a run directory or a glob/);
  });

  it("become one table of their metrics", async () => {
    const parent = await temporaryDirectory();
    await writeRunFiles("a", { metrics: [row(0), row(1, { loss: -2 })] }, parent);
    await writeRunFiles("b", { metrics: [row(0, { "note, odd": 1 })] }, parent);
    const runs = await openRuns(join(parent, "*"));
    const table = metricsTable(runs, { metrics: ["reward/mean", "loss"] });
    expect(table.toCSV()).toBe(`run,step,reward/mean,loss\na,0,0,\na,1,${1 / 3},-2\nb,0,0,\n`);
    expect(table.toMarkdown()).toBe(
      "| run | step | reward/mean | loss |\n| --- | ---: | ---: | ---: |\n| a | 0 | 0 |  |\n| a | 1 | 0.33333 | -2 |\n| b | 0 | 0 |  |\n",
    );
    expect(table.toString().split("\n")).toEqual([
      "run  step  reward/mean  loss",
      "a       0            0",
      "a       1      0.33333    -2",
      "b       0            0",
    ]);
    expect(metricsTable(runs, { steps: "last" }).toJSON()).toEqual([
      { run: "a", step: 1, loss: -2, "note, odd": null, "reward/mean": 1 / 3 },
      { run: "b", step: 0, loss: null, "note, odd": 1, "reward/mean": 0 },
    ]);
    expect(metricsTable(runs).toCSV().split("\n")[0]).toBe('run,step,loss,"note, odd",reward/mean');
    expect(() => metricsTable(runs, { metrics: ["los"] })).toThrow(/No run has the metric `los`.*loss, note, odd, reward\/mean/);
    expect(table.column("loss")).toEqual([null, -2, null]);
    expect(() => table.column("los")).toThrow(/one of the columns run, step, reward\/mean, loss, got `los`/);
  });
});
