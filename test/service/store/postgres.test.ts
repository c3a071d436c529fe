/** Postgres as the database of a service: migrations, transactions of several processes, lost connections. */
import { randomUUID } from "node:crypto";
import { access } from "node:fs/promises";
import { join } from "node:path";
import { Kysely, Migrator, PostgresDialect, sql } from "kysely";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { transact } from "../../../src/service/store/database.ts";
import { insertJob } from "../../../src/service/store/jobs.ts";
import { MIGRATIONS } from "../../../src/service/store/migrations.ts";
import { openPostgres } from "../../../src/service/store/postgres.ts";
import { createPostgresPool } from "../../../src/service/store/postgres-pool.ts";
import { parsePostgresUrl } from "../../../src/service/store/postgres-url.ts";
import type { Store, Tables } from "../../../src/service/store/tables.ts";
import { missingPostgres, postgresUrl, queryPostgres, temporarySchema } from "../../support/postgres.ts";
import { startPostgresProxy } from "../../support/postgres-proxy.ts";
import { createModel, goodGroup, MODELS, RL_JOBS, startTestService, temporaryDirectory, uploadArtifact } from "../support.ts";

async function open(url: string): Promise<Store> {
  const store = await openPostgres(url);
  onTestFinished(() => store.destroy());
  return store;
}

const key = (name: string) => ({
  entity: "",
  route: "r",
  key: name,
  digest: "d",
  status: 200,
  body: "{}",
  created_at: "2026-01-01T00:00:00.000Z",
});

const newJob = (modelId: string) => ({ id: randomUUID(), model: { id: modelId, entity: "local" }, type: "rl" as const, config: {} });

test.each([
  ["mysql://root@127.0.0.1/x", "'mysql:'"],
  ["no url, but a secret", "a text that is no URL"],
  ["postgres://root:secret@127.0.0.1/x?schema=Upper", "'Upper'"],
  ["postgres://root:secret@127.0.0.1/x?schema=pg_temp", "'pg_temp'"],
])("rejects the address %s and does not repeat its password", async (url, found) => {
  await expect(openPostgres(url)).rejects.toMatchObject({
    code: "E_CONFIG",
    param: "database",
    message: expect.stringMatching(new RegExp(`^(?!.*secret).*got .*${found}`, "u")),
  });
});

test("reports a server that does not listen as unavailable, without the password", async () => {
  await expect(openPostgres("postgres://root:secret@127.0.0.1:1/none")).rejects.toMatchObject({
    code: "E_UNAVAILABLE",
    retryable: true,
    message: expect.stringMatching(/^(?!.*secret).*'none' at 127\.0\.0\.1:1 .*ECONNREFUSED/u),
  });
});

