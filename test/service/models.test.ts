import { expect, test } from "vitest";
import { checkpointList, deleteModelResponse, model, servedModelList } from "../../src/base/schema/index.ts";
import { CONTEXT, createModel, finishedEvents, goodGroup, MODELS, RL_JOBS, startTestService, UNKNOWN_ID } from "./support.ts";

test("creates a model with step 0, listed after the base models", async () => {
  const startedMs = Date.now();
  const { call, ok } = await startTestService();
  const made = await ok("POST", MODELS, { project: "demo", name: "reverse", base_model: "tiny", lora: { rank: 4 } });
  expect(model.parse(made)).toEqual({
    id: expect.any(String),
    entity: "local",
    project: "demo",
    name: "reverse",
    base_model: "tiny",
    run_id: null,
    lora: { rank: 4 },
  });
  const list = checkpointList.parse(await ok("GET", `${MODELS}/${made.id}/checkpoints`));
  expect(list).toEqual({
    object: "list",
    data: [
      {
        id: expect.any(String),
        step: 0,
        metrics: {},
        created_at: expect.any(String),
        pinned: false,
        lineage: { base_model: "tiny", parent: null, job_id: null, job_type: null },
        bytes: 0,
      },
    ],
    first_id: list.data[0]?.id,
    last_id: list.data[0]?.id,
    has_more: false,
  });
  const listed = servedModelList.parse(await ok("GET", "/v1/models")).data;
  for (const entry of listed) {
    for (const name of [entry.id, encodeURIComponent(entry.id)]) expect(await ok("GET", `/v1/models/${name}`)).toEqual(entry);
  }
  for (const name of ["no/such/model", "tiny/", "gpt-4"]) {
    const { status, body } = await call("GET", `/v1/models/${name}`);
    expect([name, status, body.error]).toMatchObject([name, 404, { error_code: "E_NOT_FOUND", param: "model" }]);
  }
  const permission = (created: number) => [
    {
      id: expect.stringMatching(/^modelperm-[0-9a-f]{16}$/u),
      object: "model_permission",
      created,
      allow_create_engine: false,
      allow_sampling: true,
      allow_logprobs: true,
      allow_search_indices: false,
      allow_view: true,
      allow_fine_tuning: true,
      organization: "*",
      group: null,
      is_blocking: false,
    },
  ];
  const [base, trained] = listed.map(({ created }) => created);
  expect(listed).toEqual([
    {
      ...{ id: "tiny", object: "model", created: base, owned_by: "whetstone", root: "tiny" },
      ...{ parent: null, max_model_len: CONTEXT, parameters: 1, permission: permission(base ?? NaN) },
    },
    {
      ...{ id: "local/demo/reverse", object: "model", created: trained, owned_by: "local", root: "local/demo/reverse:step0" },
      ...{ parent: "tiny", max_model_len: CONTEXT, parameters: 1, permission: permission(trained ?? NaN) },
    },
  ]);
  expect(trained).toBe(Math.floor(Date.parse(list.data[0]?.created_at ?? "") / 1000));
  // The start of the service, in whole seconds.
  expect(base).toBeGreaterThanOrEqual(Math.floor(startedMs / 1000));
  expect(base).toBeLessThanOrEqual(trained ?? NaN);
  expect(servedModelList.parse(await ok("GET", "/v1/models")).data).toEqual(listed);
  expect(await ok("GET", "/v1/preview/base-models")).toEqual(["tiny"]);
});

test("lists a base model without readable files with a null context length", async () => {
  let isGone = false;
  const { ok } = await startTestService({
    engine: {
      before: ({ verb }) => {
        if (verb === "describeBase" && isGone) throw new Error("the files are gone");
      },
    },
  });
  await ok("POST", MODELS, { project: "demo", name: "reverse", base_model: "tiny" });
  isGone = true;
  const { data } = servedModelList.parse(await ok("GET", "/v1/models"));
  expect(data.map(({ id, max_model_len }) => [id, max_model_len])).toEqual([
    ["tiny", null],
    ["local/demo/reverse", null],
  ]);
});

