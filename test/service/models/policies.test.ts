import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { Verifier } from "../../../src/service/disk/verifier.ts";
import { FolderStorage } from "../../../src/service/storage/folder.ts";
import { BaseModels } from "../../../src/service/models/base-models.ts";
import { createTokenizers } from "../../../src/service/models/tokenizers.ts";
import { openDataDirectory } from "../../../src/service/disk/data-directory.ts";
import { Policies } from "../../../src/service/models/policies.ts";
import { revisionOf } from "../../../src/service/store/database.ts";
import { openTestStore, onSqlite } from "../../support/postgres.ts";
import { ALL_ROWS } from "../../../src/service/store/visibility.ts";
import { StoredFiles } from "../../../src/service/stored-files/stored-files.ts";
import { createScriptedEngine, type ScriptedEngineOptions } from "../../../src/testing/index.ts";
import { deferred } from "../../../src/base/util/deferred.ts";
import { temporaryDirectory } from "../support.ts";

const MODEL = "11111111-1111-4111-8111-111111111111";

/** A model with steps 0 to `steps`, saved by the engine. */
async function setUp({
  steps = 3,
  maxIdle = 2,
  before,
}: { readonly steps?: number; readonly maxIdle?: number } & ScriptedEngineOptions = {}) {
  const root = await temporaryDirectory();
  const store = await openTestStore(root);
  onTestFinished(() => store.destroy());
  const engine = createScriptedEngine({ before });
  await store
    .insertInto("models")
    .values({
      id: MODEL,
      entity: "e",
      project: "p",
      name: "n",
      base_model: "scripted",
      lora: null,
      seed: 1,
      next_step: steps + 1,
      created_at: "",
    })
    .execute();
  const handle = await engine.createModel({ base: "scripted", seed: 1 });
  for (let step = 0; step <= steps; step++) {
    const directory = step === 0 ? null : `checkpoints/${MODEL}/${step}`;
    if (directory !== null) {
      await import("node:fs/promises").then(({ mkdir }) => mkdir(join(root, directory), { recursive: true }));
      await engine.saveState(handle, join(root, directory));
    }
    await store
      .insertInto("checkpoints")
      .values({
        id: `checkpoint-${step}`,
        model_id: MODEL,
        step,
        metrics: "{}",
        state_dir: directory,
        optimizer_kind: null,
        created_at: "",
        lineage: null,
        pinned: 0,
      })
      .execute();
  }
  const warnings: string[] = [];
  const logger = { info: () => undefined, warn: (message: string) => void warnings.push(message), error: () => undefined };
  const directory = await openDataDirectory(root);
  const storage = new FolderStorage(directory, new Verifier(logger));
  const files = new StoredFiles({ store, directory, storage, logger });
  const bases = new BaseModels({ engine, hub: null, tokenizers: createTokenizers(), sources: {} });
  const policies = new Policies({ store, engine, files, bases, defaultBase: "scripted", maxIdle, logger });
  const loads = () => engine.calls.filter((call) => call.verb === "loadPolicy").length;
  const drop = async (step: number) => {
    await store.deleteFrom("checkpoints").where("id", "=", `checkpoint-${step}`).execute();
    policies.forget([`checkpoint-${step}`]);
    await rm(join(root, `checkpoints/${MODEL}/${step}`), { recursive: true });
  };
  return { root, store, engine, policies, loads, drop, handle };
}

test("loads a policy once for concurrent requests and keeps it for later ones", async () => {
  const { policies, loads } = await setUp();
  const leases = await Promise.all(Array.from({ length: 5 }, () => policies.resolvePolicy("e/p/n:step2", ALL_ROWS)));
  expect(new Set(leases.map((lease) => lease.policy.id)).size).toBe(1);
  for (const lease of leases) lease.release();
  (await policies.resolvePolicy("e/p/n:step2", ALL_ROWS)).release();
  expect(loads()).toBe(1);
});

test("releases the least recently used policy that is not leased", async () => {
  const { policies, engine } = await setUp({ maxIdle: 1 });
  const held = await policies.resolvePolicy("e/p/n:step1", ALL_ROWS);
  const second = await policies.resolvePolicy("e/p/n:step2", ALL_ROWS);
  second.release();
  second.release();
  (await policies.resolvePolicy("e/p/n:step3", ALL_ROWS)).release();
  await expect.poll(() => engine.livePolicies()).toHaveLength(2);
  expect(engine.livePolicies()).toContain(held.policy.id);
  expect(engine.livePolicies()).not.toContain(second.policy.id);
});

