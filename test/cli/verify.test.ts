import { mkdir, readdir, rm, truncate, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { createHub } from "../../src/service/hub/hub.ts";
import { openConnection } from "../../src/service/store/connection.ts";
import {
  chatLines,
  createModel,
  finishedEvents,
  restartable,
  RL_JOBS,
  rlBody,
  startSftJob,
  temporaryDirectory,
  uploadArtifact,
} from "../service/support.ts";
import { startHubServer } from "../support/hub-server.ts";
import { onSqlite } from "../support/postgres.ts";
import { runHere } from "./run-here.ts";

// The tests read and change the files of SQLite.
beforeEach(onSqlite);

const verify = (dataDir: string, ...args: string[]) => runHere("verify", "--data-dir", dataDir, ...args);

async function verifyJson(dataDir: string): Promise<any> {
  const { code, stdout } = await verify(dataDir, "--json");
  return { code, ...JSON.parse(stdout) };
}

/** Starts a service with two checkpoints, a token report and an artifact. */
async function filled() {
  const given = await restartable();
  const service = await given.start();
  const { id } = await createModel(service);
  const { id: jobId } = await service.ok("POST", RL_JOBS, { ...rlBody(id), experimental_config: { token_report: true } });
  await finishedEvents(service, jobId);
  await finishedEvents(service, await startSftJob(service, id, 3));
  await uploadArtifact(service, { "train.jsonl": chatLines(2) });
  return { ...given, service, modelId: id, jobId: jobId as string };
}

test("verify finds no damage in the directory of a running service and counts every file", async () => {
  const { dataDir } = await filled();
  const result = await verifyJson(dataDir);
  expect(result).toMatchObject({ code: 0, intact: true, missing: [], damaged: [], unknown: [], unreferenced: [] });
  // Two states, one with an optimizer, a token report, and two artifacts.
  expect(result.files).toBe(2 + 3 + 1 + 2);
  expect((await verify(dataDir)).stdout).toMatch(
    /: intact; 8 files, [\d.]+ \w+ in [\d.]+ m?s; 0 missing, 0 damaged, 0 without a digest, 0 unreferenced\n$/u,
  );
});

test("verify reports a damaged base model that was downloaded from a hub", async () => {
  const { dataDir } = await filled();
  const server = await startHubServer({
    "team/tiny": { files: { "config.json": "{}", "tokenizer.json": "{}", "model.safetensors": "weights" } },
  });
  const hub = createHub({ url: server.url, cacheDir: join(dataDir, "hub") }, { dataDir, logger: console });
  const directory = await hub.directoryOf("team/tiny");
  await hub.close();
  expect(await verifyJson(dataDir)).toMatchObject({ code: 0, files: 8 + 3 });
  await truncate(join(directory!, "model.safetensors"), 3);
  const { code, damaged } = await verifyJson(dataDir);
  expect([code, damaged]).toEqual([
    1,
    [{ path: relative(dataDir, join(directory!, "model.safetensors")), subject: "base model 'team/tiny'" }],
  ]);
});

test("verify lists missing, damaged, unknown and unreferenced files, and exits with 1", async () => {
  const { dataDir, service, modelId, jobId } = await filled();
  await service.service.close();
  const state = `checkpoints/${modelId}/2`;
  await rm(join(dataDir, state, "model.safetensors"));
  await truncate(join(dataDir, "tokens", `${jobId}.json`), 3);
  const blobs = await readdir(join(dataDir, "artifacts", "blobs"), { recursive: true, withFileTypes: true });
  const blob = blobs.find((entry) => entry.isFile())!;
  await writeFile(join(blob.parentPath, blob.name), "other bytes");
  await mkdir(join(dataDir, "checkpoints", "nobody"));
  await writeFile(join(dataDir, "checkpoints", "nobody", "x"), "");
  const database = await openConnection(join(dataDir, "whetstone.db"), 1000);
  database.exec("UPDATE checkpoints SET digests = NULL WHERE step = 1");
  database.close();
  const result = await verifyJson(dataDir);
  expect(result).toMatchObject({
    code: 1,
    intact: false,
    missing: [{ path: `${state}/model.safetensors`, subject: "checkpoint 'local/demo/reverse:step2'" }],
    unreferenced: ["checkpoints/nobody/x"],
  });
  expect(result.damaged.map(({ subject }: { subject: string }) => subject).toSorted()).toEqual([
    expect.stringMatching(/^file 'train\.jsonl' of artifact 'artifact:\/\/\/local\/demo\/data:v\d'$/u),
    `training job '${jobId}'`,
  ]);
  expect(result.unknown.map(({ path }: { path: string }) => path).toSorted()).toEqual([
    `checkpoints/${modelId}/1/model.safetensors`,
    `checkpoints/${modelId}/1/state.json`,
  ]);
  // A deleted directory is reported as missing, also without digests.
  await rm(join(dataDir, "checkpoints", modelId, "1"), { recursive: true });
  const text = await verify(dataDir);
  expect(text.code).toBe(1);
  expect(text.stdout).toContain(`missing: checkpoints/${modelId}/1 (checkpoint 'local/demo/reverse:step1')\n`);
  expect(text.stdout).toContain("unreferenced: checkpoints/nobody/x\n");
});

test("verify rejects a directory without a database, and changes nothing", async () => {
  const dataDir = await temporaryDirectory();
  const result = await verify(dataDir);
  expect([result.code, result.stderr]).toEqual([1, expect.stringContaining("Expected a data directory with a SQLite database")]);
  expect(await readdir(dataDir)).toEqual([]);
});
