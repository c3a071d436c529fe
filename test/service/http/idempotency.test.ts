import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  ARTIFACTS,
  chatLines,
  createModel,
  finishedEvents,
  MODELS,
  restartable,
  RL_JOBS,
  rlBody,
  SFT_JOBS,
  startTestService,
  uploadArtifact,
} from "../support.ts";

const once = { headers: { "idempotency-key": "key-1" } };

test("creates one object for equal requests with one key, also concurrent ones", async () => {
  const service = await startTestService();
  const { ok } = service;
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(2) });
  for (const [path, body] of [
    [MODELS, { project: "demo", name: "other", base_model: "tiny" }],
    [ARTIFACTS, { project: "demo", name: "files" }],
    [RL_JOBS, rlBody(modelId)],
    [SFT_JOBS, { model_id: modelId, training_data_url: url }],
  ] as const) {
    const answers = await Promise.all(Array.from({ length: 5 }, () => ok("POST", path, body, once)));
    answers.push(await ok("POST", path, body, once));
    expect(new Set(answers.map((answer) => answer.id)).size).toBe(1);
    expect(
      (await ok("POST", path, path === MODELS ? { ...body, name: "third" } : body, { headers: { "idempotency-key": "key-2" } })).id,
    ).not.toBe(answers[0].id);
  }
});

test("answers 409 for a key with another body; a failed request does not use its key", async () => {
  const service = await startTestService();
  const { call, ok } = service;
  const body = { project: "demo", name: "x", base_model: "tiny" };
  expect((await call("POST", MODELS, { ...body, base_model: "nothing" }, once)).status).toBe(404);
  const made = await ok("POST", MODELS, body, once);
  expect(await call("POST", MODELS, { ...body, name: "y" }, once)).toMatchObject({
    status: 409,
    body: { error: { param: "Idempotency-Key" } },
  });
  // Keys belong to a route.
  await ok("POST", ARTIFACTS, { project: "demo", name: "x" }, once);
  expect(await ok("POST", MODELS, body, once)).toEqual(made);
  expect((await call("POST", MODELS, body, { headers: { "idempotency-key": "x".repeat(256) } })).status).toBe(422);
});

test("answers a repeated request after a restart without creating another job", async () => {
  const { dataDir, start } = await restartable();
  const first = await start();
  const { id: modelId } = await createModel(first);
  const body = rlBody(modelId);
  const job = await first.ok("POST", RL_JOBS, body, once);
  await finishedEvents(first, job.id);
  await first.service.close();
  const second = await start();
  expect(await second.ok("POST", RL_JOBS, body, once)).toEqual(job);
  expect(await readdir(join(dataDir, "jobs"))).toEqual([]);
  expect((await second.ok("GET", `${MODELS}/${modelId}/checkpoints`)).data).toHaveLength(2);
});
