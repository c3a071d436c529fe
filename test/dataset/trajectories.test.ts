import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { fc, test } from "@fast-check/vitest";
import {
  readTrajectories,
  readTrajectoryGroups,
  writeDataset,
  writeTrajectories,
  writeTrajectoryGroups,
} from "../../src/library/dataset/index.ts";
import { Trajectory, TrajectoryGroup } from "../../src/base/trajectory/index.ts";
import { group, sampled } from "../trajectory/samples.ts";
import { groupValue, trajectoryValue } from "./arbitraries.ts";

let directory = "";
beforeAll(async () => (directory = await mkdtemp(join(tmpdir(), "whetstone-dataset-test-"))));
afterAll(() => rm(directory, { recursive: true }));

const readAll = (path: string) => readTrajectories(path).toArray();

describe("trajectory files", () => {
  it("keep ids, log-probabilities and the keys of other writers", async () => {
    const path = join(directory, "all.jsonl");
    const rich = Trajectory.fromJSON({
      ...sampled(0.25).toJSON(),
      additional_histories: [{ messages_and_choices: [{ role: "user", content: "sub" }] }],
      logs: ["l"],
      metadata: { task: null },
      theirs: { deep: [1] },
    });
    await writeTrajectories(path, [rich, sampled(1)]);
    const back = await readAll(path);
    expect(back.map((each) => JSON.stringify(each))).toEqual([rich, sampled(1)].map((each) => JSON.stringify(each)));
    expect(back[0]).toMatchObject({ reward: 0.25, metadata: { task: null } });
  });

  it.each([
    [{ reward: "high", messages_and_choices: [] }, /:2: .*`reward`/],
    [{ messages: [] }, /:2: .*chat example/],
    [{ trajectories: [{ reward: "high" }] }, /:2: expected a trajectory group; at `trajectories.0.reward`/],
    [
      { messages_and_choices: [{ message: { role: "assistant" }, token_ids: [0.5] }] },
      /:2: expected a trajectory; at `messages_and_choices.0`/,
    ],
    [{}, /:2: .*messages_and_choices/],
    [null, /:2: expected a trajectory object/],
  ])("are rejected with the line of the invalid value %j", async (value, message) => {
    const path = join(directory, "bad.jsonl");
    await writeFile(path, `${JSON.stringify(sampled(1))}\n${JSON.stringify(value)}\n`);
    await expect(readAll(path)).rejects.toMatchObject({ code: "E_DATA", message: expect.stringMatching(message) });
  });

  test.prop([fc.array(trajectoryValue, { maxLength: 3 }), fc.constantFrom("x.jsonl", "x.jsonl.gz")], { numRuns: 60 })(
    "return every value that was written",
    async (values, name) => {
      const path = join(directory, name);
      await writeTrajectories(
        path,
        values.map((value) => Trajectory.fromJSON(value)),
      );
      expect((await readAll(path)).map((each) => each.toJSON())).toEqual(values.map((value) => Trajectory.fromJSON(value).toJSON()));
    },
  );

  test.prop([fc.array(groupValue, { maxLength: 3 })], { numRuns: 40 })(
    "return groups with exceptions, metrics and logs",
    async (values) => {
      const path = join(directory, "groups.jsonl");
      const groups = values.map((value) => TrajectoryGroup.fromJSON(value));
      await writeTrajectoryGroups(path, groups);
      const back: TrajectoryGroup[] = [];
      for await (const each of readTrajectoryGroups(path)) back.push(each);
      expect(back.map((each) => each.toJSON())).toEqual(groups.map((each) => each.toJSON()));
      expect((await readAll(path)).map((each) => each.toJSON())).toEqual(
        groups.flatMap(({ trajectories }) => trajectories.map((each) => each.toJSON())),
      );
    },
  );

  it("may contain groups; their trajectories are read one by one; the group reader rejects a single trajectory", async () => {
    const path = join(directory, "mixed.jsonl");
    const lines = [sampled(1), group(sampled(2), sampled(3)), sampled(4)];
    await writeFile(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    expect((await readAll(path)).map(({ reward }) => reward)).toEqual([1, 2, 3, 4]);
    const reading = readTrajectoryGroups(path)[Symbol.asyncIterator]().next();
    await expect(reading).rejects.toMatchObject({ code: "E_DATA", message: expect.stringMatching(/mixed\.jsonl:1: .*group/) as string });
  });

  it("contain trajectories that are frozen when read", async () => {
    const path = join(directory, "frozen.jsonl");
    await writeTrajectories(path, [sampled(1)]);
    const [read] = await readAll(path);
    expect(() => (read!.choices[0]!.logprobs!.content![0]!.logprob = 0)).toThrow(TypeError);
    expect(() => ((read!.metadata as Record<string, unknown>)["x"] = 0)).toThrow(TypeError);
    expect(() => read!.toJSON().messages_and_choices.pop()).toThrow(TypeError);
  });
});

describe("versions", () => {
  it("are written to every record and removed on reading", async () => {
    const path = join(directory, "version.jsonl");
    await writeTrajectories(path, [sampled(1)]);
    expect(JSON.parse(await readFile(path, "utf8"))).toMatchObject({ schema_version: 1, reward: 1 });
    expect((await readAll(path))[0]!.toJSON()).toEqual(sampled(1).toJSON());
  });

  it.each([
    [2, /:2: has schema version 2; .* up to version 1/],
    ["1", /:2: expected `schema_version` to be a whole number/],
    [null, /:2: expected `schema_version`/],
  ])("version %j is rejected with its line", async (version, message) => {
    const path = join(directory, "newer.jsonl");
    await writeFile(path, `${JSON.stringify(sampled(1))}\n${JSON.stringify({ schema_version: version, ...sampled(1).toJSON() })}\n`);
    await expect(readAll(path)).rejects.toMatchObject({ code: "E_DATA", message: expect.stringMatching(message) });
  });
});

describe("writeDataset", () => {
  const target = async (name: string) => {
    const path = join(directory, name);
    await mkdir(path, { recursive: true });
    return path;
  };

  it("writes metadata that the reader compares the file with", async () => {
    const at = await target("dataset");
    const { path, count, sha256, sizeBytes, metadata } = await writeDataset(at, [sampled(1), sampled(0)], { metadata: { source: "june" } });
    expect(JSON.parse(await readFile(join(at, "metadata.json"), "utf8"))).toEqual(metadata);
    expect(metadata).toEqual({
      source: "june",
      format: "jsonl",
      schema_version: 1,
      file: "trajectories.jsonl",
      num_trajectories: count,
      size_bytes: sizeBytes,
      sha256,
    });
    expect(await readAll(path)).toHaveLength(2);
    const text = await readFile(path, "utf8");
    await writeFile(path, text.slice(0, text.indexOf("\n") + 1));
    await expect(readAll(path)).rejects.toMatchObject({
      code: "E_DATA",
      message: expect.stringMatching(/expected 2 records.*got 1/) as string,
    });
    await writeFile(join(at, "metadata.json"), JSON.stringify({ ...metadata, schema_version: 7 }));
    await expect(readAll(path)).rejects.toMatchObject({
      code: "E_DATA",
      message: expect.stringMatching(/metadata\.json.*version 7/) as string,
    });
  });

  it("keeps the existing dataset when writing fails or there is nothing to write", async () => {
    const at = await target("kept");
    const { path } = await writeDataset(at, [sampled(1)], { gzip: true });
    expect(path).toMatch(/trajectories\.jsonl\.gz$/);
    await expect(writeDataset(at, [], { gzip: true })).rejects.toMatchObject({ code: "E_DATA" });
    const broken = Trajectory.fromWire({ ...sampled(1).toJSON(), reward: Number.NaN });
    await expect(writeDataset(at, [broken], { gzip: true })).rejects.toMatchObject({
      code: "E_DATA",
      message: expect.stringMatching(/item 1.*`reward` is NaN/),
    });
    expect((await readAll(path)).map(({ reward }) => reward)).toEqual([1]);
    expect(JSON.parse(await readFile(join(at, "metadata.json"), "utf8"))).toMatchObject({ num_trajectories: 1 });
  });
});
