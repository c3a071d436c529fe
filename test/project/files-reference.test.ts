import { readdir, readFile } from "node:fs/promises";
import { join, sep } from "node:path";
import { describe, expect, it } from "vitest";
import { uploadDataset } from "../../src/index.ts";
import { trainSft } from "../../src/training/train/index.ts";
import { chatExamples } from "../service/support.ts";
import { readLines, setUp, start } from "../train/support.ts";
import { read } from "./files.ts";

const section =
  read("docs/reference/files.md")
    .split(/^## /mu)
    .find((text) => text.startsWith("A training run\n")) ?? "";

/** Names in the first column of the table below `### heading`, or of the first table. */
function documented(heading?: string): string[] {
  const part =
    section.split(/^### /mu).find((text, index) => (heading === undefined ? index === 0 : text.startsWith(`${heading}\n`))) ?? "";
  const cells = [...part.matchAll(/^\| (`.*?) \|/gmu)].map((match) => match[1] ?? "");
  return cells.flatMap((cell) => [...cell.matchAll(/`([\w./]+)`/gu)].map((match) => match[1] ?? "")).toSorted();
}

describe("docs/reference/files.md about a training run", () => {
  it("lists every file that a finished run contains", async () => {
    const given = await setUp();
    await start(given, { steps: 1, evaluation: { every: 1 }, report: true }).done;
    const entries = await readdir(given.runDir, { recursive: true, withFileTypes: true });
    const paths = entries
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(given.runDir.length + 1));
    const patterns = new Set(paths.map((path) => path.split(sep).join("/").replace(/\d{6}/u, "NNNNNN")));
    // The lock exists only during the run.
    expect([...patterns, "run.lock"].toSorted()).toEqual(documented());
  });

  it("lists the keys of config.json, of groups, and of checkpoints", async () => {
    const [rl, sft] = [await setUp(), await setUp()];
    const data = await uploadDataset(sft.service, { project: "demo", name: "data", train: chatExamples(2) });
    await Promise.all([
      start(rl, { steps: 2, evaluation: { every: 1 }, keepCheckpoints: { recent: 1 } }).done,
      trainSft({ model: sft.model, data, runDir: sft.runDir, report: false }).done,
    ]);
    const configs = await Promise.all(
      [rl, sft].map(async ({ runDir }) => JSON.parse(await readFile(join(runDir, "config.json"), "utf8")) as object),
    );
    expect([...new Set(configs.flatMap((config) => Object.keys(config)))].toSorted()).toEqual(documented("`config.json`"));
    for (const name of ["train/000001.jsonl", "eval/000002.jsonl"]) {
      const [group] = await readLines(rl.runDir, `trajectories/${name}`);
      expect(Object.keys(group.metadata as object).toSorted(), name).toEqual(documented("Groups of a run"));
    }
    const checkpoints = await readLines(rl.runDir, "checkpoints.jsonl");
    expect(checkpoints.map(({ event, step, run_step }) => [event, step, run_step])).toEqual([
      ["created", 1, 0],
      ["created", 2, 1],
      ["deleted", 1, undefined],
    ]);
  });
});