test("answers 409 for an existing name, or the existing model with `return_existing`", async () => {
  const { call, ok } = await startTestService();
  const body = { project: "demo", name: "reverse", base_model: "tiny", entity: "team" };
  const made = await ok("POST", MODELS, body);
  expect(made.entity).toBe("team");
  expect(await call("POST", MODELS, body)).toMatchObject({
    status: 409,
    body: { error: { type: "ConflictError", param: "name", code: 409, error_code: "E_CONFLICT" } },
  });
  expect(await ok("POST", MODELS, { ...body, return_existing: true })).toEqual(made);
  // Another entity is another name.
  expect((await ok("POST", MODELS, { ...body, entity: null })).id).not.toBe(made.id);
});

test("returns one model to concurrent requests with `return_existing`", async () => {
  const { ok } = await startTestService();
  const body = { project: "demo", name: "reverse", base_model: "tiny", return_existing: true };
  const made = await Promise.all(Array.from({ length: 8 }, () => ok("POST", MODELS, body)));
  expect(new Set(made.map((one) => one.id)).size).toBe(1);
});

test.each([
  ["an unknown base model", { project: "demo", name: "x", base_model: "nothing" }, 404, "base_model"],
  ["a base model outside the allowed roots", { project: "demo", name: "x", base_model: "../../etc" }, 404, "base_model"],
  ["a name with a slash", { project: "demo", name: "a/b", base_model: "tiny" }, 422, "name"],
  ["a project that starts with a dot", { project: "..", name: "x", base_model: "tiny" }, 422, "project"],
  ["no project", { name: "x", base_model: "tiny" }, 422, "project"],
  ["a rank out of bounds", { project: "demo", name: "x", base_model: "tiny", lora: { rank: 257 } }, 422, "lora.rank"],
])("rejects %s and creates no model", async (_, body, status, param) => {
  const { call, ok } = await startTestService();
  expect(await call("POST", MODELS, body)).toMatchObject({ status, body: { error: { param, message: expect.any(String) } } });
  expect((await ok("GET", "/v1/models")).data).toHaveLength(1);
});

test("deletes a model with its checkpoints; its routes answer 404 afterwards", async () => {
  const service = await startTestService();
  const { call, ok } = service;
  const { id } = await createModel(service);
  const job = await ok("POST", RL_JOBS, { model_id: id, trajectory_groups: [goodGroup()] });
  await finishedEvents(service, job.id);
  const answer = await ok("DELETE", `${MODELS}/${id}`);
  expect(deleteModelResponse.parse(answer)).toEqual({ model_id: id, deleted_checkpoints: 2, deleted_run: false });
  for (const [method, path] of [
    ["DELETE", `${MODELS}/${id}`],
    ["GET", `${MODELS}/${id}/checkpoints`],
  ] as const) {
    expect(await call(method, path)).toMatchObject({ status: 404, body: { error: { type: "NotFoundError", param: "model_id" } } });
  }
  expect((await call("POST", RL_JOBS, { model_id: id, trajectory_groups: [goodGroup()] })).status).toBe(404);
  expect((await call("DELETE", `${MODELS}/${UNKNOWN_ID}`)).status).toBe(404);
  expect((await ok("GET", "/v1/models")).data).toHaveLength(1);
  expect(service.engine.liveModels()).toEqual([]);
  // The result of the job can still be read.
  expect((await ok("GET", `${RL_JOBS}/${job.id}`)).status).toBe("succeeded");
});

test("cancels the jobs of a model that is deleted", async () => {
  let reached: () => void = () => undefined;
  const training = new Promise<void>((resolve) => (reached = resolve));
  const service = await startTestService({
    engine: {
      before: async ({ verb }, { signal }) => {
        if (verb !== "optimStep") return;
        reached();
        await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error)));
      },
    },
  });
  const { id } = await createModel(service);
  const jobs = [];
  for (let index = 0; index < 3; index++) jobs.push(await service.ok("POST", RL_JOBS, { model_id: id, trajectory_groups: [goodGroup()] }));
  await training;
  expect(await service.ok("DELETE", `${MODELS}/${id}`)).toMatchObject({ deleted_checkpoints: 1 });
  for (const job of jobs) {
    expect((await service.ok("GET", `${RL_JOBS}/${job.id}`)).status).toBe("cancelled");
    expect((await finishedEvents(service, job.id)).at(-1)).toMatchObject({ type: "training_failed", data: { cancelled: true } });
  }
  expect(service.engine.liveModels()).toEqual([]);
});
