import { createHash } from "node:crypto";
import { appendFile, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Script } from "node:vm";
import { describe, expect, it } from "vitest";
import { ArgumentError, DataError, NotFoundError } from "../../src/base/errors.ts";
import type { PageData } from "../../src/lab/report/page-data.ts";
import { writeReport } from "../../src/lab/report/index.ts";
import { dataOf, groupLine, HOSTILE, trajectoryLine, writeRun } from "./run-fixture.ts";

const pageOf = async (path: string) => dataOf(await readFile(path, "utf8")) as PageData;

describe("writeReport", () => {
  it("contains the metrics of every step, without a truncated last line", async () => {
    const { path } = await writeReport(await writeRun());
    const { metrics } = await pageOf(path);
    expect(metrics.train.steps).toEqual([0, 1, 2]);
    expect(metrics.train.columns).toEqual({
      "custom/number": [7, 7, 7],
      loss: [0, -0.25, -0.5],
      "reward/mean": [0.5, 0.9, 0.5],
      "reward/std": [0.1, 0.1, 0.1],
    });
    expect(metrics.eval).toEqual({ steps: [2], columns: { "reward/mean": [0.75] } });
  });

  it("uses the last row of a step that was written again after a restart", async () => {
    const runDir = await writeRun();
    await writeFile(
      join(runDir, "metrics.jsonl"),
      '{"step":1,"split":"train","loss":1}\n{"step":1,"split":"train","loss":2,"extra":true}\n',
    );
    const { metrics } = await pageOf((await writeReport(runDir)).path);
    expect(metrics.train).toEqual({ steps: [1], columns: { extra: [1], loss: [2] } });
  });

  it("computes advantages within each group: (1, 0, 0) has mean 1/3 and population deviation √2/3", async () => {
    const { steps } = await pageOf((await writeReport(await writeRun())).path);
    const [group, flat] = steps[0]!.groups;
    expect(group!.mean).toBeCloseTo(1 / 3, 12);
    expect(group!.deviation).toBeCloseTo(Math.SQRT2 / 3, 12);
    const advantages = group!.trajectories.map(({ advantage }) => advantage);
    expect(advantages[0]).toBeCloseTo(Math.SQRT2, 4);
    expect(advantages[1]).toBeCloseTo(-Math.SQRT1_2, 4);
    expect(flat!.isTrainable).toBe(false);
    expect(flat!.trajectories.map(({ advantage }) => advantage)).toEqual([0, 0]);
    expect(flat!.exceptions[0]!.type).toBe("TimeoutError");
  });

  it("marks the groups that the filters of the run discarded", async () => {
    const runDir = await writeRun();
    // The evaluation of a step has other scenarios with the same indices.
    await writeFile(join(runDir, "trajectories/eval/000001.jsonl"), `${JSON.stringify(groupLine(1, 1, [trajectoryLine(1)]))}\n`);
    const { steps } = await pageOf((await writeReport(runDir)).path);
    expect(steps.map(({ split, step, groups }) => [split, step, groups.map(({ isDiscarded }) => isDiscarded)])).toEqual([
      ["train", 0, [false, false]],
      ["train", 1, [false, true]],
      ["train", 2, [false, false]],
      ["eval", 1, [false]],
      ["eval", 2, [false]],
    ]);
  });

  it("assigns the trainer's log-probabilities to their turns, with additional histories last", async () => {
    const { steps } = await pageOf((await writeReport(await writeRun())).path);
    const last = steps.findLast(({ split }) => split === "train")!;
    expect(last.hasTrained).toBe(true);
    const turns = last.groups[0]!.trajectories[0]!.detail!.histories.flat().flatMap(({ sampled }) => sampled ?? []);
    expect(turns.map(({ trained }) => trained)).toEqual([[-0.07], [-0.07, -0.17, -0.27, -0.37], [-0.07, -0.17, -0.27, -0.37]]);
    expect(turns.map(({ advantage }) => advantage)).toEqual([0.5, 0.5, 0.5]);
    expect(last.groups[0]!.trajectories[1]!.detail!.histories[0]![1]!.sampled!.trained).toBeNull();
    expect(steps[0]!.hasTrained).toBe(false);
  });

  it("uses the first copy of a group that was written twice, and sorts groups by scenario", async () => {
    const runDir = await writeRun();
    const rows = [groupLine(4, 2, [trajectoryLine(1)]), groupLine(3, 2, [trajectoryLine(0.5)]), groupLine(4, 2, [trajectoryLine(0)])];
    await writeFile(join(runDir, "trajectories/train/000002.jsonl"), rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
    const { steps } = await pageOf((await writeReport(runDir)).path);
    const last = steps.findLast(({ split }) => split === "train")!;
    expect(last.groups.map(({ id, line, mean }) => [id, line, mean])).toEqual([
      ["item-3", 2, 0.5],
      ["item-4", 1, 1],
    ]);
  });

  it("describes the run, and hides a setting that looks like a credential", async () => {
    const { path } = await writeReport(await writeRun());
    const page = await pageOf(path);
    expect(Object.fromEntries(page.facts)).toMatchObject({
      Model: "whetstone-tiny",
      Steps: "3 (0 to 2)",
      Checkpoints: "2 made, 1 kept",
      "Seconds from start to last write": "65.0",
    });
    expect(Object.fromEntries(page.config)).toMatchObject({ "groups.size": "3", "service.apiKey": "(hidden)", "service.maxTokens": "5" });
    expect(await readFile(path, "utf8")).not.toContain("very-private");
    expect(page.checkpoints.map(({ step, state }) => [step, state])).toEqual([
      [1, "deleted"],
      [2, "kept"],
    ]);
    expect(page.events).toEqual([
      ["batch-end", 1],
      ["run-end", 1],
      ["run-start", 1],
      ["warning", 1],
    ]);
    expect(page.notices).toEqual([{ type: "warning", step: 1, message: `careful ${HOSTILE}` }]);
    expect(Object.fromEntries(page.facts)["Ended"]).toBe("completed");
  });

  it("keeps the order of selection and the limits on steps and bytes", async () => {
    const runDir = await writeRun({ steps: 12 });
    const few = await writeReport(runDir, { steps: 3 });
    expect(few.steps).toEqual([
      { split: "train", step: 0 },
      { split: "train", step: 11 },
      { split: "eval", step: 11 },
    ]);
    const narrow = await pageOf((await writeReport(runDir, { trajectoryBytes: 4000 })).path);
    const contents = narrow.steps.flatMap(({ groups }) => groups).flatMap(({ trajectories }) => trajectories);
    const bytes = contents.reduce((sum, { detail }) => sum + (detail === null ? 0 : Buffer.byteLength(JSON.stringify(detail))), 0);
    expect(bytes).toBeLessThanOrEqual(4000);
    expect(narrow.steps.some(({ omitted }) => omitted > 0)).toBe(true);
    expect(contents.every(({ reward }) => Number.isFinite(reward))).toBe(true);
    const none = await pageOf((await writeReport(runDir, { trajectoryBytes: 0 })).path);
    expect(none.steps.map(({ step, omitted }) => [step, omitted])).toEqual([[11, 5]]);
  });

  it("stays below 12 MB for a run of 400 steps with 256 long trajectories each", async () => {
    const runDir = await writeRun({ steps: 1, trained: false });
    const logs = ["x".repeat(6_000)];
    const groups = Array.from({ length: 16 }, (_, group) =>
      groupLine(
        group,
        0,
        Array.from({ length: 16 }, (__, index) => trajectoryLine(index / 16, { logs })),
      ),
    );
    const step = groups.map((group) => `${JSON.stringify(group)}\n`).join("");
    const rows = Array.from({ length: 400 }, (_, index) => JSON.stringify({ step: index, split: "train", "reward/mean": index / 400 }));
    await writeFile(join(runDir, "metrics.jsonl"), `${rows.join("\n")}\n`);
    // The number of files that the page includes: without a limit 1.7 MB each, 42 MB in total.
    for (let index = 0; index < 24; index++)
      await writeFile(join(runDir, "trajectories/train", `${String(index * 17).padStart(6, "0")}.jsonl`), step);
    const { path, sizeBytes } = await writeReport(runDir);
    expect(sizeBytes).toBe((await stat(path)).size);
    expect(sizeBytes).toBeLessThan(12 * 1024 * 1024);
    expect((await pageOf(path)).metrics.train.steps).toHaveLength(400);
  });

  it("is one file without external resources, and data cannot close its script element", async () => {
    const html = await readFile((await writeReport(await writeRun())).path, "utf8");
    const scripts = [...html.matchAll(/<script(?: type="([^"]*)")?[^>]*>(.*?)<\/script>/gs)];
    expect(scripts.map((match) => match[1])).toEqual(["application/json", "module"]);
    expect(html.match(/<\/script/g)).toHaveLength(2);
    expect(html).not.toContain("<img");
    expect(scripts[0]![2]).not.toMatch(/[<\u2028\u2029]/);
    expect(html).not.toMatch(/<(?:link|iframe|object|embed|base)\b/i);
    expect(JSON.stringify(dataOf(html))).toContain(JSON.stringify(HOSTILE).slice(1, -1));
    const policy = /Content-Security-Policy" content="([^"]*)"/.exec(html)?.[1];
    const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
    const style = /<style>(.*?)<\/style>/s.exec(html)?.[1] ?? "";
    expect(policy).toBe(
      `default-src 'none'; script-src ${hash(scripts[1]![2]!)}; style-src ${hash(style)}; base-uri 'none'; form-action 'none'`,
    );
    for (const script of scripts) expect(script[2]).not.toContain("<!--");
    // An import left in the bundle is a syntax error here.
    expect(() => new Script(`(async () => {${scripts[1]![2]}})`)).not.toThrow();
  });

  it("writes to the given path, replaces an existing file, and leaves no temporary files", async () => {
    const runDir = await writeRun();
    const directory = await mkdtemp(join(tmpdir(), "whetstone-report-"));
    const path = join(directory, "other.html");
    await writeFile(path, "old");
    expect((await writeReport(runDir, { path })).path).toBe(path);
    expect(await readFile(path, "utf8")).toMatch(/^<!doctype html>/);
    expect(await readdir(directory)).toEqual(["other.html"]);
    expect(await readdir(runDir)).not.toContain("report.html");
  });

  it("works before the first step", async () => {
    const runDir = await mkdtemp(join(tmpdir(), "whetstone-report-"));
    await writeFile(join(runDir, "config.json"), "{}");
    const { path, steps } = await writeReport(runDir);
    expect(steps).toEqual([]);
    expect((await pageOf(path)).available).toEqual({ train: 0, eval: 0 });
  });

  it("rejects a directory without a run, an invalid line, and options out of range", async () => {
    const empty = await mkdtemp(join(tmpdir(), "whetstone-report-"));
    await expect(writeReport(empty)).rejects.toThrow(NotFoundError);
    await expect(writeReport(join(empty, "absent"))).rejects.toThrow(/Expected a run directory/);
    await expect(writeReport("")).rejects.toThrow(ArgumentError);
    const runDir = await writeRun();
    await expect(writeReport(runDir, { steps: -1 })).rejects.toThrow(/`steps` to be a whole number from 0, got -1/);
    await expect(writeReport(runDir, { trajectoryBytes: 0.5 })).rejects.toThrow(ArgumentError);
    await rm(join(runDir, "metrics.jsonl"));
    await appendFile(join(runDir, "metrics.jsonl"), '{"step":1,"split":"train"}\n{"split":"train"}\n');
    await expect(writeReport(runDir)).rejects.toThrow(/metrics\.jsonl:2: at `step`/);
    await rm(join(runDir, "metrics.jsonl"));
    await appendFile(join(runDir, "trajectories/train/000001.jsonl"), '{"trajectories":3}\n');
    await expect(writeReport(runDir)).rejects.toThrow(/000001\.jsonl:3: at `trajectories`/);
    await writeFile(join(runDir, "config.json"), "{");
    await expect(writeReport(runDir)).rejects.toThrow(DataError);
  });

  it("rejects with the signal's reason if aborted, and writes nothing", async () => {
    const runDir = await writeRun();
    const reason = new Error("enough");
    await expect(writeReport(runDir, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(await readdir(runDir)).not.toContain("report.html");
  });
});
