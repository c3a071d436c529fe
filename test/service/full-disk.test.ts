/** A service on a real file system of a few megabytes that is filled to the last byte. */
import { readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { startService } from "../../src/service/index.ts";
import { createScriptedEngine } from "../../src/testing/index.ts";
import { canMount, smallDisk } from "../support/small-disk.ts";
import {
  ARTIFACTS,
  createModel,
  finishedEvents,
  MODELS,
  RL_JOBS,
  rlBody,
  SFT_JOBS,
  startRlJob,
  startTestService,
  temporaryDirectory,
  testBase,
  uploadArtifact,
  chatLines,
  type TestService,
} from "./support.ts";
import { onSqlite } from "../support/postgres.ts";

const CHAT = "/v1/chat/completions";
const limits = { minFreeBytes: 512 * 1024 };
const FULL = { status: 507, body: { error: { type: "InsufficientStorageError", code: 507, error_code: "E_NO_SPACE" } } };

/** A model with steps 0 to 3. */
async function trained(service: TestService): Promise<string> {
  const { id } = await createModel(service);
  for (let step = 1; step <= 3; step++) await finishedEvents(service, await startRlJob(service, id));
  return id;
}

async function steps({ ok }: TestService, modelId: string): Promise<number[]> {
  return (await ok("GET", `${MODELS}/${modelId}/checkpoints`)).data.map(({ step }: { step: number }) => step);
}

test("rejects new work and serves existing models below the minimum of free space", async () => {
  // More than any disk has: the guard alone is tested, on every machine.
  const service = await startTestService({ limits: { minFreeBytes: Number.MAX_SAFE_INTEGER } });
  const refused = [
    await service.call("POST", MODELS, { project: "demo", name: "m", base_model: "tiny" }),
    await service.call("POST", ARTIFACTS, { project: "demo", name: "data" }),
  ];
  for (const answer of refused) expect(answer).toMatchObject(FULL);
  expect(await service.ok("GET", "/health")).toMatchObject({
    status: "degraded",
    storage: { state: "low", message: expect.stringContaining("Delete") },
  });
  expect(refused[0]!.body.error.message).toMatch(/must stay free.*Delete checkpoints/s);
  expect((await service.call("POST", CHAT, { model: "tiny", messages: [{ role: "user", content: "hello" }] })).status).toBe(200);
});

test("answers a repeated idempotent request on a low disk", async () => {
  const dataDir = await temporaryDirectory();
  const bases = await testBase();
  const headers = { "idempotency-key": "one" };
  const body = { project: "demo", name: "data" };
  const first = await startTestService({ dataDir, engine: { bases } });
  const version = await first.ok("POST", ARTIFACTS, body, { headers });
  await first.service.close();
  const second = await startTestService({ dataDir, engine: { bases }, limits: { minFreeBytes: Number.MAX_SAFE_INTEGER } });
  expect(await second.ok("POST", ARTIFACTS, body, { headers })).toEqual(version);
});

test.skipIf(!canMount)("answers writes on a full disk with 507, stores nothing, and accepts deletions", async () => {
  onSqlite();
  const disk = await smallDisk(16);
  const service = await startTestService({ dataDir: disk.path, limits });
  const model = await trained(service);
  const open = await service.ok("POST", ARTIFACTS, { project: "demo", name: "open" });
  const data = await uploadArtifact(service, { "train.jsonl": chatLines(2) });
  await disk.fill();
  const writes: readonly (readonly [string, string, unknown])[] = [
    ["POST", MODELS, { project: "demo", name: "other", base_model: "tiny" }],
    ["POST", ARTIFACTS, { project: "demo", name: "more" }],
    ["PUT", `${ARTIFACTS}/${open.id}/files/a.txt`, "x".repeat(1000)],
    ["POST", RL_JOBS, rlBody(model)],
    ["POST", SFT_JOBS, { model_id: model, training_data_url: data }],
    ["PUT", `${MODELS}/${model}/checkpoints/1/pin`, undefined],
  ];
  const answers = [];
  for (const [method, path, body] of writes) answers.push({ path, ...(await service.call(method, path, body)) });
  for (const answer of answers) expect(answer).toMatchObject({ path: answer.path, ...FULL });
  const ask = { model: "tiny", input: "hello", metadata: { pad: "x".repeat(9000) } };
  const stored = await service.call("POST", "/v1/responses", ask);
  expect(stored).toMatchObject({
    status: 507,
    body: { error: { error_code: "E_NO_SPACE", message: expect.stringContaining("store: false") } },
  });
  expect((await service.call("POST", "/v1/responses", { ...ask, store: false })).status).toBe(200);
  expect(JSON.stringify(answers.map(({ body }) => body))).not.toContain(disk.path);
  expect(await readdir(join(disk.path, "tmp"))).toEqual([]);
  expect(await service.ok("GET", `${ARTIFACTS}/${open.id}`)).toEqual(open);

  expect(await service.ok("DELETE", `${MODELS}/${model}/checkpoints`, { steps: [1, 2] })).toEqual({
    deleted_count: 2,
    not_found_steps: [],
  });
  expect(await steps(service, model)).toEqual([0, 3]);
  expect(await readdir(join(disk.path, "checkpoints", model))).toEqual(["3"]);
  expect((await service.ok("DELETE", `${MODELS}/${model}`)).deleted_checkpoints).toBe(2);

  await disk.empty();
  await createModel(service, "after");
  // The reserve is back before the next time.
  await expect.poll(async () => (await stat(join(disk.path, "reserve"))).size).toBe(4 * 1024 * 1024);
});

/** Starts on a disk that is full, and ends with room and a finished job. */
async function startFull(beforeStart: (dataDir: string) => Promise<void>): Promise<void> {
  const disk = await smallDisk(16);
  const bases = await testBase();
  const first = await startTestService({ dataDir: disk.path, limits, engine: { bases } });
  const model = await trained(first);
  await first.service.close();
  await beforeStart(disk.path);
  await disk.fill();

  const service = await startTestService({ dataDir: disk.path, limits, engine: { bases } });
  expect(service.log.map(({ message }) => message).join("\n")).toContain("The disk is full");
  expect(await steps(service, model)).toEqual([0, 1, 2, 3]);
  expect((await service.call("POST", CHAT, { model, messages: [{ role: "user", content: "hello" }] })).status).toBe(200);
  expect(await service.call("POST", RL_JOBS, rlBody(model))).toMatchObject(FULL);
  await disk.empty();
  expect((await finishedEvents(service, await startRlJob(service, model))).at(-1)).toMatchObject({ data: { step: 4 } });
}

test.skipIf(!canMount)("starts on a full disk with the reserve, rejects writes, and recovers", async () => {
  await startFull(async () => undefined);
});

test.skipIf(!canMount)("starts on a full disk without a reserve, and recovers", async () => {
  await startFull((dataDir) => rm(join(dataDir, "reserve")));
});

test.skipIf(!canMount)("rejects an empty data directory on a full disk with the remedy", async () => {
  const disk = await smallDisk(1);
  await disk.fill();
  await expect(startService({ dataDir: disk.path, engine: createScriptedEngine() })).rejects.toMatchObject({
    code: "E_NO_SPACE",
    message: expect.stringContaining("Make room"),
  });
});
