import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { ConfigError } from "../../src/errors.ts";
import { startService } from "../../src/service/index.ts";
import { createScriptedEngine } from "../../src/testing/index.ts";
import { createModel, finishedEvents, goodGroup, RL_JOBS, startTestService, temporaryDirectory } from "./support.ts";

afterEach(() => vi.unstubAllEnvs());

test("creates the API key once, readable only by its owner, in no other file", async () => {
  vi.stubEnv("WHETSTONE_API_KEY", "");
  const dataDir = await temporaryDirectory();
  const first = await startTestService({ dataDir });
  expect((await readFile(join(dataDir, "api-key"), "utf8")).trim()).toBe(first.service.apiKey);
  expect((await stat(join(dataDir, "api-key"))).mode & 0o777).toBe(0o600);
  const { id } = await createModel(first);
  const job = await first.ok("POST", RL_JOBS, { model_id: id, trajectory_groups: [goodGroup()] });
  expect(JSON.stringify(await finishedEvents(first, job.id))).not.toContain(first.service.apiKey);
  await first.service.close();
  for (const entry of await readdir(dataDir, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || entry.name === "api-key") continue;
    expect([entry.name, (await readFile(join(entry.parentPath, entry.name))).includes(first.service.apiKey)]).toEqual([entry.name, false]);
  }
  const second = await startTestService({ dataDir });
  expect(second.service.apiKey).toBe(first.service.apiKey);
});

test("uses WHETSTONE_API_KEY or the option instead of a key file", async () => {
  vi.stubEnv("WHETSTONE_API_KEY", "from-the-environment");
  const dataDir = await temporaryDirectory();
  const service = await startTestService({ dataDir });
  expect(service.service.apiKey).toBe("from-the-environment");
  expect(await readdir(dataDir)).not.toContain("api-key");
  expect((await startTestService({ apiKey: "from-the-option" })).service.apiKey).toBe("from-the-option");
});

test("requires a key for a public host, and rejects invalid keys", async () => {
  vi.stubEnv("WHETSTONE_API_KEY", "");
  const dataDir = await temporaryDirectory();
  for (const host of ["0.0.0.0", "::", "192.168.1.1"]) {
    await expect(startService({ dataDir, host, engine: createScriptedEngine() })).rejects.toMatchObject({
      code: "E_CONFIG",
      param: "apiKey",
      message: expect.stringContaining("WHETSTONE_API_KEY"),
    });
  }
  for (const apiKey of ["", "short", "with a space in it", "with\na line"]) {
    await expect(startService({ dataDir, apiKey, engine: createScriptedEngine() })).rejects.toBeInstanceOf(ConfigError);
  }
  // Each refused start gave the directory back.
  await startTestService({ dataDir });
});

test("service.json has the address while the service runs", async () => {
  const { service } = await startTestService();
  const file = join(service.dataDir, "service.json");
  expect(JSON.parse(await readFile(file, "utf8"))).toEqual({ pid: process.pid, url: service.url, started_at: expect.any(String) });
  await service.close();
  expect(await readdir(service.dataDir)).not.toContain("service.json");
  await service.close();
});

test("rejects a second service on the same directory with the first one's address", async () => {
  const { service } = await startTestService();
  await expect(startService({ dataDir: service.dataDir, engine: createScriptedEngine() })).rejects.toMatchObject({
    code: "E_CONFIG",
    param: "dataDir",
    message: expect.stringContaining(service.url),
  });
  // The refusal took nothing away from the first.
  expect((await fetch(`${service.url}/health`)).status).toBe(200);
  expect(await readdir(service.dataDir)).toContain("service.json");
});

test("replaces a stale service.json, also if its pid is in use", async () => {
  const dataDir = await temporaryDirectory();
  await writeFile(join(dataDir, "service.json"), JSON.stringify({ pid: process.pid, url: "http://127.0.0.1:1", started_at: "" }));
  const { service } = await startTestService({ dataDir });
  expect(JSON.parse(await readFile(join(dataDir, "service.json"), "utf8")).url).toBe(service.url);
});

test("rejects a port in use and releases the directory", async () => {
  const { service } = await startTestService();
  const dataDir = await temporaryDirectory();
  const port = Number(new URL(service.url).port);
  await expect(startService({ dataDir, port, engine: createScriptedEngine() })).rejects.toMatchObject({
    code: "E_CONFIG",
    param: "port",
    message: expect.stringContaining("in use"),
  });
  await startTestService({ dataDir });
});

test("reads the data directory from WHETSTONE_HOME", async () => {
  const dataDir = await temporaryDirectory();
  vi.stubEnv("WHETSTONE_HOME", dataDir);
  const service = await startService({ engine: createScriptedEngine() });
  expect(service.dataDir).toBe(dataDir);
  await service.close();
});
