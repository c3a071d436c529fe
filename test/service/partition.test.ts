/** A service that is cut off from its Postgres database in one or both directions. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { deferred } from "../../src/base/util/deferred.ts";
import { missingPostgres, temporarySchema } from "../support/postgres.ts";
import { startPostgresProxy, type TcpProxy } from "../support/postgres-proxy.ts";
import {
  ARTIFACTS,
  createModel,
  finishedEvents,
  goodGroup,
  MODELS,
  RL_JOBS,
  startRlJob,
  startTestService,
  temporaryDirectory,
} from "./support.ts";

/** Short limits, so that a test need not wait for the real ones. */
const LIMITS = { query_timeout: "1000", connectionTimeoutMillis: "1000" };

/** Directions in which nothing passes. */
type Cut = "to the database" | "from the database" | "in both directions";

function cut(proxy: TcpProxy, direction: Cut): void {
  proxy.judge = () => (direction === "from the database" ? "forward" : "drop");
  proxy.isMute = direction !== "to the database";
}

function heal(proxy: TcpProxy): void {
  proxy.judge = () => "forward";
  proxy.isMute = false;
}

describe.skipIf(missingPostgres !== null)(
  `with Postgres${missingPostgres === null ? "" : `: ${missingPostgres}`}`,
  { timeout: 120_000 },
  () => {
    test.each<Cut>(["to the database", "from the database"])(
      "a process whose data is lost %s for longer than its lease commits no step after another process took over",
      async (direction) => {
        const [dataDir, schema] = [await temporaryDirectory(), temporarySchema()];
        const { proxy, database } = await startPostgresProxy(schema, LIMITS);
        const [isIn, release] = [deferred<void>(), deferred<void>()];
        const limits = { jobLeaseMs: 2500 };
        const one = await startTestService({
          dataDir,
          database,
          limits,
          engine: {
            before: async ({ verb }) => {
              if (verb !== "optimStep") return;
              isIn.resolve();
              await release.promise;
            },
          },
        });
        const { id } = await createModel(one);
        const job = await startRlJob(one, id);
        await isIn.promise;
        cut(proxy, direction);
        const other = await startTestService({ dataDir, database: schema, limits });
        const events = await finishedEvents(other, job);
        expect(events.filter(({ type }) => type === "gradient_step")).toHaveLength(1);
        expect(events.at(-1)?.type).toBe("training_ended");
        heal(proxy);
        release.resolve();
        const message = "A training job continues in another process, or has ended there";
        await expect.poll(() => one.log.map((line) => line.message)).toContain(message);
        expect(await finishedEvents(one, job)).toEqual(events);
        expect((await one.ok("GET", `${MODELS}/${id}/checkpoints`)).data.map((each: { step: number }) => each.step)).toEqual([0, 1]);
        expect((await readdir(join(dataDir, "checkpoints", id))).filter((name) => name.startsWith("1-"))).toHaveLength(1);
        // The next job starts from the checkpoint of the other process, in either process.
        expect((await finishedEvents(one, await startRlJob(one, id))).at(-1)).toMatchObject({ type: "training_ended", data: { step: 2 } });
      },
    );

    test.each<Cut>(["to the database", "from the database", "in both directions"])(
      "requests are answered 503 with Retry-After while data is lost %s, and succeed afterwards without a restart",
      async (direction) => {
        const { proxy, database } = await startPostgresProxy(temporarySchema(), LIMITS);
        const service = await startTestService({ database });
        const { id } = await createModel(service);
        const requests: readonly (readonly [string, string, object?])[] = [
          ["GET", MODELS],
          ["GET", `${MODELS}/${id}/checkpoints`],
          ["POST", ARTIFACTS, { project: "demo", name: "data" }],
          ["POST", RL_JOBS, { model_id: id, trajectory_groups: [goodGroup()] }],
        ];
        // Several connections are open when the network fails.
        await Promise.all(Array.from({ length: 8 }, () => service.ok("GET", MODELS)));
        cut(proxy, direction);
        const answers = await Promise.all(requests.map(([method, path, body]) => service.call(method, path, body)));
        for (const { status, headers, body } of answers) {
          expect([status, body.error.error_code]).toEqual([503, "E_UNAVAILABLE"]);
          expect(headers.get("retry-after")).toMatch(/^\d+$/u);
        }
        heal(proxy);
        // One after the other: a request that used a connection from before the cut would fail.
        for (let turn = 0; turn < 10; turn++) expect((await service.call("GET", MODELS)).status).toBe(200);
        expect((await finishedEvents(service, await startRlJob(service, id))).at(-1)?.type).toBe("training_ended");
      },
    );
  },
);
