import { readdir, readFile, rm, truncate, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openConnection } from "../../src/service/store/connection.ts";
import {
  ARTIFACTS,
  chatLines,
  createModel,
  finishedEvents,
  goodGroup,
  MODELS,
  restartable,
  RL_JOBS,
  rlBody,
  SFT_JOBS,
  startRlJob,
  uploadArtifact,
  type Answer,
  type TestService,
  statePath,
} from "./support.ts";
import { onSqlite } from "../support/postgres.ts";

const CHAT = "/v1/chat/completions";

async function flipLastByte(path: string): Promise<void> {
  const bytes = await readFile(path);
  bytes[bytes.length - 1]! ^= 1;
  await writeFile(path, bytes);
}

/** Ways to damage a file, each with the finding of its error message. */
const DAMAGE = [
  { kind: "a flipped bit", damage: flipLastByte, finding: "differ from its SHA-256 digest" },
  { kind: "a truncated file", damage: (path: string) => truncate(path, 5), finding: "expected \\d+ bytes, found 5" },
  { kind: "a missing file", damage: (path: string) => rm(path), finding: "the file is missing" },
];

/** A stopped service with one trained step. */
async function trained(settings: object = {}) {
  const given = await restartable();
  const service = await given.start();
  const { id } = await createModel(service);
  const job = await service.ok("POST", RL_JOBS, { ...rlBody(id), ...settings });
  await finishedEvents(service, job.id);
  return { ...given, service, modelId: id, jobId: job.id as string, state: statePath(given.dataDir, id, 1) };
}

function expectDamage({ status, body }: Answer, given: { readonly dataDir: string; readonly message: RegExp }): void {
  expect([status, body.error]).toEqual([
    500,
    { message: expect.stringMatching(given.message), type: "InternalServerError", param: null, code: 500, error_code: "E_DATA_CORRUPTED" },
  ]);
  expect(JSON.stringify(body)).not.toContain(given.dataDir);
}

function chat({ call }: TestService): Promise<Answer> {
  return call("POST", CHAT, { model: "local/demo/reverse:step1", messages: [{ role: "user", content: "a" }], max_tokens: 2 });
}

test.each(DAMAGE)(
  "$kind in a checkpoint's weights: chat, download, fork and training fail naming the step",
  async ({ damage, finding }) => {
    const { dataDir, start, modelId, state, service: first } = await trained();
    await first.service.close();
    await damage(join(state, "model.safetensors"));
    const service = await start();
    const message = new RegExp(`^Checkpoint 'local/demo/reverse:step1' \\(model\\.safetensors\\) is damaged: .*${finding}`, "u");
    expectDamage(await chat(service), { dataDir, message });
    expectDamage(await service.call("GET", `${MODELS}/${modelId}/checkpoints/1/archive`), { dataDir, message });
    const fork = { project: "demo", name: "fork", base_model: "tiny", from: "local/demo/reverse:step1" };
    expectDamage(await service.call("POST", MODELS, fork), { dataDir, message });
    const events = await finishedEvents(service, await startRlJob(service, modelId));
    expect(events.at(-1)).toMatchObject({ type: "training_failed", data: { error_message: expect.stringMatching(message) } });
    expect(service.log).toContainEqual({
      level: "error",
      message: "A stored file is damaged",
      fields: expect.objectContaining({ path: join(state, "model.safetensors") }),
    });
    // Other steps are served.
    expect((await service.call("GET", `${MODELS}/${modelId}/checkpoints/0/archive`)).status).toBe(200);
  },
);

test("a damaged optimizer state fails training, not sampling", async () => {
  const { start, modelId, state, service: first } = await trained();
  await first.service.close();
  await flipLastByte(join(state, "optimizer.safetensors"));
  const service = await start();
  expect((await chat(service)).status).toBe(200);
  const events = await finishedEvents(service, await startRlJob(service, modelId));
  expect(events.at(-1)?.data.error_message).toMatch(/step1' \(optimizer\.safetensors\) is damaged/u);
});

test.each(DAMAGE)("$kind in an artifact: download and training fail naming the file", async ({ damage, finding }) => {
  const given = await restartable();
  const service = await given.start();
  const { id } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(3) });
  const version = await service.ok("POST", ARTIFACTS, { project: "demo", name: "other" });
  await service.ok("PUT", `${ARTIFACTS}/${version.id}/files/train.jsonl`, chatLines(3));
  const file = `${ARTIFACTS}/${version.id}/files/train.jsonl`;
  expect((await service.call("GET", file)).status).toBe(200);
  const blobs = await readdir(join(given.dataDir, "artifacts", "blobs"), { recursive: true, withFileTypes: true });
  const [blob] = blobs.filter((entry) => entry.isFile());
  await damage(join(blob!.parentPath, blob!.name));
  const message = (name: string) =>
    new RegExp(`^File 'train\\.jsonl' of artifact 'artifact:///local/demo/${name}:v0' is damaged: .*${finding}`, "u");
  // The damage came after the file was verified once: its size or modification time shows it.
  expectDamage(await service.call("GET", file), { ...given, message: message("other") });
  const sft = await service.call("POST", SFT_JOBS, { model_id: id, training_data_url: url });
  expectDamage(sft, { ...given, message: message("data") });
});

