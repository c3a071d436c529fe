/** The queue runs its jobs in order when the end of one cannot be recorded and when the disk is full. */
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { sql } from "kysely";
import { expect, test } from "vitest";
import { EngineError } from "../../src/base/errors.ts";
import { openTestStore, onSqlite } from "../support/postgres.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import { canMount, smallDisk } from "../support/small-disk.ts";
import { createModel, finishedEvents, RL_JOBS, startRlJob, startTestService, temporaryDirectory, type TestService } from "./support.ts";

/** A service with two jobs, the first of which fails once both are there; `disturb` comes before that, `restore` before the second. */
async function twoJobs(disturb: (dataDir: string) => Promise<void>, restore: (dataDir: string) => Promise<void> = async () => {}) {
  const [gate, dataDir] = [deferred<void>(), await temporaryDirectory()];
  let hasFailed = false;
  const service = await startTestService({
    dataDir,
    engine: {
      before: async ({ verb }) => {
        if (verb === "createModel" && hasFailed) await restore(dataDir);
        if (verb !== "optimStep" || hasFailed) return;
        await gate.promise;
        await disturb(dataDir);
        hasFailed = true;
        throw new EngineError("out of memory");
      },
    },
  });
  const { id } = await createModel(service);
  const jobs = [await startRlJob(service, id), await startRlJob(service, id)] as const;
  gate.resolve();
  expect((await finishedEvents(service, jobs[1])).at(-1)?.type).toBe("training_ended");
  return { service, first: await service.ok("GET", `${RL_JOBS}/${jobs[0]}`) };
}

const messages = ({ log }: TestService) => log.filter(({ level }) => level !== "info").map(({ message }) => message);

test("logs when a job's files cannot be removed, and runs the next job", async () => {
  const { service, first } = await twoJobs(
    async (dataDir) => {
      await rename(join(dataDir, "jobs"), join(dataDir, "aside"));
      await writeFile(join(dataDir, "jobs"), "");
    },
    async (dataDir) => {
      await rm(join(dataDir, "jobs"));
      await rename(join(dataDir, "aside"), join(dataDir, "jobs"));
    },
  );
  expect(first.status).toBe("failed");
  expect(messages(service)).toEqual(["A training job failed", "A training job's files could not be removed"]);
});

test("logs when a job's end cannot be recorded, and runs the next job", async () => {
  onSqlite();
  const { service, first } = await twoJobs(async (dataDir) => {
    const store = await openTestStore(dataDir);
    await sql`CREATE TRIGGER broken BEFORE INSERT ON job_events WHEN NEW.type = 'training_failed' AND NEW.data NOT LIKE '%"cancelled":true%'
      BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`.execute(store);
    await store.destroy();
  });
  expect(first.status).toBe("running");
  expect(messages(service)).toEqual(["A training job failed", "The end of a training job could not be recorded"]);
  // Nobody runs it any more, so cancelling ends it, and its model can be deleted.
  expect((await service.ok("POST", `${RL_JOBS}/${first.id}/cancel`)).status).toBe("cancelled");
});

/** An error as `fs` throws it on a full disk. */
const diskFull = () => Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });

test("retries a job that ran out of disk space before later jobs, without a further request", async () => {
  const [gate, dataDir] = [deferred<void>(), await temporaryDirectory()];
  let refusals = 1;
  const service = await startTestService({
    dataDir,
    engine: {
      before: async ({ verb }) => {
        if (verb === "optimStep") await gate.promise;
        if (verb === "saveState" && refusals-- > 0) throw diskFull();
      },
    },
  });
  const { id } = await createModel(service);
  const jobs = [await startRlJob(service, id), await startRlJob(service, id), await startRlJob(service, id)];
  gate.resolve();
  const ends = [];
  for (const job of jobs) ends.push((await finishedEvents(service, job)).at(-1));
  expect(ends).toMatchObject([{ data: { step: 1 } }, { data: { step: 2 } }, { data: { step: 3 } }]);
  expect(messages(service)).toEqual(["A training job ran out of disk space; it waits and resumes from its last committed step"]);
});

test("a job that waits for disk space can be cancelled, and the next job runs", async () => {
  const gate = deferred<void>();
  let isFull = true;
  const service = await startTestService({
    engine: {
      before: async ({ verb }) => {
        if (verb === "optimStep") await gate.promise;
        if (verb === "saveState" && isFull) throw diskFull();
      },
    },
  });
  const { id } = await createModel(service);
  const first = await startRlJob(service, id);
  const second = await startRlJob(service, id);
  gate.resolve();
  await expect.poll(() => messages(service)).toHaveLength(1);
  expect((await service.ok("POST", `${RL_JOBS}/${first}/cancel`)).status).toBe("cancelled");
  isFull = false;
  expect((await finishedEvents(service, second)).at(-1)).toMatchObject({ type: "training_ended", data: { step: 1 } });
});

test.skipIf(!canMount)("resumes the queue in order after a full disk has space again", async () => {
  const disk = await smallDisk(16);
  const gate = deferred<void>();
  const service = await startTestService({
    dataDir: disk.path,
    limits: { minFreeBytes: 512 * 1024 },
    engine: { before: ({ verb }) => (verb === "optimStep" ? gate.promise : undefined) },
  });
  const { id } = await createModel(service);
  const jobs = [await startRlJob(service, id), await startRlJob(service, id), await startRlJob(service, id)];
  await disk.fill();
  gate.resolve();
  await expect
    .poll(() => messages(service))
    .toContain("Disk space is low: uploads, new models and new jobs are refused, and queued jobs wait");
  const statuses = async () => Promise.all(jobs.map(async (job) => (await service.ok("GET", `${RL_JOBS}/${job}`)).status));
  expect(await statuses()).toEqual(["running", "queued", "queued"]);
  await disk.empty();
  const ends = [];
  for (const job of jobs) ends.push((await finishedEvents(service, job)).at(-1));
  expect(ends).toMatchObject([{ data: { step: 1 } }, { data: { step: 2 } }, { data: { step: 3 } }]);
  expect(messages(service).filter((message) => message === "A training job failed")).toEqual([]);
});
