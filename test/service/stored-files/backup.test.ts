import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { openConnection, lockFile } from "../../../src/service/store/connection.ts";
import { backUp } from "../../../src/service/stored-files/backup.ts";
import { restore } from "../../../src/service/stored-files/restore.ts";
import { openStaging } from "../../../src/service/stored-files/staging.ts";
import { verifyDataDirectory } from "../../../src/service/stored-files/verify.ts";
import { builtProgram } from "../../support/built-program.ts";
import {
  chatLines,
  createModel,
  finishedEvents,
  MODELS,
  restartable,
  startRlJob,
  startTestService,
  temporaryDirectory,
  testBase,
  uploadArtifact,
} from "../support.ts";
import { onSqlite } from "../../support/postgres.ts";

// The tests read and change the files of SQLite.
beforeEach(onSqlite);

const INTACT = { missing: [], damaged: [], unknown: [], unreferenced: [] };

/** A running service with a checkpoint, an artifact, and a base model of the hub in its directory. */
async function filled() {
  const given = await restartable({ apiKey: undefined });
  const service = await given.start();
  const { id: modelId } = await createModel(service);
  await finishedEvents(service, await startRlJob(service, modelId));
  await uploadArtifact(service, { "train.jsonl": chatLines(2) });
  const hub = join(given.dataDir, "hub", "models--owner--name");
  await mkdir(join(hub, "refs"), { recursive: true });
  await mkdir(join(hub, "snapshots", "0".repeat(40)), { recursive: true });
  await writeFile(join(hub, "refs", "main"), "0".repeat(40));
  await writeFile(join(hub, "snapshots", "0".repeat(40), "config.json"), "{}");
  return { ...given, service, modelId, target: join(await temporaryDirectory(), "backup") };
}

