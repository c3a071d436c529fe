import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { runHere } from "./run-here.ts";
import { trainedModel, useSharedService } from "./shared-service.ts";

const shared = useSharedService();

async function clean(...args: string[]): Promise<any> {
  const { code, stdout, stderr } = await runHere("clean", ...args, "--json");
  expect([code, stderr]).toEqual([0, ""]);
  return JSON.parse(stdout);
}

test("clean lists what can be deleted, and deletes it only with --yes", async () => {
  const { model, jobIds } = await trainedModel(shared, "old", 4);
  await shared.service.checkpoints.pin(model.id, 2);
  await shared.service.artifacts.create({ project: "demo", name: "recent" });
  const { dataDir } = shared.server;
  await mkdir(join(dataDir, "quarantine", "time"), { recursive: true });
  await writeFile(join(dataDir, "quarantine", "time", "lost"), "12345");
  const files = await readdir(dataDir, { recursive: true });

  // Of another machine's service, only what HTTP can delete: step 3 and step 1; not the newest, the pinned one and step 0.
  const remote = await clean();
  expect(remote.items.map(({ kind, name, count }: any) => [kind, name, count])).toEqual([["checkpoints", "demo/old: steps 1, 3", 2]]);
  expect((await clean("--keep", "2")).items[0].name).toBe("demo/old: steps 1");

  vi.stubEnv("WHETSTONE_BASE_URL", "");
  vi.stubEnv("WHETSTONE_HOME", dataDir);
  const local = await clean();
  expect(local).toMatchObject({ deleted: false, bytes: local.items.reduce((sum: number, { bytes }: any) => sum + bytes, 0) });
  expect(local.items.map(({ kind }: any) => kind)).toEqual(["checkpoints", ...jobIds.map(() => "token-reports"), "quarantine"]);
  expect(local.items.at(-1)).toMatchObject({ count: 1, bytes: 5 });
  expect((await readdir(dataDir, { recursive: true })).toSorted()).toEqual(files.toSorted());

  expect((await runHere("clean", "--only", "quarantine", "--yes")).stdout).toMatch(/^quarantine .*\nDeleted 5 bytes\n$/mu);
  expect(await clean("--yes")).toMatchObject({ deleted: true });
  expect((await shared.service.checkpoints.list(model.id)).map(({ step }) => step)).toEqual([0, 2, 4]);
  expect(await readdir(join(dataDir, "tokens"))).toEqual([]);
  expect((await runHere("clean")).stdout).toBe("Nothing to delete\n");
});

test("clean leaves the models of unfinished jobs alone, and lists uploads that were abandoned a day ago", async () => {
  const { model } = await trainedModel(shared, "busy", 2);
  const { id } = await shared.service.artifacts.create({ project: "demo", name: "abandoned" });
  await shared.service.artifacts.putFile(id, "part", "123");
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 25 * 3_600_000 });
  try {
    const { items } = await clean("--only", "uploads");
    expect(items).toContainEqual({ kind: "uploads", name: "artifact:///local/demo/abandoned:v0", count: 1, bytes: 3 });
  } finally {
    vi.useRealTimers();
  }
  const stepsOf = async () => (await clean("--only", "checkpoints")).items.map(({ name }: any) => name);
  expect(await stepsOf()).toEqual(["demo/busy: steps 1"]);
  const data = await shared.service.artifacts.create({ project: "demo", name: "lines" });
  const line = JSON.stringify({
    messages: [
      { role: "user", content: "a" },
      { role: "assistant", content: "b" },
    ],
  });
  await shared.service.artifacts.putFile(data.id, "train.jsonl", `${line}\n`.repeat(200));
  const { url } = await shared.service.artifacts.commit(data.id);
  for (let index = 0; index < 3; index++) await model.trainSft(url, { batchSize: 1 });
  expect(await stepsOf()).toEqual([]);
  await model.delete();
});
