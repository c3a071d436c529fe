import { cp, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { dataDirectoryAt } from "../../../src/service/disk/data-directory.ts";
import { backUp } from "../../../src/service/stored-files/backup.ts";
import { restore } from "../../../src/service/stored-files/restore.ts";
import { verifyDataDirectory } from "../../../src/service/stored-files/verify.ts";
import { openBucket, type S3Bucket } from "../../../src/service/storage/s3/bucket.ts";
import { missingPostgres, temporarySchema, onSqlite } from "../../support/postgres.ts";
import { startS3, whyNoS3 } from "../../support/s3-server.ts";
import { startProxy } from "../../support/tcp-proxy.ts";
import {
  ARTIFACTS,
  chatLines,
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
  type TestService,
} from "../support.ts";

/** Copies the database alone: the data directory of another machine. */
async function databaseOnly(from: string): Promise<string> {
  const to = await temporaryDirectory();
  for (const name of await readdir(from)) if (name.startsWith("whetstone.db")) await cp(join(from, name), join(to, name));
  return to;
}

/** Waits for the end of a job, and returns it. */
async function ended(service: TestService, jobId: string): Promise<{ readonly status: string; readonly step: number | null }> {
  await finishedEvents(service, jobId);
  return service.ok("GET", `${RL_JOBS}/${jobId}`);
}

/** Trains a step with a token report, and uploads an artifact. */
async function fill(service: TestService): Promise<{ readonly modelId: string; readonly jobId: string }> {
  const { id: modelId } = await createModel(service);
  const job = await service.ok("POST", RL_JOBS, { ...rlBody(modelId), experimental_config: { token_report: true } });
  expect(await ended(service, job.id)).toMatchObject({ status: "succeeded" });
  await uploadArtifact(service, { "train.jsonl": chatLines(2), "data.bin": "x".repeat(5000) });
  return { modelId, jobId: job.id };
}

/** Returns the files of a tar archive, without their times. */
function filesOfArchive(archive: Buffer): Record<string, string> {
  const files: Record<string, string> = {};
  const text = (from: number, length: number) => archive.toString("utf8", from, from + length).replace(/\0.*$/su, "");
  for (let at = 0; text(at, 100) !== "";) {
    const size = Number.parseInt(text(at + 124, 12), 8);
    files[text(at, 100)] = archive.toString("hex", at + 512, at + 512 + size);
    at += 512 + Math.ceil(size / 512) * 512;
  }
  return files;
}

/** Returns everything that is read from stored files. */
async function contents(service: TestService, { modelId, jobId }: { readonly modelId: string; readonly jobId: string }) {
  const [artifact] = (await service.ok("GET", ARTIFACTS)).data;
  const fetchBytes = async (path: string) => {
    const answer = await fetch(service.service.url + path, { headers: { authorization: `Bearer ${service.service.apiKey}` } });
    expect(answer.status).toBe(200);
    return Buffer.from(await answer.arrayBuffer());
  };
  return {
    file: await fetchBytes(`${ARTIFACTS}/${artifact.id}/files/data.bin`),
    archive: filesOfArchive(await fetchBytes(`${MODELS}/${modelId}/checkpoints/1/archive`)),
    tokens: await service.ok("GET", `${RL_JOBS}/${jobId}/tokens`),
    checkpoint: await service.ok("GET", `${MODELS}/${modelId}/checkpoints/1`),
  };
}

async function filesOf(bucket: S3Bucket): Promise<string[]> {
  const found: string[] = [];
  for await (const { path } of bucket.list()) found.push(path);
  return found.sort();
}

describe.skipIf(whyNoS3 !== null)(`a service with an S3 storage${whyNoS3 === null ? "" : ` (${whyNoS3})`}`, () => {
  test("serves every file and trains on from an empty data directory with the database, and removes deleted files", async () => {
    onSqlite();
    const storage = (await startS3()).newUrl();
    const bases = await testBase();
    const first = await startTestService({ storage, engine: { bases } });
    const ids = await fill(first);
    const before = await contents(first, ids);
    await first.service.close();
    // The database records the storage. Nothing is cached.
    const second = await startTestService({ dataDir: await databaseOnly(first.service.dataDir), engine: { bases } });
    expect(await contents(second, ids)).toEqual(before);
    const job = await second.ok("POST", RL_JOBS, rlBody(ids.modelId));
    expect(await ended(second, job.id)).toMatchObject({ status: "succeeded", step: 2 });
    const bucket = openBucket(storage);
    // The files of finished jobs are gone.
    expect((await filesOf(bucket)).filter((path) => path.startsWith("jobs/"))).toEqual([]);
    await second.ok("DELETE", `${MODELS}/${ids.modelId}`);
    await second.ok("DELETE", `${RL_JOBS}/${ids.jobId}`);
    for (const { id } of (await second.ok("GET", ARTIFACTS)).data) await second.ok("DELETE", `${ARTIFACTS}/${id}`);
    expect(await filesOf(bucket)).toEqual([]);
    await bucket.close();
  });

  test.skipIf(missingPostgres !== null)(
    `is one service in two processes with a Postgres database${missingPostgres === null ? "" : `: ${missingPostgres}`}`,
    { timeout: 120_000 },
    async () => {
      const [storage, database] = [(await startS3()).newUrl(), temporarySchema()];
      const start = () => startTestService({ storage, database });
      const one = await start();
      const ids = await fill(one);
      const other = await start();
      expect(other.service.dataDir).not.toBe(one.service.dataDir);
      expect(await contents(other, ids)).toEqual(await contents(one, ids));
      const job = await startRlJob(other, ids.modelId);
      expect(await ended(one, job)).toMatchObject({ status: "succeeded", step: 2 });
      for (const service of [one, other]) {
        const chat = { model: `${ids.modelId}:step2`, messages: [{ role: "user", content: "hi" }], max_tokens: 2 };
        expect((await service.call("POST", "/v1/chat/completions", chat)).status).toBe(200);
      }
    },
  );

  test("answers 503 naming the storage while it is down, keeps nothing of the request, and jobs wait for it", async () => {
    const s3 = await startS3();
    const proxy = await startProxy(s3.endpoint);
    const service = await startTestService({ storage: s3.newUrl(proxy.endpoint) });
    const { id } = await createModel(service);
    const url = await uploadArtifact(service, { "train.jsonl": chatLines(2) });
    const version = await service.ok("POST", ARTIFACTS, { project: "demo", name: "other" });
    proxy.faults.isDown = true;
    proxy.cutAll();
    const answer = await service.call("PUT", `${ARTIFACTS}/${version.id}/files/a.bin`, "contents");
    expect(answer).toMatchObject({
      status: 503,
      body: { error: { error_code: "E_UNAVAILABLE", message: expect.stringContaining("s3://") } },
    });
    expect(answer.headers.get("retry-after")).not.toBe(null);
    expect(await service.call("GET", "/ready")).toMatchObject({ status: 503, body: { parts: { storage: { status: "unavailable" } } } });
    expect((await service.ok("GET", `${ARTIFACTS}/${version.id}`)).files).toEqual([]);
    const job = await service.ok("POST", SFT_JOBS, { model_id: id, training_data_url: url });
    const messages = () => service.log.map(({ message }) => message);
    await expect.poll(messages).toContainEqual(expect.stringContaining("cannot reach the storage"));
    proxy.faults.isDown = false;
    expect(await ended(service, job.id)).toMatchObject({ status: "succeeded", step: 1 });
    expect((await service.call("PUT", `${ARTIFACTS}/${version.id}/files/a.bin`, "contents")).status).toBe(200);
    expect((await service.call("GET", "/ready")).status).toBe(200);
  });

  test("keeps the copies in the data directory below the limit, and serves every model", async () => {
    const storage = (await startS3()).newUrl();
    const service = await startTestService({ storage, limits: { maxCacheBytes: 6000 } });
    const version = await service.ok("POST", ARTIFACTS, { project: "demo", name: "data" });
    for (const index of [0, 1, 2, 3]) await service.ok("PUT", `${ARTIFACTS}/${version.id}/files/${index}.bin`, `${index}`.repeat(2500));
    const onDisk = async () =>
      (await readdir(dataDirectoryAt(service.service.dataDir).blobs, { recursive: true })).filter((name) => name.length > 64);
    expect(await onDisk()).toHaveLength(2);
    for (const index of [0, 1, 2, 3]) {
      expect(await service.ok("GET", `${ARTIFACTS}/${version.id}/files/${index}.bin`)).toBe(`${index}`.repeat(2500));
    }
    await expect.poll(async () => (await onDisk()).length).toBeLessThanOrEqual(2);
  });

  test("replaces a damaged copy, and reports a damaged or missing object", async () => {
    onSqlite();
    const storage = (await startS3()).newUrl();
    const service = await startTestService({ storage });
    const version = await service.ok("POST", ARTIFACTS, { project: "demo", name: "data" });
    const { sha256, size_bytes } = await service.ok("PUT", `${ARTIFACTS}/${version.id}/files/a.bin`, "contents");
    const storedPath = `artifacts/blobs/${sha256.slice(0, 2)}/${sha256}`;
    await writeFile(join(service.service.dataDir, storedPath), "damaged!");
    expect(await service.ok("GET", `${ARTIFACTS}/${version.id}/files/a.bin`)).toBe("contents");
    expect(await verifyDataDirectory(service.service.dataDir)).toMatchObject({ files: 1, missing: [], damaged: [], unreferenced: [] });
    const bucket = openBucket(storage);
    await bucket.remove(storedPath, { sha256, size_bytes });
    await bucket.close();
    expect(await verifyDataDirectory(service.service.dataDir)).toMatchObject({ missing: [{ path: storedPath }] });
    await writeFile(join(service.service.dataDir, storedPath), "damaged!");
    const answer = await service.call("GET", `${ARTIFACTS}/${version.id}/files/a.bin`);
    expect(answer).toMatchObject({ status: 500, body: { error: { error_code: "E_DATA_CORRUPTED" } } });
  });

  test("moves to another storage, and to a folder, with a backup", async () => {
    onSqlite();
    const s3 = await startS3();
    const bases = await testBase();
    const first = await startTestService({ storage: s3.newUrl(), engine: { bases } });
    const ids = await fill(first);
    const before = await contents(first, ids);
    const backup = join(await temporaryDirectory(), "backup");
    await backUp(first.service.dataDir, backup);
    const [folder, other] = [join(await temporaryDirectory(), "folder"), join(await temporaryDirectory(), "other")];
    await restore(backup, folder);
    const url = s3.newUrl();
    await restore(backup, other, { storage: url });
    await first.service.close();
    const inFolder = await startTestService({ dataDir: folder, engine: { bases } });
    expect(await contents(inFolder, ids)).toEqual(before);
    const inOther = await startTestService({ dataDir: await databaseOnly(other), engine: { bases } });
    expect(await contents(inOther, ids)).toEqual(before);
    // A storage that has files already is not one to restore to.
    await expect(restore(backup, join(folder, "again"), { storage: url })).rejects.toMatchObject({ code: "E_CONFIG", param: "storage" });
  });

  test("rejects settings that cannot work, before anything is written", async () => {
    onSqlite();
    const s3 = await startS3();
    const storage = s3.newUrl();
    const start = (options: Parameters<typeof startTestService>[0]) => startTestService(options);
    const first = await start({ storage });
    await uploadArtifact(first, { "train.jsonl": chatLines(1) });
    await first.service.close();
    const rejected = (message: string) => expect.objectContaining({ code: "E_CONFIG", message: expect.stringContaining(message) });
    await expect(start({ storage })).rejects.toEqual(rejected("belongs to another database"));
    await expect(start({ storage: s3.newUrl(), dataDir: first.service.dataDir })).rejects.toEqual(rejected("which is empty"));
    await expect(start({ storage: storage.replace(s3.bucket, "no-such-bucket") })).rejects.toEqual(rejected("NoSuchBucket"));
    await expect(start({ storage: "/data" })).rejects.toEqual(rejected("s3://<bucket>/<prefix>"));
    await expect(start({ limits: { maxCacheBytes: 1 } })).rejects.toEqual(rejected("limit of the cache"));
    const folder = await start({});
    await uploadArtifact(folder, { "train.jsonl": chatLines(1) });
    await folder.service.close();
    await expect(start({ storage: s3.newUrl(), dataDir: folder.service.dataDir })).rejects.toEqual(rejected("whetstone restore --storage"));
    vi.stubEnv("AWS_SECRET_ACCESS_KEY", "wrong");
    await expect(start({ storage: s3.newUrl() })).rejects.toEqual(rejected("credentials"));
    vi.stubEnv("AWS_SECRET_ACCESS_KEY", "");
    await expect(start({ storage: s3.newUrl() })).rejects.toEqual(rejected("AWS_SECRET_ACCESS_KEY is not set"));
    vi.unstubAllEnvs();
  });
});