/** Flips a bit without a trace in the size or the times of the file, as a failing disk does. */
async function rot(path: string, damage = flipLastByte): Promise<void> {
  await damage(path);
  await utimes(path, 1e9, 1e9);
}

/** Reads a response to its end. Returns the bytes that arrived, and whether the client noticed an error. */
async function received({ service }: TestService, path: string): Promise<{ readonly bytes: number; readonly isBroken: boolean }> {
  const response = await fetch(service.url + path, { headers: { authorization: `Bearer ${service.apiKey}` } });
  let bytes = 0;
  try {
    for await (const piece of response.body!) bytes += piece.byteLength;
  } catch {
    return { bytes, isBroken: true };
  }
  return { bytes, isBroken: !response.ok };
}

test.each([
  { size: "one piece", bytes: 100 },
  { size: "several pieces", bytes: 2_500_000 },
])("breaks the download of an artifact file of $size that rotted after its first check", async ({ bytes }) => {
  const given = await restartable();
  const service = await given.start();
  await uploadArtifact(service, { "train.jsonl": chatLines(1), "data.bin": "x".repeat(bytes) });
  const [version] = (await service.ok("GET", ARTIFACTS)).data;
  const { files } = await service.ok("GET", `${ARTIFACTS}/${version.id}`);
  const { sha256 } = files.find(({ path }: { path: string }) => path === "data.bin");
  const blob = join(given.dataDir, "artifacts", "blobs", sha256.slice(0, 2), sha256);
  await utimes(blob, 1e9, 1e9);
  const file = `${ARTIFACTS}/${version.id}/files/data.bin`;
  expect(await received(service, file)).toEqual({ bytes, isBroken: false });
  await rot(blob);
  expect(await received(service, file)).toEqual({ bytes: expect.toSatisfy((count: number) => count < bytes), isBroken: true });
  const finding = "its bytes differ from its SHA-256 digest";
  expect(service.log).toContainEqual({
    level: "error",
    message: "A stored file is damaged",
    fields: expect.objectContaining({ path: blob, finding }),
  });
  // The file counts as damaged from then on.
  expectDamage(await service.call("GET", file), { ...given, message: new RegExp(`^File 'data.bin' of artifact .*${finding}`, "u") });
});

test("breaks the archive of a checkpoint that rotted after its first check", async () => {
  const { dataDir, service, modelId, state } = await trained();
  const weights = join(state, "model.safetensors");
  await utimes(weights, 1e9, 1e9);
  const archive = `${MODELS}/${modelId}/checkpoints/1/archive`;
  const { bytes, isBroken } = await received(service, archive);
  expect(isBroken).toBe(false);
  await rot(weights);
  const broken = await received(service, archive);
  expect(broken.isBroken).toBe(true);
  expect(broken.bytes).toBeLessThan(bytes);
  const message = /^Checkpoint 'local\/demo\/reverse:step1' \(model\.safetensors\) is damaged/u;
  expectDamage(await service.call("GET", archive), { dataDir, message });
});

/** Paths of the damaged files in a service's log. */
function loggedDamage({ log }: TestService): string[] {
  return log.filter(({ message }) => message === "A stored file is damaged").map(({ fields }) => (fields as { path: string }).path);
}

test("the background verification logs rotten, missing and unread files, and skips the files of a damaged row", async () => {
  onSqlite();
  const { dataDir, start, service: first, state, jobId } = await trained({ experimental_config: { token_report: true } });
  await uploadArtifact(first, { "train.jsonl": chatLines(3) });
  await createModel(first, "other");
  await first.service.close();
  const blobs = await readdir(join(dataDir, "artifacts", "blobs"), { recursive: true, withFileTypes: true });
  const blob = blobs.find((entry) => entry.isFile())!;
  const rotten = [join(state, "optimizer.safetensors"), join(blob.parentPath, blob.name)];
  for (const path of rotten) await rot(path);
  const report = join(dataDir, "tokens", `${jobId}.json`);
  await rm(report);
  const database = await openConnection(join(dataDir, "whetstone.db"), 1000);
  // The row sorts before the others.
  database.exec(`INSERT INTO jobs (id, seq, entity, model_id, type, status, config, committed_steps, attempts, cancel_requested, created_at, digests)
    SELECT '0', 999, entity, model_id, type, status, config, committed_steps, attempts, cancel_requested, created_at, '{}}' FROM jobs WHERE id = '${jobId}'`);
  database.close();
  const service = await start();
  await expect.poll(() => loggedDamage(service)).toHaveLength(3);
  expect(new Set(loggedDamage(service))).toEqual(new Set([...rotten, report]));
  expect(service.log).toContainEqual(expect.objectContaining({ level: "error", message: "Stored files cannot be verified" }));
});

