import { randomUUID } from "node:crypto";
import { mkdir, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Verifier } from "../../src/service/disk/verifier.ts";
import { FolderStorage } from "../../src/service/storage/folder.ts";
import { Retention, type RetentionContext } from "../../src/service/checkpoints/retention.ts";
import { Holds } from "../../src/base/util/leases.ts";
import { openDataDirectory } from "../../src/service/disk/data-directory.ts";
import { openTestStore } from "../support/postgres.ts";
import type { Store } from "../../src/service/store/tables.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import {
  createModel,
  finishedEvents,
  goodGroup,
  MODELS,
  RL_JOBS,
  startTestService,
  temporaryDirectory,
  testBase,
  type TestService,
  PREFERENCE_JOBS,
  preferenceLines,
  uploadArtifact,
  statePath,
} from "./support.ts";

async function train(service: TestService, modelId: string, config: object = {}): Promise<void> {
  const body = { model_id: modelId, trajectory_groups: [goodGroup()], experimental_config: config };
  await finishedEvents(service, (await service.ok("POST", RL_JOBS, body)).id);
}

const stepsOf = async ({ ok }: TestService, modelId: string): Promise<number[]> =>
  (await ok("GET", `${MODELS}/${modelId}/checkpoints`)).data.map(({ step }: { step: number }) => step);

const filesOf = async ({ service }: TestService, modelId: string, step: number): Promise<string[]> =>
  (await readdir(statePath(service.dataDir, modelId, step))).toSorted();

const WEIGHTS = ["model.safetensors", "state.json"];
const WITH_MOMENTS = ["model.safetensors", "optimizer.safetensors", "state.json"];

/** Bytes of a checkpoint with moments, and of one without. */
async function sizes(service: TestService, modelId: string, step: number): Promise<{ readonly whole: number; readonly weights: number }> {
  const path = statePath(service.service.dataDir, modelId, step);
  const bytes = async (names: readonly string[]) =>
    (await Promise.all(names.map(async (name) => (await stat(join(path, name))).size))).reduce((sum, size) => sum + size, 0);
  return { whole: await bytes(WITH_MOMENTS), weights: await bytes(WEIGHTS) };
}

/** Measures the size of a checkpoint; all of the scripted engine's have the same size except for the digits of the step. */
async function measured(): Promise<{ readonly whole: number; readonly weights: number }> {
  const service = await startTestService();
  const { id } = await createModel(service);
  await train(service, id);
  return sizes(service, id, 1);
}

test("keeps the optimizer state of the newest and of pinned checkpoints", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  const path = `${MODELS}/${id}/checkpoints`;
  await train(service, id);
  expect(await service.ok("PUT", `${path}/latest/pin`)).toMatchObject({ step: 1, pinned: true });
  await train(service, id);
  await train(service, id);
  expect([await filesOf(service, id, 1), await filesOf(service, id, 2), await filesOf(service, id, 3)]).toEqual([
    WITH_MOMENTS,
    WEIGHTS,
    WITH_MOMENTS,
  ]);
  // The pinned one is trained on with its moments once it is the newest again.
  expect(await service.ok("DELETE", path, { steps: [2, 3] })).toMatchObject({ deleted_count: 2 });
  await train(service, id);
  const created = service.engine.calls.findLast((call) => call.verb === "createModel")?.detail as { from: string };
  expect(created.from).toBe(statePath(service.service.dataDir, id, 1));
  expect(service.engine.calls.some((call) => call.verb === "resetOptimizer")).toBe(false);
  expect(await service.ok("DELETE", `${path}/1/pin`)).toMatchObject({ step: 1, pinned: false });
  expect(await filesOf(service, id, 1)).toEqual(WEIGHTS);
  // Without its pin the newest keeps its own.
  await service.ok("PUT", `${path}/4/pin`);
  await service.ok("DELETE", `${path}/4/pin`);
  expect(await filesOf(service, id, 4)).toEqual(WITH_MOMENTS);
  expect((await service.call("PUT", `${path}/9/pin`)).status).toBe(404);
});