describe.skipIf(missingPostgres !== null)(
  `with Postgres${missingPostgres === null ? "" : `: ${missingPostgres}`}`,
  { timeout: 120_000 },
  () => {
    test("two processes may create the tables at the same time, and numbers of 64 bits are numbers", async () => {
      const url = temporarySchema();
      const [one, other] = await Promise.all([open(url), open(url)]);
      const model = { id: randomUUID(), entity: "e", project: "p", name: "n", base_model: "b", lora: null, next_step: 1, created_at: "" };
      await one
        .insertInto("models")
        .values({ ...model, seed: 2 ** 40 })
        .execute();
      expect(await other.selectFrom("models").select("seed").execute()).toEqual([{ seed: 2 ** 40 }]);
      expect(
        await other
          .selectFrom("models")
          .select((eb) => [eb.fn.sum("seed").as("sum"), eb.fn.countAll().as("count")])
          .execute(),
      ).toEqual([{ sum: 2 ** 40, count: 1 }]);
    });

    test("migrates the tables of every earlier version", async () => {
      for (const name of Object.keys(MIGRATIONS)) {
        const url = temporarySchema(`${name} ${randomUUID()}`);
        const address = parsePostgresUrl(url);
        const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool: await createPostgresPool(address, { isPatient: true }) }) });
        const provider = { getMigrations: () => Promise.resolve(MIGRATIONS) };
        const migrator = new Migrator({ db, provider, migrationTableSchema: address.schema! });
        // The migrator fails while another test drops a schema.
        await expect.poll(async () => (await migrator.migrateTo(name)).error).toBeUndefined();
        await db.destroy();
        const store = await openPostgres(url);
        const { rows } = await sql<{ name: string }>`select name from kysely_migration order by name`.execute(store);
        await store.destroy();
        expect(rows.map((row) => row.name)).toEqual(Object.keys(MIGRATIONS));
      }
    }, 120_000);

    test("a migration that fails leaves no table, and tables of a newer version are refused by the name of their migration", async () => {
      const url = temporarySchema();
      const last = Object.keys(MIGRATIONS).at(-1) as string;
      vi.spyOn(MIGRATIONS[last]!, "up").mockRejectedValueOnce(new Error("the power fails here"));
      await expect(openPostgres(url)).rejects.toMatchObject({ message: expect.stringContaining("the power fails here") });
      const store = await open(url);
      await sql`insert into kysely_migration (name, timestamp) values ('9999-future', '2099')`.execute(store);
      await expect(openPostgres(url)).rejects.toMatchObject({
        code: "E_CONFIG",
        param: "database",
        message: expect.stringMatching(/newer version.*found '9999-future'/u),
      });
    });

    test("transactions of several processes have the effect of one after the other", async () => {
      const url = temporarySchema();
      const [one, other] = await Promise.all([open(url), open(url)]);
      const jobs = Array.from({ length: 24 }, (_, index) =>
        transact(index % 2 === 0 ? one : other, (transaction) => insertJob(transaction, newJob(randomUUID()))),
      );
      await Promise.all(jobs);
      const rows = await one.selectFrom("jobs").select("seq").orderBy("seq").execute();
      expect(rows.map(({ seq }) => seq)).toEqual(Array.from({ length: 24 }, (_, index) => index + 1));
      // Each of two withdrawals would be allowed alone: only serializable transactions reject the second.
      await one
        .insertInto("idempotency_keys")
        .values([key("a"), key("b")])
        .execute();
      const withdraw = (store: Store, name: string) =>
        transact(store, async (transaction) => {
          const left = await transaction.selectFrom("idempotency_keys").select("key").execute();
          if (left.length > 1) await transaction.deleteFrom("idempotency_keys").where("key", "=", name).execute();
        });
      await Promise.all([withdraw(one, "a"), withdraw(other, "b")]);
      expect(await one.selectFrom("idempotency_keys").select("key").execute()).toHaveLength(1);
    });

    test.each(["cut", "forward and cut"] as const)(
      "a transaction whose connection is lost at the commit (%s) is made once",
      async (verdict) => {
        const schema = temporarySchema();
        const { proxy, database: url } = await startPostgresProxy(schema);
        const store = await open(url);
        let cuts = 0;
        proxy.judge = (data) => (data.includes("commit\0") && cuts++ === 0 ? verdict : "forward");
        let calls = 0;
        await transact(store, async (transaction) => {
          calls++;
          await transaction
            .insertInto("idempotency_keys")
            .values(key(`a${calls}`))
            .execute();
        });
        expect(cuts).toBeGreaterThan(0);
        expect(await queryPostgres(schema, "select key from idempotency_keys")).toEqual([{ key: verdict === "cut" ? "a2" : "a1" }]);
      },
    );

    test("failures of the connection are retryable, and the next statement uses another connection", async () => {
      const { proxy, database: url } = await startPostgresProxy(temporarySchema(), { query_timeout: "3000" });
      const store = await open(url);
      const read = () => store.selectFrom("models").select("id").execute();
      const unavailable = { code: "E_UNAVAILABLE", retryable: true };
      await read();
      // Every pooled connection is cut.
      proxy.cut();
      await read().catch((error: unknown) => expect(error).toMatchObject(unavailable));
      expect(await read()).toEqual([]);
      // Answers do not arrive.
      proxy.isMute = true;
      await expect(read()).rejects.toMatchObject(unavailable);
      proxy.isMute = false;
      expect(await read()).toEqual([]);
      await proxy.close();
      await expect(read()).rejects.toMatchObject(unavailable);
      await proxy.open();
      expect(await read()).toEqual([]);
      // The server ends the connection, and a statement takes too long.
      await expect(sql`select pg_terminate_backend(pg_backend_pid())`.execute(store)).rejects.toMatchObject(unavailable);
      await expect(sql`select pg_sleep(6)`.execute(store)).rejects.toMatchObject(unavailable);
      await expect(store.selectFrom("models").where("id", "=", "a\0b").selectAll().execute()).rejects.toMatchObject({ code: "E_ARGUMENT" });
      expect(await read()).toEqual([]);
    });

    test("a service keeps its records in the schema, answers 503 without the server, and continues after it returns", async () => {
      const dataDir = await temporaryDirectory();
      const schema = temporarySchema();
      const { proxy, database } = await startPostgresProxy(schema);
      const first = await startTestService({ dataDir, database });
      const model = await createModel(first);
      const url = await uploadArtifact(first, { "a.jsonl": "{}\n" });
      const job = await first.ok("POST", RL_JOBS, { model_id: model.id, trajectory_groups: [goodGroup()] });
      await expect.poll(async () => (await first.ok("GET", `${RL_JOBS}/${job.id}`)).status).toBe("succeeded");
      await proxy.close();
      const answer = await first.call("GET", MODELS);
      expect(answer).toMatchObject({ status: 503, body: { error: { error_code: "E_UNAVAILABLE" } } });
      expect(answer.headers.get("retry-after")).toBe("1");
      expect(answer.body.error.message).toMatch(/ECONNREFUSED|terminated/u);
      await proxy.open();
      await expect.poll(async () => (await first.call("GET", MODELS)).status).toBe(200);
      await first.service.close({ graceMs: 0 });
      await expect(access(join(dataDir, "whetstone.db"))).rejects.toMatchObject({ code: "ENOENT" });

      const second = await startTestService({ dataDir, database });
      expect((await second.ok("GET", MODELS)).data).toMatchObject([{ id: model.id, latest_step: 1 }]);
      expect((await second.ok("GET", "/v1/preview/artifacts")).data).toMatchObject([{ url, bytes: 3 }]);
      await second.service.close({ graceMs: 0 });
      await expect(startTestService({ dataDir, database: temporarySchema() })).rejects.toMatchObject({
        code: "E_CONFIG",
        message: expect.stringContaining("the database has no tables of a service"),
      });
    });

    test("a data directory with a SQLite database is refused", async () => {
      const dataDir = await temporaryDirectory();
      await (await startTestService({ dataDir, database: "" })).service.close({ graceMs: 0 });
      await expect(startTestService({ dataDir, database: postgresUrl() })).rejects.toMatchObject({
        code: "E_CONFIG",
        param: "database",
        message: expect.stringContaining("whetstone.db"),
      });
    });
  },
);
