import { createReadStream } from "node:fs";
import { readdir, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import OpenAI, { toFile } from "openai";
import { expect, onTestFinished, test, vi } from "vitest";
import { ARTIFACTS, chatLines, restartable, startTestService, temporaryDirectory, type TestService } from "../support.ts";
import { clientOf, createJob, finished, supervised, upload } from "./support.ts";

/** Names of the stored blobs and of uploads in progress. */
async function stored({ service: { dataDir } }: TestService): Promise<string[]> {
  const blobs = await readdir(join(dataDir, "artifacts/blobs"), { recursive: true });
  return [...blobs.filter((name) => name.length > 10), ...(await readdir(join(dataDir, "tmp")))];
}

test("stores a file as an artifact, and returns its properties and its bytes", async () => {
  const service = await startTestService();
  const client = clientOf(service);
  const lines = chatLines(3);
  const file = await client.files.create({ file: await toFile(Buffer.from(lines), 'a "ü".jsonl'), purpose: "fine-tune" });
  expect(file).toEqual({
    id: expect.stringMatching(/^file-[0-9a-f]{24}$/u),
    object: "file",
    bytes: Buffer.byteLength(lines),
    created_at: expect.any(Number),
    filename: 'a "ü".jsonl',
    purpose: "fine-tune",
    status: "processed",
  });
  expect(await client.files.retrieve(file.id)).toEqual(file);
  expect(await client.files.waitForProcessing(file.id)).toEqual(file);
  expect(await (await client.files.content(file.id)).text()).toBe(lines);
  const { data } = await service.ok("GET", ARTIFACTS);
  expect(data).toMatchObject([{ project: "files", name: file.id, state: "committed", bytes: file.bytes }]);
});

test("takes a file that the client streams", async () => {
  const service = await startTestService();
  const client = clientOf(service);
  const path = join(await temporaryDirectory(), "long.jsonl");
  await writeFile(path, chatLines(20_000));
  const file = await client.files.create({ purpose: "fine-tune", file: createReadStream(path) });
  expect(file).toMatchObject({ filename: "long.jsonl", bytes: Buffer.byteLength(chatLines(20_000)) });
  expect(await (await client.files.content(file.id)).text()).toBe(chatLines(20_000));
});

test("lists files by time, purpose and cursor", async () => {
  const client = clientOf(await startTestService());
  const ids: string[] = [];
  for (let index = 0; index < 5; index++) ids.push(await upload(client, chatLines(index + 1)));
  const all = async (query: OpenAI.FileListParams) => {
    const found: string[] = [];
    for await (const file of client.files.list(query)) found.push(file.id);
    return found;
  };
  const ascending = await all({ order: "asc", limit: 2 });
  expect(ascending.toSorted()).toEqual(ids.toSorted());
  expect(await all({ limit: 2 })).toEqual(ascending.toReversed());
  expect(await all({ purpose: "fine-tune-results" })).toEqual([]);
  await finished(client, (await createJob(client)).id);
  expect(await all({ purpose: "fine-tune-results" })).toHaveLength(1);
  await expect(client.files.list({ after: "file-unknown" })).rejects.toMatchObject({ status: 400, param: "after" });
});

test("deletes a file with its contents, through either interface", async () => {
  const service = await startTestService();
  const client = clientOf(service);
  const [one, other] = [await upload(client, chatLines(1)), await upload(client, chatLines(2))];
  expect(await client.files.delete(one)).toEqual({ id: one, object: "file", deleted: true });
  await expect(client.files.retrieve(one)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  await expect(client.files.delete(one)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  const [artifact] = (await service.ok("GET", ARTIFACTS)).data;
  await service.ok("DELETE", `${ARTIFACTS}/${artifact.id}`);
  await expect(client.files.content(other)).rejects.toMatchObject({ status: 404, param: "file_id" });
  expect(await stored(service)).toEqual([]);
});

test("keeps a file while a job needs it", async () => {
  let isHeld = true;
  const service = await startTestService({
    engine: {
      before: async ({ verb }) => {
        while (verb === "optimStep" && isHeld) await new Promise((resolve) => setTimeout(resolve, 5));
      },
    },
  });
  const client = clientOf(service);
  const job = await createJob(client, { method: supervised({ n_epochs: 1 }) });
  await expect(client.files.delete(job.training_file)).rejects.toMatchObject({ status: 400 });
  isHeld = false;
  await finished(client, job.id);
  await client.files.delete(job.training_file);
});

test("a file expires after its lifetime, and its contents are deleted", async () => {
  const { start } = await restartable();
  const service = await start();
  const client = clientOf(service);
  const file = await client.files.create({
    file: await toFile(Buffer.from(chatLines(1)), "train.jsonl"),
    purpose: "fine-tune",
    expires_after: { anchor: "created_at", seconds: 3600 },
  });
  expect(file.expires_at).toBe(file.created_at + 3600);
  await client.files.retrieve(file.id);
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 3_601_000 });
  onTestFinished(() => void vi.useRealTimers());
  await expect(client.files.retrieve(file.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  await expect(client.fineTuning.jobs.create({ model: "tiny", training_file: file.id })).rejects.toMatchObject({
    status: 404,
    param: "training_file",
  });
  expect((await client.files.list()).data).toEqual([]);
  expect(await stored(service)).toHaveLength(1);
  await service.service.close({ graceMs: 0 });
  const next = await start();
  await expect.poll(() => stored(next)).toEqual([]);
  expect((await next.ok("GET", ARTIFACTS)).data).toEqual([]);
});

test("accepts neither files nor jobs without free disk space", async () => {
  const { dataDir, bases, start } = await restartable();
  const roomy = await start();
  const training_file = await upload(clientOf(roomy));
  await roomy.service.close({ graceMs: 0 });
  const full = await startTestService({ dataDir, engine: { bases }, limits: { minFreeBytes: Number.MAX_SAFE_INTEGER } });
  const client = clientOf(full);
  const before = await stored(full);
  await expect(upload(client)).rejects.toMatchObject({ status: 507 });
  await expect(client.fineTuning.jobs.create({ model: "tiny", training_file })).rejects.toMatchObject({ status: 507 });
  expect(await stored(full)).toEqual(before);
  expect((await client.fineTuning.jobs.list()).data).toEqual([]);
  expect(await client.files.delete(training_file)).toMatchObject({ deleted: true });
});

test("rejects what it cannot use, as the client's own errors, and keeps nothing of it", async () => {
  const service = await startTestService({ limits: { maxArtifactFileBytes: 10_000 } });
  const client = clientOf(service);
  const send = (more: object) =>
    toFile(Buffer.from("{}"), "train.jsonl").then((file) => client.files.create({ file, purpose: "fine-tune", ...more }));
  for (const purpose of ["batch", "assistants", "vision", "user_data", "evals"] as const)
    await expect(send({ purpose })).rejects.toMatchObject({
      status: 400,
      param: "purpose",
      message: expect.stringContaining(`"${purpose}"`),
    });
  await expect(send({ purpose: undefined })).rejects.toMatchObject({ status: 400, param: "purpose" });
  await expect(send({ expires_after: { anchor: "created_at", seconds: 10 } })).rejects.toMatchObject({
    status: 400,
    param: "expires_after.seconds",
  });
  await expect(send({ expires_after: { anchor: "created_at" } })).rejects.toMatchObject({ status: 400, param: "expires_after.seconds" });
  await expect(send({ folder: "x" })).rejects.toMatchObject({ status: 400, param: "folder" });
  await expect(send({ file: await toFile(Buffer.from(""), "empty.jsonl") })).rejects.toMatchObject({ status: 400, param: "file" });
  await expect(send({ file: await toFile(Buffer.from("{}"), "n".repeat(300)) })).rejects.toMatchObject({ status: 400, param: "file" });
  await expect(send({ file: await toFile(Buffer.alloc(20_000, "x"), "long.jsonl") })).rejects.toMatchObject({ status: 413 });
  const twice = new FormData();
  for (let count = 0; count < 2; count++) twice.append("purpose", "fine-tune");
  await expect(client.post("/files", { body: twice })).rejects.toMatchObject({ status: 400, param: "purpose" });
  await expect(client.post("/files", { body: { purpose: "fine-tune" } })).rejects.toMatchObject({ status: 400, param: "Content-Type" });
  const stranger = new OpenAI({ baseURL: service.service.inferenceUrl, apiKey: "another", maxRetries: 0 });
  await expect(stranger.files.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
  expect((await client.files.list()).data).toEqual([]);
  expect(await stored(service)).toEqual([]);
});

test("keeps nothing of an upload that breaks off", async () => {
  const service = await startTestService();
  const client = clientOf(service);
  const upload = request(`${service.service.inferenceUrl}/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${service.service.apiKey}`, "content-type": "multipart/form-data; boundary=b" },
  });
  const failed = new Promise((resolve) => upload.on("error", resolve));
  upload.write('--b\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n');
  upload.write("x".repeat(300_000));
  await expect.poll(() => stored(service)).toHaveLength(1);
  upload.destroy();
  await failed;
  await expect.poll(() => stored(service)).toEqual([]);
  expect((await client.files.list()).data).toEqual([]);
});
