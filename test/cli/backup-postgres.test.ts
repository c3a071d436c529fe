/** Backups of a service on Postgres, and moves of a service between SQLite and Postgres with a backup. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { deferred } from "../../src/base/util/deferred.ts";
import { CHAT, user } from "../service/sessions/support.ts";
import {
  createModel,
  finishedEvents,
  MODELS,
  RL_JOBS,
  startRlJob,
  startSftJob,
  startTestService,
  temporaryDirectory,
  testBase,
  type TestService,
} from "../service/support.ts";
import { builtProgram } from "../support/built-program.ts";
import { rowsOfPostgres, rowsOfSqlite, type DatabaseRows } from "../support/database-rows.ts";
import { missingPostgres, queryPostgres, temporarySchema } from "../support/postgres.ts";
import { startPostgresProxy } from "../support/postgres-proxy.ts";
import { startS3, whyNoS3 } from "../support/s3-server.ts";
import { runHere } from "./run-here.ts";

/** Data directory and database of a service. */
interface Place {
  readonly dataDir: string;
  /** Address of a Postgres database; empty for SQLite. */
  readonly database: string;
}

async function newPlace(kind: "SQLite" | "Postgres"): Promise<Place> {
  return { dataDir: join(await temporaryDirectory(), "data"), database: kind === "Postgres" ? temporarySchema() : "" };
}

/** Returns the options of a command for a place. */
const optionsOf = ({ dataDir, database }: Place) => ["--data-dir", dataDir, "--database", database];

/** Runs a command that must succeed; its result. */
async function runOk(...args: string[]): Promise<any> {
  const { code, stdout, stderr } = await runHere(...args, "--json");
  expect([code, stderr]).toEqual([0, ""]);
  return JSON.parse(stdout);
}

/** Returns the error of a command that must fail. */
async function failureOf(...args: string[]): Promise<{ code: string; message: string; param: string | null }> {
  const { code, stdout, stderr } = await runHere(...args, "--json");
  expect([code, stdout]).toEqual([1, ""]);
  return JSON.parse(stderr).error;
}

/** Returns all rows, without the leases of jobs: a process renews them. */
async function rowsOf({ dataDir, database }: Place): Promise<DatabaseRows> {
  const rows = await (database === "" ? rowsOfSqlite(join(dataDir, "whetstone.db")) : rowsOfPostgres(database));
  return { ...rows, jobs: (rows["jobs"] ?? []).map((row) => row.replace(/\["lease_expires_ms",[^\]]*\],/u, "")) };
}

/** Returns the text of a trained model for a prompt. */
async function sampled({ ok }: TestService, model: string): Promise<string> {
  const { choices } = await ok("POST", CHAT, { model, messages: [user("hello")], max_tokens: 12, temperature: 1, seed: 5 });
  return choices[0].message.content;
}

const jobsOf = ({ ok }: TestService) => ok("GET", `${RL_JOBS}?limit=100`).then(({ data }) => data as { id: string; status: string }[]);

/** Starts a service with a trained model, whose next job is in its second step and whose last job is queued. */
async function startBusy(place: Place, bases: Awaited<ReturnType<typeof testBase>>) {
  const isHeld = deferred<void>();
  let steps = 0;
  const service = await startTestService({
    ...place,
    limits: { commitEverySteps: 1, jobLeaseMs: 2000 },
    engine: {
      bases,
      before: async ({ verb }, { signal }) => {
        if (verb !== "optimStep" || ++steps < 3) return;
        isHeld.resolve();
        await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true }));
      },
    },
  });
  const { id: modelId } = await createModel(service);
  const trained = await startRlJob(service, modelId);
  await finishedEvents(service, trained);
  const running = await startSftJob(service, modelId, 8, { config: { batch_size: 4 } });
  const queued = await startRlJob(service, modelId);
  await isHeld.promise;
  return { service, modelId, jobs: { trained, running, queued } };
}

