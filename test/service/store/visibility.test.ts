import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { expect, onTestFinished, test } from "vitest";
import { openTestStore } from "../../support/postgres.ts";
import { insertJob } from "../../../src/service/store/jobs.ts";
import type { Store } from "../../../src/service/store/tables.ts";
import { ALL_ROWS, entityFor, requireAllModels, visibilityOf, visibleIn } from "../../../src/service/store/visibility.ts";
import { temporaryDirectory } from "../support.ts";

async function insertModel(store: Store, entity: string, name: string): Promise<string> {
  const id = randomUUID();
  const row = { id, entity, project: "p", name, base_model: "tiny", lora: null, seed: 0, next_step: 1, created_at: name };
  await store.insertInto("models").values(row).execute();
  return id;
}

/** A store with models `a1`, `a2` of `acme` and `r1` of `rival`, and a job of each. */
async function newStore() {
  const store = await openTestStore(await temporaryDirectory());
  onTestFinished(() => store.destroy());
  const ids: string[] = [];
  for (const [entity, name] of [
    ["acme", "a1"],
    ["acme", "a2"],
    ["rival", "r1"],
  ] as const) {
    const id = await insertModel(store, entity, name);
    await insertJob(visibleIn(store, { entity, modelId: null }), { id: name, model: { id, entity }, type: "rl", config: {} });
    ids.push(id);
  }
  const [a1, a2, r1] = ids as [string, string, string];
  return { store, a1, a2, r1, acme: visibleIn(store, { entity: "acme", modelId: null }) };
}

const namesIn = async (store: Store): Promise<string[]> =>
  (await store.selectFrom("models").select("name").orderBy("name").execute()).map(({ name }) => name);

test("selects find the rows of one entity, or of one model", async () => {
  const { store, acme, a1, r1 } = await newStore();
  expect(await namesIn(store)).toEqual(["a1", "a2", "r1"]);
  expect(await namesIn(acme)).toEqual(["a1", "a2"]);
  expect(await namesIn(visibleIn(store, { entity: "acme", modelId: a1 }))).toEqual(["a1"]);
  expect(await namesIn(visibleIn(store, { entity: "acme", modelId: r1 }))).toEqual([]);
  expect(await acme.selectFrom("models").select("id").where("id", "=", r1).executeTakeFirst()).toBeUndefined();
});

test("conditions hold for aliases, joins, subqueries, counts, and beside any OR", async () => {
  const { store, acme, a1 } = await newStore();
  const aliased = await acme.selectFrom("models as m").select("m.name").orderBy("m.name").execute();
  expect(aliased.map(({ name }) => name)).toEqual(["a1", "a2"]);
  // Starts from a table that is not restricted.
  await store
    .insertInto("fine_tuning_jobs")
    .values(["a1", "r1"].map((id) => ({ id, training_job_id: id, request: "{}", metadata: null, result_file: null })))
    .execute();
  const joined = await acme
    .selectFrom("fine_tuning_jobs")
    .innerJoin("jobs", "jobs.id", "fine_tuning_jobs.training_job_id")
    .select("jobs.id")
    .execute();
  expect(joined.map(({ id }) => id)).toEqual(["a1"]);
  const ids = acme.selectFrom("models").select("id");
  const nested = await acme.selectFrom("jobs").select("id").where("model_id", "in", ids).orderBy("id").execute();
  const inWhole = await store.selectFrom("jobs").select("id").where("model_id", "in", ids).orderBy("id").execute();
  expect([nested, inWhole].map((rows) => rows.map(({ id }) => id))).toEqual([
    ["a1", "a2"],
    ["a1", "a2"],
  ]);
  expect(
    (
      await acme
        .selectFrom("jobs")
        .select((eb) => eb.fn.countAll<number>().as("count"))
        .executeTakeFirstOrThrow()
    ).count,
  ).toBe(2);
  const either = acme.selectFrom("models").select("name").orderBy("name");
  const byBuilder = either.where((where) => where.or([where("name", "=", "r1"), where("name", "=", "a1")]));
  const bySql = either.where(sql<boolean>`name = 'r1' or name = 'a1'`);
  for (const query of [byBuilder, bySql]) expect(await query.execute()).toEqual([{ name: "a1" }]);
  const model = await visibleIn(store, { entity: "acme", modelId: a1 }).selectFrom("jobs").select("id").execute();
  expect(model).toEqual([{ id: "a1" }]);
});

test("updates and deletions change no row of another entity, also in a transaction", async () => {
  const { store, acme } = await newStore();
  const { numUpdatedRows } = await acme.updateTable("models").set({ base_model: "changed" }).executeTakeFirstOrThrow();
  expect(numUpdatedRows).toBe(2n);
  await acme.transaction().execute(async (transaction) => {
    expect(visibilityOf(transaction)).toEqual({ entity: "acme", modelId: null });
    expect(await namesIn(transaction)).toEqual(["a1", "a2"]);
    await transaction.deleteFrom("jobs").execute();
    await transaction.deleteFrom("models").where("name", "like", "%1").execute();
  });
  expect(await store.selectFrom("models").select(["name", "base_model"]).orderBy("name").execute()).toEqual([
    { name: "a2", base_model: "changed" },
    { name: "r1", base_model: "tiny" },
  ]);
  expect(await store.selectFrom("jobs").select("id").execute()).toEqual([{ id: "r1" }]);
});

test("the order of jobs is unique over all entities", async () => {
  const { store } = await newStore();
  expect(await store.selectFrom("jobs").select(["seq", "entity"]).orderBy("seq").execute()).toEqual([
    { seq: 1, entity: "acme" },
    { seq: 2, entity: "acme" },
    { seq: 3, entity: "rival" },
  ]);
});

test("a request may name its own entity alone, and a key of all entities any", async () => {
  const { store, acme, a1 } = await newStore();
  expect([visibleIn(store, ALL_ROWS), visibilityOf(store)]).toEqual([store, ALL_ROWS]);
  expect([entityFor(store, undefined, "entity"), entityFor(store, "rival", "entity")]).toEqual(["local", "rival"]);
  expect([entityFor(acme, null, "entity"), entityFor(acme, "acme", "entity")]).toEqual(["acme", "acme"]);
  for (const entity of ["rival", "nobody", "Acme"])
    expect(() => entityFor(acme, entity, "entity")).toThrow(expect.objectContaining({ code: "E_FORBIDDEN", param: "entity" }));
  expect(() => requireAllModels(acme, "anything")).not.toThrow();
  const one = visibleIn(store, { entity: "acme", modelId: a1 });
  expect(() => requireAllModels(one, "the creation of models")).toThrow("does not permit the creation of models");
});
