/** Trackers that write files: CSV and TensorBoard. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { appendFile, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { csvTracker } from "../../src/training/trackers/csv.ts";
import { tensorboardTracker } from "../../src/training/trackers/tensorboard.ts";
import { eventBytes } from "../../src/training/trackers/tensorboard-event.ts";
import { tfRecord } from "../../src/training/trackers/tfrecord.ts";
import { readLines, setUp, start, type SetUp } from "../train/support.ts";

/** Runs two steps, ends, changes the files with `between`, and runs the third step. */
async function resumed(options: Parameters<typeof start>[1], between: (given: SetUp) => Promise<void>): Promise<SetUp> {
  const given = await setUp();
  await start(given, { ...options, steps: 2 }).done;
  await between(given);
  await start(given, { ...options, steps: 3 }).done;
  return given;
}

const table = (text: string) =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => line.split(","));

describe("the CSV tracker", () => {
  it("writes one row per step and evaluation with the values of metrics.jsonl, also after a resume and a torn write", async () => {
    const options = { trackers: [csvTracker()], evaluation: { every: 2 } };
    const given = await resumed(options, ({ runDir }) => appendFile(join(runDir, "metrics.csv"), "2026-01-01T00:00:00Z,step-e"));
    const [header, ...rows] = table(await readFile(join(given.runDir, "metrics.csv"), "utf8"));
    expect(header!.slice(0, 3)).toEqual(["time", "event", "step"]);
    expect(rows.every((row) => row.length === header!.length)).toBe(true);
    const recorded = await readLines(given.runDir, "metrics.jsonl");
    expect(rows.map((row) => [row[1], Number(row[2])])).toEqual(
      recorded.map(({ split, step }) => [split === "train" ? "step-end" : "evaluation-end", step]),
    );
    const column = header!.indexOf("reward/mean");
    expect(rows.flatMap((row) => (row[column] === "" ? [] : [Number(row[column])]))).toEqual(
      recorded.flatMap((row) => row["reward/mean"] ?? []),
    );
  });
});

const PYTHON = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
start = metadata.parse_session_start_info_plugin_data(events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content)
end = metadata.parse_session_end_info_plugin_data(events.SummaryMetadata("_hparams_/session_end_info").plugin_data.content)
print(json.dumps({
  "reward": [[each.step, each.value] for each in events.Scalars("reward/mean")],
  "tags": len(events.Tags()["scalars"]),
  "group_size": start.hparams["group_size"].number_value,
  "environment": start.hparams["environment"].string_value,
  "status": end.status,
  "text": events.Tensors("config")[0].tensor_proto.string_val[0].decode(),
}))
`;
const python = process.env["WHETSTONE_TRACKERS_PYTHON"];

describe("the TensorBoard tracker", () => {
  it("frames the records that the tensorboard package reads", () => {
    const events = [
      eventBytes({ timeMs: 1_700_000_000_500, fileVersion: "brain.Event:2" }),
      eventBytes({
        timeMs: 1_700_000_001_000,
        step: 0,
        values: [
          {
            type: "hparams-start",
            parameters: new Map<string, string | number | boolean>([
              ["env", "sums"],
              ["exact", true],
              ["lr", 0.25],
            ]),
            group: "run",
            timeMs: 1_700_000_001_000,
          },
          { type: "text", tag: "config", text: "# settings" },
        ],
      }),
      eventBytes({ timeMs: 1_700_000_002_000, step: 300, values: [{ type: "scalar", tag: "reward/mean", value: 0.5 }] }),
      eventBytes({ timeMs: 1_700_000_003_000, step: 301, values: [{ type: "hparams-end", isFailed: false, timeMs: 1_700_000_003_000 }] }),
    ];
    const expected = readFileSync(new URL("event-file.tfevents", import.meta.url));
    expect(Buffer.concat(events.map(tfRecord)).equals(expected)).toBe(true);
  });

  it.skipIf(python === undefined)(
    "writes files that the tensorboard package reads (set WHETSTONE_TRACKERS_PYTHON)",
    { timeout: 120_000 },
    async () => {
      const given = await resumed({ trackers: [tensorboardTracker()] }, async () => undefined);
      const read = spawnSync(python!, ["-c", PYTHON, join(given.runDir, "tensorboard")], { encoding: "utf8" });
      expect(read.status, read.stderr).toBe(0);
      const found = JSON.parse(read.stdout);
      const rows = await readLines(given.runDir, "metrics.jsonl");
      expect(found.reward.map(([step]: [number]) => step)).toEqual([0, 1, 2]);
      rows.forEach((row, index) => expect(found.reward[index][1]).toBeCloseTo(row["reward/mean"], 6));
      expect(found).toMatchObject({ group_size: 3, environment: "tokens", status: 1 });
      expect(JSON.parse(found.text.replaceAll("```json", "").replaceAll("```", ""))).toMatchObject({ kind: "rl" });
    },
  );

  it("continues the file after a resume and cuts off an unconfirmed part", async () => {
    const fileOf = async ({ runDir }: SetUp) => {
      const directory = join(runDir, "tensorboard");
      const names = await readdir(directory);
      expect(names).toHaveLength(1);
      return join(directory, names[0]!);
    };
    let before = Buffer.alloc(0);
    const given = await resumed({ trackers: [tensorboardTracker()] }, async (first) => {
      before = await readFile(await fileOf(first));
      await appendFile(await fileOf(first), tfRecord(Buffer.from("not confirmed")).subarray(0, 20));
    });
    const after = await readFile(await fileOf(given));
    expect(after.subarray(0, before.length).equals(before)).toBe(true);
    expect(after.includes("not confirmed")).toBe(false);
    // Every record starts where the previous one ends.
    let at = 0;
    const records: Buffer[] = [];
    while (at < after.length) {
      const length = Number(after.readBigUInt64LE(at));
      records.push(after.subarray(at + 12, at + 12 + length));
      at += length + 16;
    }
    expect(at).toBe(after.length);
    expect(records.filter((record) => record.includes("brain.Event:2"))).toHaveLength(1);
    expect(records.filter((record) => record.includes("loss"))).toHaveLength(3);
  });

  it("writes a whole file again if the file is missing", async () => {
    const given = await resumed({ trackers: [tensorboardTracker()] }, ({ runDir }) => rm(join(runDir, "tensorboard"), { recursive: true }));
    const [name] = await readdir(join(given.runDir, "tensorboard"));
    const bytes = await readFile(join(given.runDir, "tensorboard", name!));
    expect(bytes.includes("brain.Event:2")).toBe(true);
    expect(bytes.toString("latin1").split("reward/mean")).toHaveLength(4);
  });
});
