import { readdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { expect, test } from "vitest";
import { deferred } from "../../src/base/util/deferred.ts";
import { createModel, finishedEvents, goodGroup, MODELS, RL_JOBS, startTestService, type TestService, statePath } from "./support.ts";

async function train(service: TestService, modelId: string, times: number): Promise<void> {
  for (let index = 0; index < times; index++) {
    const { id } = await service.ok("POST", RL_JOBS, { model_id: modelId, trajectory_groups: [goodGroup()] });
    await finishedEvents(service, id);
  }
}

test("lists every checkpoint by pages in both orders", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  await train(service, id, 4);
  const path = `${MODELS}/${id}/checkpoints`;
  for (const [order, expected] of [
    ["asc", [0, 1, 2, 3, 4]],
    ["desc", [4, 3, 2, 1, 0]],
  ] as const) {
    const steps: number[] = [];
    let page = await service.ok("GET", `${path}?limit=2&order=${order}`);
    for (;;) {
      steps.push(...page.data.map((one: { step: number }) => one.step));
      expect([page.first_id, page.last_id]).toEqual([page.data[0].id, page.data.at(-1).id]);
      if (!page.has_more) break;
      page = await service.ok("GET", `${path}?limit=2&order=${order}&after=${page.last_id}`);
    }
    expect(steps).toEqual(expected);
  }
  expect((await service.ok("GET", path)).data[4].metrics).toMatchObject({ learning_rate: 5e-6, "reward/mean": 0.5 });
  expect(await service.call("GET", `${path}?after=nothing`)).toMatchObject({ status: 422, body: { error: { param: "after" } } });
  for (const query of ["limit=0", "limit=x", "order=up", "page=2"])
    expect((await service.call("GET", `${path}?${query}`)).status).toBe(422);
});

test("reports unknown steps of a deletion, and never reuses a step number", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  await train(service, id, 3);
  const path = `${MODELS}/${id}/checkpoints`;
  expect(await service.ok("DELETE", path, { steps: [1, 3, 3, 9] })).toEqual({ deleted_count: 2, not_found_steps: [9] });
  expect(await service.ok("DELETE", path, { steps: [1] })).toEqual({ deleted_count: 0, not_found_steps: [1] });
  expect(await readdir(join(service.service.dataDir, "checkpoints", id))).toEqual([basename(statePath(service.service.dataDir, id, 2))]);
  await train(service, id, 1);
  expect((await service.ok("GET", path)).data.map((one: { step: number }) => one.step)).toEqual([0, 2, 4]);
  for (const body of [{}, { steps: ["1"] }, { steps: [-1] }, { steps: [1], all: true }])
    expect((await service.call("DELETE", path, body)).status).toBe(422);
});

test("answers 404 to chat and 409 to a new job after checkpoints were deleted", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  await train(service, id, 1);
  const chat = (model: string) =>
    service.call(
      "POST",
      "/v1/chat/completions",
      { model, messages: [{ role: "user", content: "hi" }], max_tokens: 1 },
      { headers: { "content-type": "application/json" } },
    );
  expect((await chat("local/demo/reverse:step1")).status).toBe(200);
  await service.ok("DELETE", `${MODELS}/${id}/checkpoints`, { steps: [1] });
  expect((await chat("local/demo/reverse:step1")).status).toBe(404);
  expect((await chat("local/demo/reverse")).body.model).toBe("local/demo/reverse:step0");
  await service.ok("DELETE", `${MODELS}/${id}/checkpoints`, { steps: [0] });
  expect(await chat("local/demo/reverse")).toMatchObject({ status: 404, body: { error: { param: "model" } } });
  expect(await service.call("POST", RL_JOBS, { model_id: id, trajectory_groups: [goodGroup()] })).toMatchObject({
    status: 409,
    body: { error: { param: "model_id" } },
  });
  expect(await readdir(join(service.service.dataDir, "jobs"))).toEqual([]);
  expect((await service.ok("GET", "/v1/models")).data).toHaveLength(1);
});

test("rejects deleting step 0 and the newest checkpoint during a job, naming the job", async () => {
  const gate = deferred<void>();
  let isHeld = false;
  const service = await startTestService({ engine: { before: ({ verb }) => (isHeld && verb === "optimStep" ? gate.promise : undefined) } });
  const { id } = await createModel(service);
  await train(service, id, 2);
  isHeld = true;
  const job = await service.ok("POST", RL_JOBS, { model_id: id, trajectory_groups: [goodGroup()] });
  const path = `${MODELS}/${id}/checkpoints`;
  for (const steps of [[0], [2], [1, 2]]) {
    const answer = await service.call("DELETE", path, { steps });
    expect(answer).toMatchObject({ status: 409, body: { error: { param: "steps" } } });
    expect(answer.body.error.message).toContain(job.id);
  }
  expect((await service.ok("GET", path)).data).toHaveLength(3);
  expect(await service.ok("DELETE", path, { steps: [1] })).toMatchObject({ deleted_count: 1 });
  gate.resolve();
  await finishedEvents(service, job.id);
  expect(await service.ok("DELETE", path, { steps: [2] })).toMatchObject({ deleted_count: 1 });
});

test("keeps the optimizer state of the newest checkpoint only", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  await train(service, id, 2);
  const namesOf = async (step: number) => (await readdir(statePath(service.service.dataDir, id, step))).sort();
  // Dropped after the commit that anybody can see.
  await expect.poll(() => namesOf(1)).toEqual(["model.safetensors", "state.json"]);
  expect(await namesOf(2)).toEqual(["model.safetensors", "optimizer.safetensors", "state.json"]);
});