test("rejects a deleted step at once, and releases its weights after the last lease", async () => {
  const { policies, engine, drop } = await setUp();
  const held = await policies.resolvePolicy("e/p/n:step2", ALL_ROWS);
  await drop(2);
  await expect(policies.resolvePolicy("e/p/n:step2", ALL_ROWS)).rejects.toMatchObject({ code: "E_NOT_FOUND", param: "model" });
  expect(engine.livePolicies()).toContain(held.policy.id);
  held.release();
  await expect.poll(() => engine.livePolicies()).not.toContain(held.policy.id);
});

test("rejects a step that is deleted while it loads", async () => {
  const loading = deferred<void>();
  const gate = deferred<void>();
  const { policies, drop } = await setUp({
    before: ({ verb }) => {
      if (verb !== "loadPolicy") return;
      loading.resolve();
      return gate.promise;
    },
  });
  const asked = policies.resolvePolicy("e/p/n:step3", ALL_ROWS);
  await loading.promise;
  await drop(3);
  gate.resolve();
  await expect(asked).rejects.toMatchObject({ code: "E_NOT_FOUND" });
});

test("rejects only the aborted caller, with its own reason", async () => {
  const gate = deferred<void>();
  const { policies } = await setUp({ before: ({ verb }) => (verb === "loadPolicy" ? gate.promise : undefined) });
  const controller = new AbortController();
  const aborted = policies.resolvePolicy("e/p/n:step1", ALL_ROWS, { signal: controller.signal });
  const other = policies.resolvePolicy("e/p/n:step1", ALL_ROWS);
  const reason = new Error("enough");
  controller.abort(reason);
  await expect(aborted).rejects.toBe(reason);
  gate.resolve();
  (await other).release();
});

test("loads again after a failed load", async () => {
  let isBroken = true;
  const { policies } = await setUp({
    before: ({ verb }) => {
      if (verb === "loadPolicy" && isBroken) throw new Error("out of memory");
    },
  });
  await expect(policies.resolvePolicy("e/p/n:step1", ALL_ROWS)).rejects.toThrow("out of memory");
  isBroken = false;
  expect((await policies.resolvePolicy("e/p/n:step1", ALL_ROWS)).step).toBe(1);
});

test("adopts published weights, and releases weights that are already adopted", async () => {
  const { policies, engine, loads, handle } = await setUp();
  const first = engine.publish(handle);
  policies.adopt("checkpoint-3", first);
  const lease = await policies.resolvePolicy("e/p/n", ALL_ROWS);
  expect([lease.policy, lease.resolvedName, lease.step, loads()]).toEqual([await first, "e/p/n:step3", 3, 0]);
  const second = await engine.publish(handle);
  policies.adopt("checkpoint-3", Promise.resolve(second));
  await expect.poll(() => engine.livePolicies()).not.toContain(second.id);
});

test.each([null, undefined, "", "scripted"])("resolves %o to the base model", async (name) => {
  const { policies } = await setUp();
  expect(await policies.resolvePolicy(name, ALL_ROWS)).toMatchObject({ resolvedName: "scripted", step: null, base: { id: "scripted" } });
});

test.each([
  "e/p/other",
  "e/p/n:step9",
  "e/p/n:step",
  "e/p/n:v1",
  "n",
  "e/p/n/x",
  "22222222-2222-4222-8222-222222222222",
  "../../etc/passwd",
  "e/p/n:step99999999999",
])("rejects the unknown name %s", async (name) => {
  const { policies } = await setUp({ steps: 1 });
  await expect(policies.resolvePolicy(name, ALL_ROWS)).rejects.toMatchObject({ code: "E_NOT_FOUND", param: "model" });
});

test("caches a name until the store changes", async () => {
  onSqlite();
  const { store, policies } = await setUp({ steps: 2 });
  const found = async (): Promise<number | null> => {
    const lease = await policies.resolvePolicy("e/p/n", ALL_ROWS);
    lease.release();
    return lease.step;
  };
  // The first use records the digests of a checkpoint that has none.
  await found();
  const before = revisionOf(store);
  const looks = vi.spyOn(store, "selectFrom");
  onTestFinished(() => looks.mockRestore());
  expect(await Promise.all([found(), found(), found()])).toEqual([2, 2, 2]);
  expect(looks).toHaveBeenCalledTimes(2);
  expect(revisionOf(store)).toBe(before);

  await store.deleteFrom("checkpoints").where("step", "=", 2).returning("id").execute();
  expect(revisionOf(store)).not.toBe(before);
  expect(await found()).toBe(1);
  await expect(policies.resolvePolicy("e/p/n:step2", ALL_ROWS)).rejects.toMatchObject({ code: "E_NOT_FOUND" });
});
