import { execFileSync } from "node:child_process";
import { chmod, mkdir, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, expect, test, vi } from "vitest";
import { ConfigError } from "../../../src/base/errors.ts";
import { startService } from "../../../src/service/index.ts";
import { createScriptedEngine } from "../../../src/testing/index.ts";
import { createSession } from "../sessions/support.ts";
import { ARTIFACTS, createModel, finishedEvents, goodGroup, MODELS, RL_JOBS, startTestService, temporaryDirectory } from "../support.ts";
import { onSqlite } from "../../support/postgres.ts";

// The tests read and change the files of SQLite.
beforeEach(onSqlite);

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

/** Lists everything below a directory that the group or others can access, with its mode. */
async function looseIn(root: string): Promise<string[]> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const paths = [root, ...entries.map((entry) => join(entry.parentPath, entry.name))];
  const modes = await Promise.all(paths.map(async (path) => [path, (await stat(path)).mode] as const));
  return modes.filter(([, mode]) => (mode & 0o077) !== 0).map(([path, mode]) => `${path} ${(mode & 0o777).toString(8)}`);
}

test("only the owner can access anything in the data directory, also in one that was accessible to others", async () => {
  const dataDir = await temporaryDirectory();
  await chmod(dataDir, 0o755);
  const first = await startTestService({ dataDir });
  const { id } = await createModel(first);
  const body = { model_id: id, trajectory_groups: [goodGroup()], experimental_config: { token_report: true } };
  await finishedEvents(first, (await first.ok("POST", RL_JOBS, body)).id);
  await first.ok("POST", MODELS, { project: "demo", name: "fork", base_model: "tiny", from: "local/demo/reverse" });
  const version = await first.ok("POST", ARTIFACTS, { project: "demo", name: "data" });
  await first.ok("PUT", `${ARTIFACTS}/${version.id}/files/a.txt`, "a");
  const { key } = await createSession(first);
  expect(await looseIn(dataDir)).toEqual([]);
  // No file has the key, of which the database has the hash.
  for (const name of ["whetstone.db", "whetstone.db-wal"]) expect((await readFile(join(dataDir, name))).includes(key)).toBe(false);
  await first.service.close();
  for (const name of ["", "whetstone.db", "checkpoints", join("checkpoints", id, "1"), join("checkpoints", id, "1", "model.safetensors")])
    await chmod(join(dataDir, name), 0o777);
  await startTestService({ dataDir });
  expect(await looseIn(dataDir)).toEqual([]);
});

test("a link in place of a directory of the service is rejected", async () => {
  const [dataDir, elsewhere] = [await temporaryDirectory(), await temporaryDirectory()];
  await symlink(elsewhere, join(dataDir, "checkpoints"));
  await expect(startTestService({ dataDir })).rejects.toMatchObject({ code: "E_CONFIG", message: expect.stringContaining("is a link") });
});

test.each(["whetstone.db", "service.lock", "service.json", "api-key"])(
  "a directory or a FIFO in place of %s is an error with a remedy",
  async (name) => {
    for (const make of [(path: string) => mkdir(path), (path: string) => Promise.resolve(void execFileSync("mkfifo", [path]))]) {
      const dataDir = await temporaryDirectory();
      await make(join(dataDir, name));
      if (name === "service.json" && make.toString().includes("mkfifo")) continue;
      await expect(startService({ dataDir, engine: createScriptedEngine() })).rejects.toMatchObject({
        code: "E_CONFIG",
        message: expect.stringMatching(/[Mm]ove away|[Rr]epair/u),
      });
    }
  },
);

test("other bytes in place of the database and the lock are errors with a remedy", async () => {
  const dataDir = await temporaryDirectory();
  await writeFile(join(dataDir, "service.lock"), "no lock ".repeat(1000));
  const start = () => startService({ dataDir, engine: createScriptedEngine() });
  await expect(start()).rejects.toMatchObject({ code: "E_CONFIG", message: expect.stringContaining("delete the file") });
  await writeFile(join(dataDir, "service.lock"), "");
  await writeFile(join(dataDir, "whetstone.db"), "no database ".repeat(1000));
  await expect(start()).rejects.toMatchObject({ code: "E_DATA_CORRUPTED", message: expect.stringContaining("whetstone restore") });
});

test("files in the quarantine are deleted after their retention", async () => {
  const dataDir = await temporaryDirectory();
  const nameOf = (days: number) => `${new Date(Date.now() - days * 86_400_000).toISOString().replaceAll(":", "-")}-0123abcd`;
  const [old, young] = [nameOf(31), nameOf(29)];
  for (const name of [old, young, "notes"]) await mkdir(join(dataDir, "quarantine", name), { recursive: true });
  await startTestService({ dataDir });
  await expect.poll(() => readdir(join(dataDir, "quarantine"))).toEqual([young, "notes"]);
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
