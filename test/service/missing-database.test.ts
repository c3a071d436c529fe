import { cp, mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { chatLines, createModel, finishedEvents, MODELS, restartable, startRlJob, uploadArtifact } from "./support.ts";
import { onSqlite } from "../support/postgres.ts";

// The tests read and change the files of SQLite.
beforeEach(onSqlite);

/** Creates the directory of a stopped service with a trained model and an artifact, and lists its files. */
async function filled() {
  const given = await restartable();
  const service = await given.start();
  const { id: modelId } = await createModel(service);
  await finishedEvents(service, await startRlJob(service, modelId));
  await uploadArtifact(service, { "train.jsonl": chatLines(2) });
  await service.service.close();
  return { ...given, modelId };
}

async function filesOf(path: string): Promise<string[]> {
  const entries = await readdir(path, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(path.length + 1))
    .filter((name) => !name.startsWith("whetstone.db") && !name.startsWith("service.lock"))
    .toSorted();
}

test("rejects a directory with checkpoints and without a database, and changes nothing in it", async () => {
  const { dataDir, start } = await filled();
  for (const suffix of ["", "-wal", "-shm"]) await rm(join(dataDir, `whetstone.db${suffix}`), { force: true });
  await rm(join(dataDir, "api-key"), { force: true });
  const before = await filesOf(dataDir);
  const refusal = { code: "E_CONFIG", param: "dataDir" };
  await expect(start()).rejects.toMatchObject({
    ...refusal,
    message: expect.stringMatching(
      /'checkpoints', 'artifacts\/blobs'.*database.*missing.*Put the database back.*backup.*another data directory.*move/u,
    ),
  });
  // A database without tables, left by an early crash, counts as missing.
  await writeFile(join(dataDir, "whetstone.db"), "");
  await expect(start()).rejects.toMatchObject(refusal);
  expect(await filesOf(dataDir)).toEqual(before);
  expect(before.filter((name) => name.startsWith("checkpoints/"))).not.toEqual([]);
});

test("starts empty after the content was moved away", async () => {
  const { dataDir, start } = await filled();
  await rm(join(dataDir, "whetstone.db"));
  await rm(join(dataDir, "checkpoints"), { recursive: true });
  await rm(join(dataDir, "artifacts"), { recursive: true });
  const service = await start();
  const { data } = await service.ok("GET", "/v1/models");
  expect(data.map(({ id }: { id: string }) => id)).toEqual(["tiny"]);
});

test("moves files unknown to an older database to the quarantine", async () => {
  const { dataDir, start, modelId } = await filled();
  const backup = join(dataDir, "..", `${modelId}.db`);
  await cp(join(dataDir, "whetstone.db"), backup);
  const service = await start();
  await finishedEvents(service, await startRlJob(service, modelId));
  const other = await createModel(service, "other");
  await finishedEvents(service, await startRlJob(service, other.id));
  await uploadArtifact(service, { "train.jsonl": chatLines(3) });
  await service.service.close();
  const before = await filesOf(dataDir);
  await cp(backup, join(dataDir, "whetstone.db"));
  await rm(backup);

  const older = await start();
  const [time = ""] = await readdir(join(dataDir, "quarantine"));
  expect(time).toMatch(/^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z-[0-9a-f]{8}$/u);
  const moved = await filesOf(join(dataDir, "quarantine", time));
  expect(moved.filter((name) => name.endsWith("model.safetensors"))).toEqual([
    ...[`checkpoints/${modelId}/2/model.safetensors`, `checkpoints/${other.id}/1/model.safetensors`].toSorted(),
  ]);
  expect(moved.filter((name) => name.startsWith("artifacts/blobs/"))).toHaveLength(1);
  const after = await filesOf(dataDir);
  expect([...after.filter((name) => !name.startsWith("quarantine/")), ...moved].toSorted()).toEqual(
    [...before, ...after.filter((name) => name === "service.json")].toSorted(),
  );
  expect(older.log).toContainEqual({
    level: "warn",
    message: expect.stringContaining("quarantine"),
    fields: expect.objectContaining({ count: 3, paths: expect.arrayContaining([`checkpoints/${modelId}/2`, `checkpoints/${other.id}`]) }),
  });
  // The optimizer state of step 1 was dropped when step 2 was made. A new model does without it.
  const [failed] = (await finishedEvents(older, await startRlJob(older, modelId))).slice(-1);
  expect(failed?.data.error_message).toContain("reverse:step1' (optimizer.safetensors) is damaged: the file is missing");
  const fork = { project: "demo", name: "fork", base_model: "tiny", from: "local/demo/reverse:step1" };
  const { id: forkId } = await older.ok("POST", MODELS, fork);
  const events = await finishedEvents(older, await startRlJob(older, forkId));
  expect(events.at(-1)).toMatchObject({ type: "training_ended", data: { step: 1 } });
});

test("moves a directory at the path of a new checkpoint to the quarantine", async () => {
  const { dataDir, start, modelId } = await filled();
  const service = await start();
  await mkdir(join(dataDir, "checkpoints", modelId, "2"));
  await writeFile(join(dataDir, "checkpoints", modelId, "2", "keep"), "x");
  await finishedEvents(service, await startRlJob(service, modelId));
  const [time = ""] = await readdir(join(dataDir, "quarantine"));
  expect(await filesOf(join(dataDir, "quarantine", time))).toEqual([`checkpoints/${modelId}/2/keep`]);
});