test("deletes the oldest checkpoints over the budget, never a model's newest, a pinned one or step 0", async () => {
  const { whole, weights } = await measured();
  const service = await startTestService({ limits: { maxCheckpointBytes: whole + 2 * weights + 40 } });
  const { id } = await createModel(service);
  for (let step = 0; step < 3; step++) await train(service, id);
  await expect.poll(() => stepsOf(service, id)).toEqual([0, 1, 2, 3]);
  await service.ok("PUT", `${MODELS}/${id}/checkpoints/2/pin`);
  await train(service, id);
  await expect.poll(() => stepsOf(service, id)).toEqual([0, 2, 3, 4]);
  await train(service, id);
  await expect.poll(() => stepsOf(service, id)).toEqual([0, 2, 4, 5]);
  await expect
    .poll(() =>
      readdir(join(service.service.dataDir, "checkpoints", id)).then((names) =>
        names.map((name) => Number.parseInt(name, 10)).toSorted((a, b) => a - b),
      ),
    )
    .toEqual([2, 4, 5]);
  const warnings = () => service.log.filter(({ level }) => level === "warn").map(({ message }) => message);
  expect(warnings()).toEqual([]);
  // Another model's newest counts, and is safe.
  const other = await createModel(service, "other");
  await train(service, other.id);
  await expect.poll(() => stepsOf(service, id)).toEqual([0, 2, 5]);
  await expect.poll(() => stepsOf(service, other.id)).toEqual([0, 1]);
  // A pinned one and two newest are more than the budget, and all are needed.
  await expect.poll(warnings).toEqual([expect.stringContaining("more than the budget")]);
});

test("keeps checkpoints that are sampled or referenced by a queued job", async () => {
  const gate = deferred<void>();
  let isHeld = false;
  const service = await startTestService({
    limits: { maxCheckpointBytes: 1 },
    engine: { before: ({ verb }) => (isHeld && verb === "sampleToken" ? gate.promise : undefined) },
  });
  const { id } = await createModel(service);
  await train(service, id);
  isHeld = true;
  const chat = { model: "local/demo/reverse:step1", messages: [{ role: "user", content: "hi" }], max_tokens: 2 };
  const answer = service.ok("POST", "/v1/chat/completions", chat);
  await expect.poll(() => service.engine.calls.some((call) => call.verb === "sample")).toBe(true);
  await train(service, id);
  await train(service, id);
  // Step 1 is in use; step 2 was not.
  await expect.poll(() => stepsOf(service, id)).toEqual([0, 1, 3]);
  isHeld = false;
  gate.resolve();
  expect((await answer).model).toBe("local/demo/reverse:step1");
  // Two jobs at once: the second continues from a checkpoint that the first would otherwise delete.
  const body = (config: object) => ({ model_id: id, trajectory_groups: [goodGroup()], experimental_config: config });
  const first = (await service.ok("POST", RL_JOBS, body({}))).id;
  const second = (await service.ok("POST", RL_JOBS, body({ kl_penalty_coef: 0.1, kl_penalty_step_lag: 1 }))).id;
  await finishedEvents(service, first);
  expect((await finishedEvents(service, second)).at(-1)).toMatchObject({ type: "training_ended", data: { step: 5 } });
  await expect.poll(() => stepsOf(service, id)).toEqual([0, 5]);
});

test("keeps the reference checkpoint of a queued preference job until the job has ended", async () => {
  const gate = deferred<void>();
  let isHeld = false;
  const service = await startTestService({
    limits: { maxCheckpointBytes: 1 },
    engine: { before: ({ verb }) => (isHeld && verb === "optimStep" ? gate.promise : undefined) },
  });
  const { id } = await createModel(service);
  await train(service, id);
  const url = await uploadArtifact(service, { "train.jsonl": preferenceLines(2) });
  isHeld = true;
  const first = (await service.ok("POST", RL_JOBS, { model_id: id, trajectory_groups: [goodGroup()] })).id;
  const body = { model_id: id, training_data_url: url, config: { reference_step: 1 } };
  const second = (await service.ok("POST", PREFERENCE_JOBS, body)).id;
  gate.resolve();
  await finishedEvents(service, first);
  expect((await finishedEvents(service, second)).at(-1)).toMatchObject({ type: "training_ended", data: { step: 3 } });
  await expect.poll(() => stepsOf(service, id)).toEqual([0, 3]);
});

