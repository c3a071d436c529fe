/** A service with a slow network between itself and its Postgres database. */
import { describe, expect, test } from "vitest";
import { missingPostgres, temporarySchema } from "../support/postgres.ts";
import { startPostgresProxy } from "../support/postgres-proxy.ts";
import { ARTIFACTS, createModel, finishedEvents, startSftJob, startTestService } from "./support.ts";

describe.skipIf(missingPostgres !== null)(
  `with Postgres${missingPostgres === null ? "" : `: ${missingPostgres}`}`,
  { timeout: 120_000 },
  () => {
    test("jobs end, and concurrent creations succeed, with round trips of 200 ms to the database", async () => {
      const { proxy, database } = await startPostgresProxy(temporarySchema());
      const service = await startTestService({ database, limits: { jobLeaseMs: 4000, commitEverySteps: 1 } });
      const { id } = await createModel(service);
      proxy.delayMs = 100;
      const [job, ...created] = await Promise.all([
        startSftJob(service, id, 2, { config: { batch_size: 1 } }),
        ...Array.from({ length: 3 }, () => service.ok("POST", ARTIFACTS, { project: "demo", name: "same" })),
      ]);
      expect(new Set(created.map(({ version }) => version)).size).toBe(3);
      const events = await finishedEvents(service, job);
      expect(events.filter(({ type }) => type === "gradient_step")).toHaveLength(2);
      expect(events.at(-1)).toMatchObject({ type: "training_ended", data: { step: 1 } });
    });
  },
);