describe.skipIf(missingPostgres !== null)(
  `with Postgres${missingPostgres === null ? "" : `: ${missingPostgres}`}`,
  { timeout: 120_000 },
  () => {
    test.each([
      ["SQLite", "Postgres"],
      ["Postgres", "SQLite"],
      ["Postgres", "Postgres"],
    ] as const)("a service on %s moves to %s with a backup: every row, sampled text, and jobs that continue", async (from, to) => {
      const [source, target, bases] = [await newPlace(from), await newPlace(to), await testBase()];
      const { service, modelId, jobs } = await startBusy(source, bases);
      const policy = `${modelId}:step1`;
      const text = await sampled(service, policy);
      const events = (await service.ok("GET", `${RL_JOBS}/${jobs.trained}/events`)).data;
      const before = await rowsOf(source);
      const backup = join(await temporaryDirectory(), "backup");
      await runOk("backup", backup, ...optionsOf(source));
      const inBackup = { dataDir: backup, database: "" };
      expect(await rowsOf(inBackup)).toEqual(before);
      await service.service.close({ graceMs: 0 });

      const restored = await runOk("restore", backup, ...optionsOf(target));
      expect(restored.database).toEqual(to === "Postgres" ? expect.stringMatching(/^'\w+' at /u) : undefined);
      expect(await rowsOf(target)).toEqual(before);
      expect(await readdir(target.dataDir)).toEqual([
        "api-key",
        "artifacts",
        "checkpoints",
        "jobs",
        ...(to === "SQLite" ? ["whetstone.db"] : []),
      ]);
      expect(await runOk("verify", ...optionsOf(target))).toMatchObject({ intact: true, unreferenced: [] });

      const next = await startTestService({ ...target, engine: { bases }, limits: { jobLeaseMs: 2000 } });
      expect(next.service.apiKey).toBe(service.service.apiKey);
      expect(await sampled(next, policy)).toBe(text);
      expect((await next.ok("GET", `${RL_JOBS}/${jobs.trained}/events`)).data).toEqual(events);
      for (const job of [jobs.running, jobs.queued]) expect((await finishedEvents(next, job)).at(-1)?.type).toBe("training_ended");
      const added = await startRlJob(next, modelId);
      await finishedEvents(next, added);
      // The newest job comes first, and all have ids of their own.
      expect((await jobsOf(next)).map(({ id }) => id)).toEqual([added, jobs.queued, jobs.running, jobs.trained]);
      expect((await next.ok("GET", MODELS)).data).toMatchObject([{ id: modelId, latest_step: 4 }]);
      await next.service.close({ graceMs: 0 });
    });

    test("a restore into a database with tables, or with a wrong place, is refused by name and changes nothing", async () => {
      const [source, other, bases] = [await newPlace("Postgres"), await newPlace("SQLite"), await testBase()];
      const service = await startTestService({ ...source, engine: { bases } });
      await createModel(service);
      await (await startTestService({ ...other, engine: { bases } })).service.close({ graceMs: 0 });
      const backup = join(await temporaryDirectory(), "backup");
      await runOk("backup", backup, ...optionsOf(source));
      const before = await rowsOf(source);
      const target = join(await temporaryDirectory(), "target");
      const found = await failureOf("restore", backup, ...optionsOf({ ...source, dataDir: target }));
      expect(found).toMatchObject({ code: "E_CONFIG", param: "database" });
      expect(found.message).toMatch(/^Expected no tables in the schema 'test_\w+' of the database '\w+' at .*, found \d+: api_keys, /u);
      expect(await readdir(join(target, ".."))).toEqual([]);
      expect(await rowsOf(source)).toEqual(before);

      const wrong = async (args: string[], message: RegExp) => expect((await failureOf(...args)).message).toMatch(message);
      const empty = { ...source, database: temporarySchema() };
      for (const args of [["backup", `${target}-copy`], ["verify"]]) {
        await wrong([...args, ...optionsOf(empty)], /^Expected the tables of a service in the schema 'test_\w+' .* found none/u);
        await wrong([...args, ...optionsOf({ ...source, dataDir: target })], /^Expected the data directory of the service .* found none/u);
        await wrong(
          [...args, ...optionsOf({ ...other, database: source.database })],
          /^Expected a data directory without a database.*whetstone restore/u,
        );
      }
      expect(await queryPostgres(empty.database, "select tablename from pg_tables where schemaname = current_schema()")).toEqual([]);
      // The variable names the database of a service; a backup has its own.
      vi.stubEnv("WHETSTONE_DATABASE", source.database);
      onTestFinished(() => void vi.unstubAllEnvs());
      expect(await runOk("verify", "--data-dir", backup)).toMatchObject({ intact: true });
      expect(await runOk("verify", "--data-dir", source.dataDir)).toMatchObject({ intact: true });
    });

    test("a restore that is killed before its commit leaves an empty database, and the next one completes", async () => {
      const [source, target, bases] = [await newPlace("Postgres"), await newPlace("Postgres"), await testBase()];
      const service = await startTestService({ ...source, engine: { bases } });
      const { id: modelId } = await createModel(service);
      await finishedEvents(service, await startRlJob(service, modelId));
      const backup = join(await temporaryDirectory(), "backup");
      await runOk("backup", backup, ...optionsOf(source));
      const { proxy, database } = await startPostgresProxy(target.database);
      const program = await builtProgram(new URL("restore-host.ts", import.meta.url));
      const isCommitting = deferred<void>();
      proxy.judge = (data) => {
        if (!data.includes("commit\0")) return "forward";
        isCommitting.resolve();
        return "drop";
      };
      const child = spawn(process.execPath, [program, backup, target.dataDir, database], { stdio: "inherit" });
      onTestFinished(() => void child.kill("SIGKILL"));
      const exited = once(child, "exit");
      await isCommitting.promise;
      child.kill("SIGKILL");
      await exited;
      await expect.poll(() => tableCount(target.database)).toBe(0);
      // Files have their final names already; the next attempt replaces them.
      expect(await readdir(target.dataDir)).toContain("checkpoints");
      await runOk("restore", backup, ...optionsOf(target));
      expect((await readdir(target.dataDir)).toSorted()).toEqual(["api-key", "checkpoints"]);
      expect(await runOk("verify", ...optionsOf(target))).toMatchObject({ intact: true, unreferenced: [] });
      expect(await rowsOf(target)).toEqual(await rowsOf({ dataDir: backup, database: "" }));
    });

    test.skipIf(whyNoS3 !== null)(
      `a service with S3 storage moves to another database and storage${whyNoS3 === null ? "" : ` (${whyNoS3})`}`,
      async () => {
        const s3 = await startS3();
        const [source, target, bases] = [await newPlace("Postgres"), await newPlace("Postgres"), await testBase()];
        const service = await startTestService({ ...source, storage: s3.newUrl(), engine: { bases } });
        const { id: modelId } = await createModel(service);
        await finishedEvents(service, await startRlJob(service, modelId));
        const text = await sampled(service, `${modelId}:step1`);
        // On another machine, which has no copies of the files.
        const elsewhere = { ...source, dataDir: join(await temporaryDirectory(), "empty") };
        await mkdir(elsewhere.dataDir);
        const backup = join(await temporaryDirectory(), "backup");
        await runOk("backup", backup, ...optionsOf(elsewhere));
        await service.service.close({ graceMs: 0 });
        await runOk("restore", backup, ...optionsOf(target), "--storage", s3.newUrl());
        expect(await runOk("verify", ...optionsOf(target))).toMatchObject({ intact: true, files: 3 });
        const next = await startTestService({ ...target, dataDir: elsewhere.dataDir, engine: { bases } });
        expect(await sampled(next, `${modelId}:step1`)).toBe(text);
      },
    );
  },
);

async function tableCount(database: string): Promise<number> {
  return (await queryPostgres(database, "select tablename from pg_tables where schemaname = current_schema()")).length;
}
