/** The queue goes on when the end of one job cannot be put in order. */
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { sql } from "kysely";
import { expect, test } from "vitest";
import { EngineError } from "../../src/errors.ts";
import { openStore } from "../../src/service/store/database.ts";
import { deferred } from "../../src/util/deferred.ts";
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

test("files that cannot be removed are told of, and the next job runs", async () => {
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
  const { service, first } = await twoJobs(async (dataDir) => {
    const store = await openStore(join(dataDir, "whetstone.db"));
    await sql`CREATE TRIGGER broken BEFORE INSERT ON job_events WHEN NEW.type = 'training_failed' AND NEW.data NOT LIKE '%"cancelled":true%'
      BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`.execute(store);
    await store.destroy();
  });
  expect(first.status).toBe("running");
  expect(messages(service)).toEqual(["A training job failed", "The end of a training job could not be recorded"]);
  // Nobody runs it any more, so cancelling ends it, and its model can be deleted.
  expect((await service.ok("POST", `${RL_JOBS}/${first.id}/cancel`)).status).toBe("cancelled");
});