test("backups made under load restore, verify and serve every checkpoint", async () => {
  const [dataDir, bases, parent] = [await temporaryDirectory(), await testBase(), await temporaryDirectory()];
  const script = await builtProgram(new URL("loaded-service.ts", import.meta.url));
  const child = spawn(process.execPath, [script, dataDir, JSON.stringify(bases)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const exited = once(child, "exit");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const { apiKey } = JSON.parse((await lines.next()).value as string) as { apiKey: string };
  for (let step = 0; step < 8; step++) expect((await lines.next()).value).toBe("step");
  const backups = [];
  for (let index = 0; index < 4; index++) {
    const path = join(parent, `backup-${index}`);
    backups.push({ path, result: await backUp(dataDir, path) });
    // Jobs ran during the backup, and run between two backups.
    for (let step = 0; step < 3; step++) expect((await lines.next()).value).toBe("step");
  }
  child.kill("SIGKILL");
  await exited;
  for (const [index, { path, result }] of backups.entries()) {
    expect(result.files).toBeGreaterThan(5);
    const restored = join(parent, `restored-${index}`);
    await restore(path, restored);
    expect(await verifyDataDirectory(restored)).toMatchObject(INTACT);
    const service = await startTestService({ dataDir: restored, engine: { bases } });
    expect(service.service.apiKey).toBe(apiKey);
    let checkpoints = 0;
    for (const name of ["a", "b"]) {
      const { id } = await service.ok("POST", MODELS, { project: "load", name, base_model: "tiny", return_existing: true });
      const { data } = await service.ok("GET", `${MODELS}/${id}/checkpoints?limit=100`);
      for (const { step } of data as { step: number }[]) {
        const request = { model: `local/load/${name}:step${step}`, messages: [{ role: "user", content: "a" }], max_tokens: 2 };
        expect((await service.ok("POST", "/v1/chat/completions", request)).model).toBe(request.model);
        checkpoints++;
      }
      // Training continues from the newest checkpoint.
      expect((await finishedEvents(service, await startRlJob(service, id))).at(-1)?.type).toBe("training_ended");
    }
    expect(checkpoints).toBeGreaterThan(6);
    expect(await readdir(restored)).not.toContain("quarantine");
    await service.service.close({ graceMs: 0 });
  }
}, 120_000);

test("a backup has the key, the base models of the hub and nothing temporary, and leaves nothing in the directory", async () => {
  const { dataDir, target, service } = await filled();
  await writeFile(
    join(dataDir, "hub", "models--owner--name", `config.json.incomplete-${"0".repeat(8)}-0000-0000-0000-${"0".repeat(12)}`),
    "x",
  );
  const { files } = await backUp(dataDir, target);
  expect((await readdir(target)).toSorted()).toEqual(["api-key", "artifacts", "backup.json", "checkpoints", "hub", "whetstone.db"]);
  expect(await readdir(join(target, "hub", "models--owner--name"))).toEqual(["refs", "snapshots"]);
  expect(Object.keys(JSON.parse(await readFile(join(target, "backup.json"), "utf8")).files)).toHaveLength(files);
  expect(await readdir(join(dataDir, "tmp"))).toEqual([]);
  expect(await verifyDataDirectory(target)).toMatchObject(INTACT);
  const restored = join(target, "..", "restored");
  await mkdir(restored);
  await restore(target, restored);
  expect((await readFile(join(restored, "api-key"), "utf8")).trim()).toBe(service.service.apiKey);
});

test("a damaged file is named and not backed up", async () => {
  const { dataDir, target, service, modelId } = await filled();
  const weights = join(dataDir, "checkpoints", modelId, "1", "model.safetensors");
  const bytes = await readFile(weights);
  await truncate(weights, 3);
  const named = expect.stringContaining(`checkpoints/${modelId}/1/model.safetensors (checkpoint 'local/demo/reverse:step1')`);
  await expect(backUp(dataDir, target)).rejects.toMatchObject({ code: "E_DATA_CORRUPTED", message: named });
  await rm(weights);
  await expect(backUp(dataDir, target)).rejects.toMatchObject({ code: "E_DATA_CORRUPTED", message: named });
  expect(await readdir(join(target, ".."))).toEqual([]);
  expect(await readdir(join(dataDir, "tmp"))).toEqual([]);
  await writeFile(weights, bytes);
  await backUp(dataDir, target);
  await service.service.close();
});

test("a damaged backup, one that is incomplete, and one of a newer format are not restored", async () => {
  const { dataDir, target, modelId } = await filled();
  await backUp(dataDir, target);
  const restored = join(target, "..", "restored");
  const weights = join(target, "checkpoints", modelId, "1", "model.safetensors");
  const bytes = await readFile(weights);
  const refused = async (code: string, message: string) => {
    await expect(restore(target, restored)).rejects.toMatchObject({ code, message: expect.stringContaining(message) });
    expect(await readdir(join(target, ".."))).toEqual(["backup"]);
  };
  await truncate(weights, 3);
  await refused("E_DATA_CORRUPTED", `checkpoints/${modelId}/1/model.safetensors differs from its digest`);
  await rm(weights);
  await refused("E_DATA_CORRUPTED", "is missing");
  await writeFile(weights, bytes);
  const manifest = join(target, "backup.json");
  const text = await readFile(manifest, "utf8");
  await writeFile(manifest, text.replace('"format": 1', '"format": 2'));
  await refused("E_CONFIG", "format 1");
  await writeFile(manifest, text.replace('"whetstone.db"', '"../whetstone.db"'));
  await refused("E_CONFIG", "inside of the backup");
  const entries = JSON.parse(text) as { files: Record<string, unknown> };
  delete entries.files[`checkpoints/${modelId}/1/model.safetensors`];
  await writeFile(manifest, JSON.stringify(entries));
  await refused("E_DATA_CORRUPTED", `backup.json does not list checkpoints/${modelId}/1/model.safetensors`);
  await rm(manifest);
  await refused("E_CONFIG", "backup.json");
});

test("verify finds changed rows, a replaced key, and a changed or missing manifest of a backup", async () => {
  const { dataDir, target } = await filled();
  await backUp(dataDir, target);
  const [database, key, manifest] = ["whetstone.db", "api-key", "backup.json"].map((name) => join(target, name)) as [
    string,
    string,
    string,
  ];
  const [databaseBytes, keyBytes, text] = [await readFile(database), await readFile(key), await readFile(manifest, "utf8")];
  const damagedPaths = async () => (await verifyDataDirectory(target)).damaged.map(({ path }) => path);
  expect(await verifyDataDirectory(target)).toMatchObject(INTACT);
  const connection = await openConnection(database, 1000);
  connection.exec("UPDATE models SET seed = seed + 1");
  connection.close();
  expect(await damagedPaths()).toEqual(["whetstone.db"]);
  await writeFile(database, databaseBytes);
  await writeFile(key, "a-key-of-someone-else\n");
  expect(await damagedPaths()).toEqual(["api-key"]);
  await writeFile(key, keyBytes);
  const entries = JSON.parse(text) as { files: Record<string, unknown> };
  const { [Object.keys(entries.files).find((path) => path.startsWith("checkpoints/"))!]: _dropped, ...rest } = entries.files;
  await writeFile(manifest, JSON.stringify({ ...entries, files: rest }));
  expect(await damagedPaths()).toEqual(["backup.json"]);
  await rm(manifest);
  expect(await verifyDataDirectory(target)).toMatchObject({ ...INTACT, missing: [{ path: "backup.json" }] });
  // A service makes a data directory of it, which has no manifest.
  await writeFile(manifest, text);
  const service = await startTestService({ dataDir: target, engine: { bases: await testBase() } });
  expect(await verifyDataDirectory(target)).toMatchObject(INTACT);
  await service.service.close();
  expect(await verifyDataDirectory(target)).toMatchObject(INTACT);
});

test("a service starts while a backup runs, and a killed backup blocks neither its target nor the next start", async () => {
  const { dataDir, target, service, start } = await filled();
  await service.service.close();
  // Links of a running backup: a start leaves them alone.
  const running = await openStaging({ temporary: join(dataDir, "tmp") });
  await mkdir(running.path);
  await writeFile(join(running.path, "file"), "x");
  // Links of a killed backup.
  const killed = join(dataDir, "tmp", `backup-${"0".repeat(8)}-0000-0000-0000-${"0".repeat(12)}`);
  await mkdir(killed);
  const second = await start();
  expect((await readdir(join(dataDir, "tmp"))).toSorted()).toEqual([basename(running.path), `${basename(running.path)}.lock`]);
  await running.discard();
  expect(await readdir(join(dataDir, "tmp"))).toEqual([]);
  // The target of a backup that was killed while files got their final names.
  const left = join(target, `incomplete.tmp-${"0".repeat(8)}-0000-0000-0000-${"0".repeat(12)}`);
  await mkdir(join(target, "checkpoints"), { recursive: true });
  await mkdir(left);
  await writeFile(join(left, "whetstone.db"), "x");
  await backUp(dataDir, target);
  expect(await verifyDataDirectory(target)).toMatchObject(INTACT);
  expect((await readdir(target)).filter((name) => name.startsWith("incomplete"))).toEqual([]);
  // A complete backup with its temporary directory left over.
  await mkdir(left);
  await expect(backUp(dataDir, target)).rejects.toMatchObject({ code: "E_CONFIG", message: expect.stringContaining("empty") });
  // Another process is writing.
  const other = join(target, "..", "other");
  await mkdir(other);
  const unlock = await lockFile(join(other, "incomplete.lock"));
  await expect(backUp(dataDir, other)).rejects.toMatchObject({ code: "E_CONFIG", message: expect.stringContaining("Another backup") });
  unlock!();
  await second.service.close();
});

test("a path outside of its place in a row is not restored, verified, served or removed", async () => {
  const { dataDir, target, service, start, modelId } = await filled();
  await service.service.close();
  const victim = join(dataDir, "..", `${basename(dataDir)}-victim`);
  onTestFinished(() => rm(victim, { recursive: true, force: true }));
  await mkdir(victim);
  await writeFile(join(victim, "model.safetensors"), "the weights of someone else");
  await writeFile(join(victim, "optimizer.safetensors"), "x");
  const connection = await openConnection(join(dataDir, "whetstone.db"), 1000);
  connection
    .prepare("UPDATE checkpoints SET state_dir = ?, digests = NULL, optimizer_kind = NULL WHERE step = 1")
    .run(`../${basename(victim)}`);
  connection.close();
  const message = expect.stringContaining(`expected the files of step 1 of model '${modelId}' in 'checkpoints/${modelId}/1'`);
  await expect(verifyDataDirectory(dataDir)).rejects.toMatchObject({ code: "E_DATA_CORRUPTED", message });
  await expect(backUp(dataDir, target)).rejects.toMatchObject({ code: "E_DATA_CORRUPTED", message });
  const again = await start();
  const archive = await again.call("GET", `${MODELS}/${modelId}/checkpoints/1/archive`);
  expect([archive.status, archive.body.error]).toMatchObject([500, { error_code: "E_DATA_CORRUPTED", message }]);
  expect(await again.ok("DELETE", `${MODELS}/${modelId}/checkpoints`, { steps: [1] })).toMatchObject({ deleted_count: 1 });
  expect((await readdir(victim)).toSorted()).toEqual(["model.safetensors", "optimizer.safetensors"]);
  await again.service.close();
});

test("only empty directories are written to, and none inside the data directory", async () => {
  const { dataDir, target } = await filled();
  const inside = join(dataDir, "backup");
  await expect(backUp(dataDir, inside)).rejects.toMatchObject({ code: "E_CONFIG", param: "directory" });
  await backUp(dataDir, target);
  await expect(backUp(dataDir, target)).rejects.toMatchObject({ code: "E_CONFIG", message: expect.stringContaining("empty") });
  await expect(restore(target, dataDir)).rejects.toMatchObject({ code: "E_CONFIG", param: "dataDir" });
  await expect(backUp(join(target, "nothing"), join(target, "..", "other"))).rejects.toMatchObject({ code: "E_CONFIG", param: "dataDir" });
});