/** A store and a directory with checkpoints of a model, each of so many bytes, and what keeps them to a budget. */
async function kept(
  bytes: readonly number[],
  options: Pick<RetentionContext["limits"], "maxCheckpointBytes"> & { readonly onForget?: (store: Store) => void },
) {
  const directory = await openDataDirectory(await temporaryDirectory());
  const store = await openTestStore(directory.root);
  onTestFinished(() => store.destroy());
  const model = { id: randomUUID(), entity: "local", project: "demo", name: "m", base_model: "tiny", lora: null, seed: 0, next_step: 9 };
  await store
    .insertInto("models")
    .values({ ...model, created_at: "2026" })
    .execute();
  for (const [step, size] of bytes.entries()) {
    const state_dir = join("checkpoints", model.id, String(step));
    await mkdir(join(directory.root, state_dir), { recursive: true });
    await writeFile(join(directory.root, state_dir, "model.safetensors"), new Uint8Array(size));
    const row = { model_id: model.id, step, metrics: "{}", state_dir, optimizer_kind: null, lineage: null, pinned: 0 };
    await store
      .insertInto("checkpoints")
      .values({ ...row, id: randomUUID(), created_at: `2026-${step}` })
      .execute();
  }
  const logger = { info: () => undefined, warn: () => undefined, error: () => undefined };
  const retention = new Retention({
    store,
    directory,
    storage: new FolderStorage(directory, new Verifier(logger)),
    policies: { isLeased: () => false, forget: () => options.onForget?.(store) },
    uses: new Holds(),
    limits: options,
    logger,
    space: { freeing: (work) => work() },
  });
  const steps = async () => (await store.selectFrom("checkpoints").select("step").orderBy("step").execute()).map(({ step }) => step);
  return { retention, steps };
}

test("deletes no more in two concurrent runs than in one", async () => {
  const { retention, steps } = await kept([1, 1, 1, 1, 1], { maxCheckpointBytes: 4 });
  const deleted = await Promise.all([retention.enforceBudget(), retention.enforceBudget()]);
  expect(deleted.map((rows) => rows.map(({ step }) => step))).toEqual([[1], []]);
  expect(await steps()).toEqual([0, 2, 3, 4]);
});

test("counts checkpoints that a user deletes meanwhile", async () => {
  const onForget = (store: Store) => void store.deleteFrom("checkpoints").where("step", "=", 2).execute();
  const { retention, steps } = await kept([1, 1, 1, 1, 1], { maxCheckpointBytes: 3, onForget });
  expect((await retention.enforceBudget()).map(({ step }) => step)).toEqual([1]);
  expect(await steps()).toEqual([0, 3, 4]);
});

test("applies the budget at the start, and counts forks", async () => {
  const [dataDir, bases] = [await temporaryDirectory(), await testBase()];
  const free = await startTestService({ dataDir, engine: { bases } });
  const { id } = await createModel(free);
  for (let step = 0; step < 3; step++) await train(free, id);
  const { whole } = await sizes(free, id, 3);
  await free.service.close();
  const bound = await startTestService({ dataDir, engine: { bases }, limits: { maxCheckpointBytes: 2 * whole } });
  await expect.poll(() => stepsOf(bound, id)).toEqual([0, 2, 3]);
  await bound.ok("POST", MODELS, { project: "demo", name: "fork", base_model: "tiny", from: id });
  await expect.poll(() => stepsOf(bound, id)).toEqual([0, 3]);
});
