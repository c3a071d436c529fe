/** Lists of models, jobs, artifacts and checkpoints, through the client library. */
import { linkSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/index.ts";
import { createModel, finishedEvents, RL_JOBS, startRlJob, startTestService, UNKNOWN_ID, uploadArtifact, statePath } from "./support.ts";

async function start() {
  const server = await startTestService();
  const service = await connect({ baseUrl: server.service.url, apiKey: server.service.apiKey });
  onTestFinished(() => service.close());
  return { server, service };
}

test("lists trainable models newest first, with the number and size of their checkpoints", async () => {
  const { server, service } = await start();
  const { id } = await createModel(server, "first");
  await finishedEvents(server, await startRlJob(server, id));
  await finishedEvents(server, await startRlJob(server, id));
  const second = await createModel(server, "second");
  const checkpoints = await service.checkpoints.list(id);
  expect(checkpoints[0]?.bytes).toBe(0);
  const sizes = checkpoints.map(({ bytes }) => bytes ?? Number.NaN);
  expect(sizes[2]).toBeGreaterThan(0);
  const total = sizes.reduce((sum, each) => sum + each, 0);
  const models = await service.models.listTrainable();
  expect(models.map(({ name }) => name)).toEqual(["second", "first"]);
  expect(models[0]).toMatchObject({ id: second.id, latestStep: 0, checkpoints: 1, bytes: 0, baseModel: "tiny", lora: null });
  expect(models[1]).toMatchObject({ id, latestStep: 2, checkpoints: 3, bytes: total });
  expect(Number.isNaN(Date.parse(models[1]?.createdAt ?? ""))).toBe(false);
  expect(await service.models.listTrainable({ name: "first", project: "demo", entity: "local" })).toEqual([models[1]]);
  expect(await service.models.listTrainable({ project: "other" })).toEqual([]);
  // Step 1 gets the weights of step 2 as a hard link, as a model that starts from a checkpoint does.
  const weights = (step: number) => join(statePath(server.service.dataDir, id, step), "model.safetensors");
  rmSync(weights(1));
  linkSync(weights(2), weights(1));
  const shared = (await service.checkpoints.list(id)).reduce((sum, { bytes }) => sum + (bytes ?? 0), 0);
  expect((await service.models.listTrainable({ name: "first" }))[0]?.bytes).toBeLessThan(shared);
  expect((await service.checkpoints.get(id, 1)).bytes).toBe((await service.checkpoints.list(id))[1]?.bytes);
});

test("lists jobs newest first, by model and by status, in pages", async () => {
  const { server, service } = await start();
  const [one, two] = [await createModel(server, "one"), await createModel(server, "two")];
  const ids: string[] = [];
  for (const model of [one, one, two]) ids.push(await startRlJob(server, model.id));
  for (const id of ids) await finishedEvents(server, id);
  expect((await service.trainingJobs.list()).map(({ id }) => id)).toEqual(ids.toReversed());
  expect((await service.trainingJobs.list({ modelId: one.id })).map(({ id }) => id)).toEqual([ids[1], ids[0]]);
  expect(await service.trainingJobs.list({ status: "failed" })).toEqual([]);
  expect(await service.trainingJobs.list({ status: "succeeded", max: 1 })).toEqual([await service.trainingJobs.get(ids[2]!)]);
  const page = await server.ok("GET", `${RL_JOBS}?limit=2`);
  expect(page).toMatchObject({ object: "list", first_id: ids[2], last_id: ids[1], has_more: true });
  expect((await server.ok("GET", `${RL_JOBS}?limit=2&after=${page.last_id}`)).data).toEqual([
    expect.objectContaining({ id: ids[0], model_id: one.id, type: "rl", status: "succeeded", step: 1 }),
  ]);
});

test("lists artifact versions newest first without deleted ones, with the number and size of their files", async () => {
  const { server, service } = await start();
  await uploadArtifact(server, { a: "12345", b: "678" }, "first");
  await uploadArtifact(server, { a: "1" }, "second");
  const { id: open } = await service.artifacts.create({ project: "demo", name: "second", metadata: { kind: "test" } });
  const versions = await service.artifacts.list();
  expect(versions.map(({ url }) => url).toSorted()).toEqual([
    "artifact:///local/demo/first:v0",
    "artifact:///local/demo/second:v0",
    "artifact:///local/demo/second:v1",
  ]);
  expect(versions.map(({ createdAt }) => createdAt)).toEqual(
    versions
      .map(({ createdAt }) => createdAt)
      .toSorted()
      .toReversed(),
  );
  const [newest] = await service.artifacts.list({ state: "open" });
  expect(newest).toMatchObject({ id: open, version: 1, fileCount: 0, bytes: 0, metadata: { kind: "test" } });
  expect(await service.artifacts.list({ name: "first" })).toEqual([expect.objectContaining({ fileCount: 2, bytes: 8 })]);
  await service.artifacts.delete(open);
  expect(await service.artifacts.list({ name: "second", project: "demo", entity: "local" })).toHaveLength(1);
  // One item per page: every version is on exactly one of the pages.
  const seen: string[] = [];
  for (let after = ""; ;) {
    const page = await server.ok("GET", `/v1/preview/artifacts?limit=1${after}`);
    seen.push(page.last_id);
    if (page.has_more !== true) break;
    after = `&after=${page.last_id}`;
  }
  expect(seen).toEqual((await service.artifacts.list()).map(({ id }) => id));
});

test.each(["/v1/preview/models", RL_JOBS, "/v1/preview/artifacts"])("%s rejects an unknown cursor, field and size", async (path) => {
  const { call } = await startTestService();
  for (const [query, param] of [
    [`after=${UNKNOWN_ID}`, "after"],
    ["limit=101", "limit"],
    ["order=asc", "order"],
  ]) {
    expect(await call("GET", `${path}?${query}`)).toMatchObject({ status: 422, body: { error: { param } } });
  }
});
