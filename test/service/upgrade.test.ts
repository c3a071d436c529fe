import { createReadStream } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { unpackTar as readTar } from "modern-tar";
import { unpackTar } from "modern-tar/fs";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { startService, type RunningService } from "../../src/service/index.ts";
import { createSessionKey, hashSessionKey } from "../../src/service/sessions/keys.ts";
import { openConnection } from "../../src/service/store/connection.ts";
import { MIGRATIONS } from "../../src/service/store/migrations.ts";
import { verifyDataDirectory } from "../../src/service/stored-files/verify.ts";
import { ARTIFACTS, chatLines, MODELS, RL_JOBS, SFT_JOBS, temporaryDirectory } from "./support.ts";
import { onSqlite } from "../support/postgres.ts";

// The tests read and change the files of SQLite.
beforeEach(onSqlite);

/** Data directories made by the code of their time, with `fixtures/make-data-directory.ts`; named after their newest migration. */
const FIXTURES = join(import.meta.dirname, "fixtures");
const names = (await readdir(FIXTURES)).filter((name) => name.endsWith(".tar.gz")).toSorted();

/** Unpacks a fixture and serves it with the embedded engine. */
async function open(name: string) {
  const dataDir = await temporaryDirectory();
  await pipeline(createReadStream(join(FIXTURES, name)), createGunzip(), unpackTar(dataDir));
  const start = async () => {
    const service = await startService({ dataDir, apiKey: "fixture-key", trainerThreads: 1 });
    onTestFinished(() => service.close({ graceMs: 0 }));
    return service;
  };
  return { dataDir, start };
}

async function send({ url }: RunningService, method: string, path: string, body?: unknown): Promise<Response> {
  const response = await fetch(url + path, {
    method,
    headers: { authorization: "Bearer fixture-key", ...(body === undefined ? {} : { "content-type": "application/json" }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response;
}

async function json(service: RunningService, method: string, path: string, body?: unknown): Promise<any> {
  return (await send(service, method, path, body)).json();
}

/** Waits for a job's end; its status and step. */
async function end(service: RunningService, id: string): Promise<{ status: string; step: number | null; error_message: string | null }> {
  const settled = async () => {
    const { status, step, error_message } = await json(service, "GET", `${RL_JOBS}/${id}`);
    return status === "queued" || status === "running" ? null : { status, step, error_message };
  };
  await expect.poll(settled).not.toBeNull();
  return (await settled())!;
}

test("has a fixture for every earlier database schema", () => {
  const schemas = Object.keys(MIGRATIONS).map((name) => name.slice(0, 4));
  expect(names.map((name) => name.slice("data-".length, -".tar.gz".length))).toEqual(expect.arrayContaining(schemas.slice(0, -1)));
});

test.each(names)(
  "opens, migrates and uses %s",
  async (name) => {
    const { dataDir, start } = await open(name);
    const before = await openConnection(join(dataDir, "whetstone.db"), 1000);
    const migrations = before.prepare("SELECT name FROM kysely_migration ORDER BY name").all() as { name: string }[];
    const sessions = [];
    if (migrations.length >= 4) {
      sessions.push(...(before.prepare("SELECT id, key FROM sessions").all() as { id: string; key: string }[]));
      // Later directories have the hash of a key, which nobody knows.
      if (migrations.length >= 5) {
        const key = createSessionKey();
        for (const session of sessions) session.key = key;
        before.exec(`UPDATE sessions SET key = '${hashSessionKey(key)}'`);
      }
      const tomorrow = new Date(Date.now() + 86_400_000).toISOString();
      before.exec(`UPDATE sessions SET expires_at = '${tomorrow}', open_until = '${tomorrow}'`);
      expect(sessions).toHaveLength(1);
    }
    expect(migrations.at(-1)?.name.slice(0, 4)).toBe(/\d+/u.exec(name)?.[0]);
    before.close();
    const [modelId = ""] = await readdir(join(dataDir, "checkpoints"));
    const [queued = ""] = await readdir(join(dataDir, "jobs"));

    const service = await start();
    // The job that was queued then runs now.
    expect(await end(service, queued)).toEqual({ status: "succeeded", step: 3, error_message: null });
    const { data } = await json(service, "GET", `${MODELS}/${modelId}/checkpoints?limit=100`);
    expect(data.map(({ step }: { step: number }) => step).toSorted()).toEqual([0, 1, 2, 3]);
    for (const step of [1, 2, 3]) {
      const request = {
        model: `local/demo/old:step${step}`,
        messages: [{ role: "user", content: "copy: abc" }],
        max_tokens: 4,
        temperature: 0,
      };
      const answer = await json(service, "POST", "/v1/chat/completions", request);
      expect([answer.model, answer.usage.completion_tokens]).toEqual([request.model, expect.any(Number)]);
      const archive = await send(service, "GET", `${MODELS}/${modelId}/checkpoints/${step}/archive`);
      const entries = await readTar(await archive.arrayBuffer());
      const weights = entries.find(({ header }) => header.name === "adapter_model.safetensors");
      const stored = await readFile(join(dataDir, "checkpoints", modelId, String(step), "adapter_model.safetensors"));
      expect(stored.equals(Buffer.from(weights!.data!))).toBe(true);
    }

    // Sessions keep their keys, of which the database has hashes since.
    for (const { id, key } of sessions) {
      const request = { model: "any", messages: [{ role: "user", content: "copy: abc" }], max_tokens: 2 };
      const response = await fetch(`${service.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify(request),
      });
      expect(await response.json()).toMatchObject({ model: "local/demo/old:step0" });
      expect(await json(service, "GET", `/v1/preview/sessions/${id}`)).toMatchObject({ key: null, requests: 1 });
      for (const file of ["whetstone.db", "whetstone.db-wal"]) expect((await readFile(join(dataDir, file))).includes(key)).toBe(false);
    }

    const url = "artifact:///local/demo/data:v0";
    const version = await json(service, "POST", ARTIFACTS, { project: "demo", name: "data" });
    expect(version.version).toBe(1);
    const [blob] = (await readdir(join(dataDir, "artifacts", "blobs"), { recursive: true })).filter((path) => basename(path).length === 64);
    expect(await readFile(join(dataDir, "artifacts", "blobs", blob!), "utf8")).toBe(chatLines(4));
    const job = await json(service, "POST", SFT_JOBS, { model_id: modelId, training_data_url: url });
    expect(await end(service, job.id)).toMatchObject({ status: "succeeded", step: 4 });
    await service.close({ graceMs: 0 });

    // Every file was used once, and has its digest since.
    expect(await verifyDataDirectory(dataDir)).toMatchObject({ missing: [], damaged: [], unknown: [], unreferenced: [] });
    expect(await readdir(dataDir)).not.toContain("quarantine");
  },
  120_000,
);
