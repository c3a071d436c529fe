/**
 * Two service processes on one Postgres database, with one data directory, or with a bucket and a data directory each: leases of jobs, takeover,
 * and requests to the other process.
 */
import { describe, expect, test } from "vitest";
import { deferred } from "../../src/base/util/deferred.ts";
import { missingPostgres, temporarySchema } from "../support/postgres.ts";
import { startS3, whyNoS3 } from "../support/s3-server.ts";
import {
  chatLines,
  createModel,
  finishedEvents,
  MODELS,
  RL_JOBS,
  SFT_JOBS,
  startRlJob,
  startTestService,
  temporaryDirectory,
  uploadArtifact,
} from "./support.ts";

type Before = NonNullable<NonNullable<Parameters<typeof startTestService>[0]>["engine"]>["before"];

async function shared() {
  return { dataDir: await temporaryDirectory(), schema: temporarySchema() };
}

describe.skipIf(missingPostgres !== null)(
  `two processes on Postgres${missingPostgres === null ? "" : `: ${missingPostgres}`}`,
  { timeout: 120_000 },
  () => {
    test("run the jobs of different models at the same time, and answer requests for each other's jobs", async () => {
      const { dataDir, schema: database } = await shared();
      const [isIn, release] = [[deferred<void>(), deferred<void>()] as const, deferred<void>()];
      const before =
        (index: 0 | 1): Before =>
        async ({ verb }) => {
          if (verb !== "optimStep") return;
          isIn[index].resolve();
          await release.promise;
        };
      const one = await startTestService({ dataDir, database, engine: { before: before(0) } });
      const other = await startTestService({ dataDir, database, engine: { before: before(1) } });
      const models = [await createModel(one, "a"), await createModel(other, "b")] as const;
      const jobs = [await startRlJob(one, models[0].id), await startRlJob(one, models[1].id)] as const;
      // Each process is in a step of its own job.
      await Promise.all(isIn.map(({ promise }) => promise));
      release.resolve();
      for (const service of [one, other]) {
        for (const job of jobs) expect((await finishedEvents(service, job)).at(-1)?.type).toBe("training_ended");
      }
      expect((await other.ok("GET", MODELS)).data.map((model: { latest_step: number }) => model.latest_step)).toEqual([1, 1]);
    });

    test("a job is cancelled through the other process, and resumed there when its process stops", async () => {
      const { dataDir, schema: database } = await shared();
      let calls = 0;
      const held: Before = async ({ verb }, { signal }) => {
        if (verb !== "optimStep" || ++calls > 2) return;
        await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true }));
      };
      const one = await startTestService({ dataDir, database, engine: { before: held } });
      const { id } = await createModel(one);
      const cancelled = await startRlJob(one, id);
      await expect.poll(() => calls).toBe(1);
      const other = await startTestService({ dataDir, database });
      expect((await other.ok("POST", `${RL_JOBS}/${cancelled}/cancel`)).status).toBe("cancelled");
      // One of both processes takes the next job; the first one is stopped.
      const next = await startRlJob(other, id);
      await one.service.close({ graceMs: 0 });
      expect((await finishedEvents(other, next)).at(-1)?.type).toBe("training_ended");
    });

    test.skipIf(whyNoS3 !== null)(
      `with a bucket, each with a data directory of its own${whyNoS3 === null ? "" : `: ${whyNoS3}`}`,
      async () => {
        const [storage, database] = [(await startS3()).newUrl(), temporarySchema()];
        let calls = 0;
        const held: Before = async ({ verb }, { signal }) => {
          if (verb !== "optimStep" || ++calls !== 2) return;
          await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true }));
        };
        const [one, other] = [
          await startTestService({ database, storage, engine: { before: held } }),
          await startTestService({ database, storage }),
        ];
        const { id } = await createModel(one);
        const data = await uploadArtifact(other, { "train.jsonl": chatLines(4) });
        const job = await one.ok("POST", SFT_JOBS, { model_id: id, training_data_url: data, config: { batch_size: 1 } });
        // The process that stops leaves the committed steps of its job in the bucket.
        await expect.poll(async () => calls === 2 || (await one.ok("GET", `${RL_JOBS}/${job.id}`)).status === "succeeded").toBe(true);
        const next = await startRlJob(one, id);
        await one.service.close({ graceMs: 0 });
        expect((await finishedEvents(other, job.id)).at(-1)?.type).toBe("training_ended");
        expect((await finishedEvents(other, next)).at(-1)?.type).toBe("training_ended");
        const third = await startTestService({ database, storage });
        expect((await third.ok("GET", MODELS)).data[0].latest_step).toBe(2);
        const answer = await third.ok("POST", "/v1/chat/completions", {
          model: "local/demo/reverse",
          messages: [{ role: "user", content: "hi" }],
        });
        expect(answer.choices).toHaveLength(1);
      },
    );
  },
);