test("the background verification reads no faster than its rate, and ends with the service", async () => {
  const given = await restartable({ limits: { scrubBytesPerSecond: 1 } });
  const first = await given.start();
  const { id } = await createModel(first);
  await finishedEvents(first, await startRlJob(first, id));
  await first.service.close();
  const state = statePath(given.dataDir, id, 1);
  for (const name of ["model.safetensors", "optimizer.safetensors", "state.json"]) await rot(join(state, name));
  const service = await given.start();
  await expect.poll(() => loggedDamage(service)).toHaveLength(1);
  for (let request = 0; request < 5; request++) await service.ok("GET", MODELS);
  await service.service.close();
  expect(loggedDamage(service)).toHaveLength(1);
});

test("a damaged or missing token report fails naming the job", async () => {
  const { dataDir, start, service: first, jobId } = await trained({ experimental_config: { token_report: true } });
  await first.service.close();
  await flipLastByte(join(dataDir, "tokens", `${jobId}.json`));
  const service = await start();
  expectDamage(await service.call("GET", `${RL_JOBS}/${jobId}/tokens`), {
    dataDir,
    message: new RegExp(`token report of training job '${jobId}'`, "u"),
  });
  await rm(join(dataDir, "tokens", `${jobId}.json`));
  expectDamage(await service.call("GET", `${RL_JOBS}/${jobId}/tokens`), { dataDir, message: /the file is missing/u });
});

test("damaged groups and damaged progress fail the job that uses them", async () => {
  onSqlite();
  const { dataDir, bases, start } = await restartable({ limits: { commitEverySteps: 2 } });
  let steps = 0;
  let reach: () => void = () => undefined;
  const reached = new Promise<void>((resolve) => (reach = resolve));
  const first = await start({
    async before({ verb }, { signal }) {
      if (verb !== "optimStep" || ++steps < 4) return;
      reach();
      await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error)));
    },
  });
  expect(bases).toHaveLength(1);
  const { id } = await createModel(first);
  const url = await uploadArtifact(first, { "train.jsonl": chatLines(8) });
  const sft = await first.ok("POST", SFT_JOBS, { model_id: id, training_data_url: url, config: { batch_size: 1 } });
  const rl = await first.ok("POST", RL_JOBS, { model_id: id, trajectory_groups: [goodGroup()] });
  await reached;
  await first.service.close({ graceMs: 0 });
  await flipLastByte(join(dataDir, "jobs", sft.id, "progress-2", "model.safetensors"));
  await flipLastByte(join(dataDir, "jobs", rl.id, "groups.jsonl"));
  const second = await start();
  expect((await finishedEvents(second, sft.id)).at(-1)).toMatchObject({
    type: "training_failed",
    data: { error_message: expect.stringMatching(/^The progress of training job '.*' \(model\.safetensors\) is damaged/u) },
  });
  expect((await finishedEvents(second, rl.id)).at(-1)).toMatchObject({
    type: "training_failed",
    data: { error_message: expect.stringMatching(/^File 'groups\.jsonl' of training job '.*' is damaged/u) },
  });
});

test("records the digests of a checkpoint without digests at its first use", async () => {
  onSqlite();
  const { dataDir, start, state, service: first } = await trained();
  await first.service.close();
  const database = await openConnection(join(dataDir, "whetstone.db"), 1000);
  database.exec("UPDATE checkpoints SET digests = NULL");
  database.close();
  const second = await start();
  expect((await chat(second)).status).toBe(200);
  await second.service.close();
  await flipLastByte(join(state, "model.safetensors"));
  const third = await start();
  expect((await chat(third)).status).toBe(500);
  await rm(state, { recursive: true });
  expect((await chat(third)).body.error.message).toContain("the file is missing");
});

test("answers 500 for an unreadable checkpoint without digests", async () => {
  onSqlite();
  const { dataDir, start, state, service: first } = await trained();
  await first.service.close();
  const database = await openConnection(join(dataDir, "whetstone.db"), 1000);
  database.exec("UPDATE checkpoints SET digests = NULL");
  database.close();
  await rm(join(state, "state.json"));
  const service = await start();
  expectDamage(await chat(service), {
    dataDir,
    message: /^Checkpoint 'local\/demo\/reverse:step1' cannot be loaded: its files are damaged/u,
  });
});
