import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readTrajectories, uploadDataset, writeChatJsonl, writeTrajectories, type ArtifactUploader } from "../../src/dataset/index.ts";
import { Trajectory } from "../../src/trajectory/index.ts";
import { sampled } from "../trajectory/samples.ts";

let directory = "";
beforeAll(async () => (directory = await mkdtemp(join(tmpdir(), "whetstone-dataset-test-"))));
afterAll(() => rm(directory, { recursive: true }));

async function readAll(path: string): Promise<Trajectory[]> {
  const all: Trajectory[] = [];
  for await (const each of readTrajectories(path)) all.push(each);
  return all;
}

const example = {
  messages: [
    { role: "user", content: "hi" },
    { role: "assistant", content: "ho" },
  ],
};

describe("trajectory files", () => {
  it("keep everything: ids, log-probabilities, other writers' keys", async () => {
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
    [{ trajectories: [] }, /:2: .*trajectory group/],
    [{}, /:2: .*messages_and_choices/],
    [null, /:2: expected a trajectory object/],
  ])("name the line of %j", async (value, message) => {
    const path = join(directory, "bad.jsonl");
    await writeFile(path, `${JSON.stringify(sampled(1))}\n${JSON.stringify(value)}\n`);
    await expect(readAll(path)).rejects.toMatchObject({ code: "E_DATA", message });
  });
});

describe("writeChatJsonl", () => {
  it("writes plain conversations, sampled turns as assistant messages", async () => {
    const path = join(directory, "chat.jsonl");
    const tools = [{ type: "function" as const, function: { name: "f" } }];
    await writeChatJsonl(path, [sampled(1, "yes"), { ...example, tools }]);
    expect(
      (await readFile(path, "utf8"))
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line) as unknown),
    ).toEqual([
      {
        messages: [
          { role: "user", content: "q" },
          { role: "assistant", content: "yes" },
        ],
      },
      { ...example, tools },
    ]);
  });

  it.each([
    [{ messages: [] }, /Example 1: .*at least one message/],
    [{ messages: [{ role: "user", content: "hi" }] }, /Example 1: .*assistant/],
    [{ messages: [{ content: "hi" }] }, /Example 1: `messages.0`/],
    [{ ...example, tools: [{ type: "function", function: {} }] }, /Example 1: `tools.0`/],
  ])("refuses %j", async (bad, message) => {
    await expect(writeChatJsonl(join(directory, "never.jsonl"), [bad as never])).rejects.toMatchObject({ code: "E_DATA", message });
    expect(await readdir(directory)).not.toContain("never.jsonl");
  });
});

describe("uploadDataset", () => {
  function store() {
    const files = new Map<string, string>();
    const calls: string[] = [];
    const uploader: ArtifactUploader = {
      artifacts: {
        create: async ({ project, name, metadata }) => (
          calls.push(`create ${project}/${name} ${metadata?.["num_trajectories"]}`),
          { id: "v" }
        ),
        putFile: async (_, path, body) => {
          calls.push(`put ${path}`);
          // Twice, as a retry would: the second must be whole, too.
          for (let attempt = 0; attempt < 2; attempt++) {
            const chunks: Uint8Array[] = [];
            if (typeof body === "function") for await (const chunk of body()) chunks.push(chunk);
            files.set(path, typeof body === "string" ? body : Buffer.concat(chunks).toString());
          }
        },
        commit: async () => (calls.push("commit"), { url: "artifact:///team/p/data:v0" }),
      },
    };
    return { uploader, files, calls };
  }

  it("puts both files, then commits", async () => {
    const { uploader, files, calls } = store();
    const train = (async function* () {
      yield sampled(1);
      yield example;
    })();
    await expect(uploadDataset(uploader, { project: "p", name: "data", train })).resolves.toBe("artifact:///team/p/data:v0");
    expect(calls).toEqual(["create p/data 2", "put trajectories.jsonl", "put metadata.json", "commit"]);
    const data = files.get("trajectories.jsonl") ?? "";
    expect(JSON.parse(files.get("metadata.json") ?? "")).toEqual({
      format: "jsonl",
      num_trajectories: 2,
      sha256: createHash("sha256").update(data).digest("hex"),
      schema_version: 1,
    });
    expect(
      data
        .trimEnd()
        .split("\n")
        .map((line) => (JSON.parse(line) as { messages_and_choices: unknown[] }).messages_and_choices.length),
    ).toEqual([2, 2]);
  });

  it.each([
    ["nothing", []],
    ["an example without an assistant", [{ messages: [{ role: "user", content: "hi" }] }]],
  ])("refuses %s before it asks the service for anything", async (_, train) => {
    const { uploader, calls } = store();
    await expect(uploadDataset(uploader, { project: "p", name: "data", train })).rejects.toMatchObject({ code: "E_DATA" });
    expect(calls).toEqual([]);
  });

  it("does not commit when an upload fails", async () => {
    const { uploader, calls } = store();
    const broken = new Error("disk full");
    const failing: ArtifactUploader = { artifacts: { ...uploader.artifacts, putFile: () => Promise.reject(broken) } };
    await expect(uploadDataset(failing, { project: "p", name: "data", train: [example] })).rejects.toBe(broken);
    expect(calls).not.toContain("commit");
  });
});
