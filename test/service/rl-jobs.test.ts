import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { jobEventList, trainingJob } from "../../src/base/schema/index.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import {
  choice,
  CONTEXT,
  createModel,
  finishedEvents,
  goodGroup,
  group,
  MODELS,
  RL_JOBS,
  startTestService,
  UNKNOWN_ID,
  type TestService,
} from "./support.ts";

const startRl = (service: TestService, modelId: string): Promise<{ id: string }> =>
  service.ok("POST", RL_JOBS, { model_id: modelId, trajectory_groups: [goodGroup()] });

test("an RL job makes one step, reports it in events, and publishes its checkpoint", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const made = await service.ok("POST", RL_JOBS, {
    model_id: modelId,
    trajectory_groups: [goodGroup()],
    experimental_config: { learning_rate: 0.01, ppo: null },
  });
  expect(made).toEqual({ id: expect.any(String) });
  const events = await finishedEvents(service, made.id);
  expect(events.map((event) => [event.type, event.data])).toEqual([
    ["training_started", { num_sequences: 1 }],
    [
      "gradient_step",
      expect.objectContaining({
        gradient_step: 1,
        loss: expect.any(Number),
        grad_norm: expect.any(Number),
        learning_rate: 0.01,
        num_trainable_tokens: 3,
        logprob_difference_max: expect.any(Number),
      }),
    ],
    // The turns say −0.1 and −0.2 where the scripted engine says −1.
    ["warning", expect.objectContaining({ code: "sampler-mismatch" })],
    ["training_ended", { step: 1 }],
  ]);
  expect(Object.values(events[1]?.data).every((value) => typeof value === "number")).toBe(true);
  const job = trainingJob.parse(await service.ok("GET", `${RL_JOBS}/${made.id}`));
  expect(job).toMatchObject({
    id: made.id,
    model_id: modelId,
    type: "rl",
    status: "succeeded",
    step: 1,
    error_message: null,
    training_start: expect.any(String),
    training_end: expect.any(String),
  });
  expect((await service.ok("GET", "/v1/models")).data[1].root).toBe("local/demo/reverse:step1");
  expect(await readdir(join(service.service.dataDir, "jobs"))).toEqual([]);
});

test("reports preflight warnings in the event training_started", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const larger = group(
    { reward: 1, choices: [choice([1], [2])] },
    { reward: 0, choices: [choice([1], [3])] },
    { reward: 0, choices: [choice(Array(CONTEXT).fill(1), [2])] },
  );
  const groups = [goodGroup(), larger];
  const made = await service.ok("POST", RL_JOBS, { model_id: modelId, trajectory_groups: groups });
  const [started] = await finishedEvents(service, made.id);
  expect(started?.data).toMatchObject({ num_sequences: 1, warnings: expect.any(Array) });
  expect(started?.data.warnings.map((finding: any) => [finding.code, finding.severity, finding.count, finding.examples])).toEqual([
    ["unbalanced-group", "warning", 1, ["trajectory_groups.0"]],
    ["overlong-row", "warning", 1, ["trajectory_groups.1.trajectories.2.messages_and_choices.1"]],
  ]);
});

test("runs jobs in the order of creation, with the model kept in memory", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const jobs = [];
  for (let index = 0; index < 4; index++) jobs.push(await startRl(service, modelId));
  const steps = [];
  for (const job of jobs) steps.push((await finishedEvents(service, job.id)).at(-1)?.data.step);
  expect(steps).toEqual([1, 2, 3, 4]);
  expect(service.engine.calls.filter((call) => call.verb === "createModel")).toHaveLength(1);
  expect(service.engine.calls.filter((call) => call.verb === "resetOptimizer")).toHaveLength(0);
});

test.each([
  ["no groups", { trajectory_groups: [] }, "trajectory_groups"],
  ["no model", { model_id: undefined }, "model_id"],
  ["a model id that is no UUID", { model_id: "reverse" }, "model_id"],
  ["a setting that is not built", { experimental_config: { plot_tensors: true } }, "experimental_config.plot_tensors"],
  [
    "settings that contradict each other",
    { experimental_config: { ppo: true, loss_fn: "cispo" } },
    expect.stringContaining("experimental_config"),
  ],
  ["a rate of zero", { experimental_config: { learning_rate: 0 } }, "experimental_config.learning_rate"],
  [
    "a group without logprobs",
    {
      trajectory_groups: [
        {
          trajectories: [
            {
              reward: 1,
              messages_and_choices: [
                { role: "user", content: "q" },
                { role: "assistant", content: "a" },
              ],
            },
            { reward: 0 },
          ],
        },
      ],
    },
    "trajectory_groups",
  ],
  [
    "one turn without logprobs among others",
    {
      trajectory_groups: [
        goodGroup(),
        group({ reward: 1, choices: [choice([1], [2])] }, { reward: 0, choices: [{ ...choice([1], [3]), logprobs: null }] }),
      ],
    },
    "trajectory_groups",
  ],
  [
    "a trajectory that is none, deep in the batch",
    { trajectory_groups: [goodGroup(), { trajectories: [{ reward: "high" }] }] },
    "trajectory_groups.1.trajectories.0.reward",
  ],
  [
    "groups that are all constant",
    { trajectory_groups: [group({ reward: 1, choices: [choice([1], [2])] }, { reward: 1, choices: [choice([1], [3])] })] },
    "trajectory_groups",
  ],
  [
    "token ids and logprobs of different length",
    {
      trajectory_groups: [
        group({ reward: 1, choices: [{ ...choice([1], [2]), token_ids: [2, 3] }] }, { reward: 0, choices: [choice([1], [3])] }),
      ],
    },
    "trajectory_groups",
  ],
  [
    "rows that are all longer than the context",
    {
      trajectory_groups: [
        group({ reward: 1, choices: [choice(Array(CONTEXT).fill(1), [2])] }, { reward: 0, choices: [choice(Array(CONTEXT).fill(1), [3])] }),
      ],
    },
    "trajectory_groups",
  ],
])("rejects a job with %s before it is created", async (_, change, param) => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const answer = await service.call("POST", RL_JOBS, { model_id: modelId, trajectory_groups: [goodGroup()], ...change });
  expect(answer).toMatchObject({ status: 422, body: { error: { param, message: expect.any(String), type: "ValidationError" } } });
  expect(await readdir(join(service.service.dataDir, "jobs"))).toEqual([]);
  expect(service.engine.calls.some((call) => call.verb === "createModel")).toBe(false);
});

test("rejects a token outside the vocabulary", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const groups = [group({ reward: 1, choices: [choice([1], [999_999])] }, { reward: 0, choices: [choice([1], [3])] })];
  expect((await service.call("POST", RL_JOBS, { model_id: modelId, trajectory_groups: groups })).status).toBe(422);
});

test("answers 404 for unknown models and jobs", async () => {
  const { call } = await startTestService();
  expect(await call("POST", RL_JOBS, { model_id: UNKNOWN_ID, trajectory_groups: [goodGroup()] })).toMatchObject({
    status: 404,
    body: { error: { param: "model_id" } },
  });
  for (const [method, path] of [
    ["GET", ""],
    ["GET", "/events"],
    ["POST", "/cancel"],
  ] as const) {
    expect(await call(method, `${RL_JOBS}/${UNKNOWN_ID}${path}`)).toMatchObject({
      status: 404,
      body: { error: { param: "training_job_id" } },
    });
  }
});

test("a failed job reports its error and leaves no files; the next job trains from the last checkpoint", async () => {
  let isBroken = true;
  const service = await startTestService({
    engine: {
      before: ({ verb }) => {
        if (isBroken && verb === "saveState") throw new Error("the disk is full");
      },
    },
  });
  const { id: modelId } = await createModel(service);
  const { id } = await startRl(service, modelId);
  expect((await finishedEvents(service, id)).at(-1)).toMatchObject({
    type: "training_failed",
    data: { error_message: "the disk is full" },
  });
  expect(await service.ok("GET", `${RL_JOBS}/${id}`)).toMatchObject({ status: "failed", error_message: "the disk is full", step: null });
  await expect.poll(() => service.engine.liveModels()).toEqual([]);
  await expect.poll(() => readdir(join(service.service.dataDir, "jobs"))).toEqual([]);
  expect(await readdir(join(service.service.dataDir, "checkpoints", modelId))).toEqual([]);
  isBroken = false;
  expect((await finishedEvents(service, (await startRl(service, modelId)).id)).at(-1)).toMatchObject({
    type: "training_ended",
    data: { step: 1 },
  });
});

test("reports the job's own error and logs a failure to unload its model", async () => {
  const service = await startTestService({
    engine: {
      before: ({ verb }) => {
        if (verb === "optimStep") throw new Error("the gradient is gone");
        if (verb === "unload") throw new Error("the model is gone");
      },
    },
  });
  const { id } = await startRl(service, (await createModel(service)).id);
  expect((await finishedEvents(service, id)).at(-1)).toMatchObject({ data: { error_message: "the gradient is gone" } });
  expect(JSON.stringify(service.log)).toContain("the model is gone");
});

test("cancels queued and running jobs, and answers 409 for a finished one", async () => {
  const reached = deferred<void>();
  let isHeld = true;
  const service = await startTestService({
    engine: {
      before: async ({ verb }, { signal }) => {
        if (verb !== "forwardBackward" || !isHeld) return;
        reached.resolve();
        await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error)));
      },
    },
  });
  const { id: modelId } = await createModel(service);
  const [running, queued, last] = [await startRl(service, modelId), await startRl(service, modelId), await startRl(service, modelId)];
  await reached.promise;
  expect((await service.ok("GET", `${RL_JOBS}/${running.id}`)).status).toBe("running");
  expect(await service.ok("POST", `${RL_JOBS}/${queued.id}/cancel`)).toMatchObject({ id: queued.id, status: "cancelled" });
  isHeld = false;
  expect(await service.ok("POST", `${RL_JOBS}/${running.id}/cancel`)).toMatchObject({ id: running.id, status: "cancelled", step: null });
  expect(await service.ok("POST", `${RL_JOBS}/${running.id}/cancel`)).toMatchObject({ status: "cancelled" });
  expect((await finishedEvents(service, running.id)).map((event) => event.type)).toEqual([
    "training_started",
    "training_cancelled",
    "training_failed",
  ]);
  expect((await finishedEvents(service, queued.id)).map((event) => event.type)).toEqual(["training_cancelled", "training_failed"]);
  // Clients that know only the hosted interface's events stop at `training_failed`.
  expect((await finishedEvents(service, queued.id)).at(-1)?.data).toEqual({
    error_message: "The training job was cancelled",
    cancelled: true,
  });
  expect((await finishedEvents(service, last.id)).at(-1)).toMatchObject({ type: "training_ended", data: { step: 1 } });
  expect(await service.call("POST", `${RL_JOBS}/${last.id}/cancel`)).toMatchObject({
    status: 409,
    body: { error: { param: "training_job_id" } },
  });
  expect((await readdir(join(service.service.dataDir, "checkpoints", modelId))).map((name) => name[0])).toEqual(["1"]);
});

test("lists events by cursor, and answers a waiting request with the next event", async () => {
  const gate = deferred<void>();
  const service = await startTestService({ engine: { before: ({ verb }) => (verb === "forwardBackward" ? gate.promise : undefined) } });
  const { id: modelId } = await createModel(service);
  const { id } = await startRl(service, modelId);
  const path = `${RL_JOBS}/${id}/events`;
  const first = jobEventList.parse(await service.ok("GET", `${path}?limit=1&wait=10`));
  expect(first.data.map((event) => event.type)).toEqual(["training_started"]);
  expect((await service.ok("GET", `${path}?after=${first.last_id}`)).data).toEqual([]);
  const waiting = service.ok("GET", `${path}?after=${first.last_id}&limit=1&wait=30`);
  gate.resolve();
  const second = await waiting;
  expect([second.data[0].type, second.has_more]).toEqual(["gradient_step", true]);
  const { data: rest } = await service.ok("GET", `${path}?after=${second.last_id}`);
  expect(rest.map((event: { type: string }) => event.type)).toEqual(["warning", "training_ended"]);
  // Nothing can follow any more, so nothing is waited for.
  const end = (await service.ok("GET", path)).last_id;
  expect(await service.ok("GET", `${path}?after=${end}&wait=30`)).toMatchObject({
    data: [],
    has_more: false,
    first_id: null,
    last_id: null,
  });
  for (const query of ["after=nothing", "wait=31", "limit=0", "order=asc"])
    expect((await service.call("GET", `${path}?${query}`)).status).toBe(422);
});

test("answers waiting event requests when the service closes", async () => {
  const service = await startTestService({
    engine: {
      before: ({ verb }, { signal }) =>
        verb === "forwardBackward"
          ? new Promise<void>((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error)))
          : undefined,
    },
  });
  const { id: modelId } = await createModel(service);
  const { id } = await startRl(service, modelId);
  const first = await service.ok("GET", `${RL_JOBS}/${id}/events?wait=10`);
  const waiting = service.ok("GET", `${RL_JOBS}/${id}/events?wait=30&after=${first.last_id}`);
  // Answered on another connection after it, so the waiting request has arrived.
  for (let turn = 0; turn < 3; turn++) await service.ok("GET", "/v1/models");
  await Promise.all([service.service.close({ graceMs: 20_000 }), expect(waiting).resolves.toMatchObject({ data: [] })]);
});

test("resolves all names of a model to its latest step, which chat reports", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const ask = (model: string) =>
    service.ok(
      "POST",
      "/v1/chat/completions",
      { model, messages: [{ role: "user", content: "hi" }], max_tokens: 2 },
      { headers: { "content-type": "application/json" } },
    );
  expect((await ask("local/demo/reverse")).model).toBe("local/demo/reverse:step0");
  await finishedEvents(service, (await startRl(service, modelId)).id);
  for (const name of [
    "local/demo/reverse",
    "local/demo/reverse:latest",
    "local/demo/reverse:step1",
    "artifact:///local/demo/reverse",
    modelId,
    `${modelId}:step1`,
  ]) {
    expect((await ask(name)).model).toBe("local/demo/reverse:step1");
  }
  expect((await ask("local/demo/reverse:step0")).model).toBe("local/demo/reverse:step0");
  expect((await ask("tiny")).model).toBe("tiny");
  const loads = service.engine.calls.filter((call) => call.verb === "loadPolicy");
  // The trained step was published, never loaded from disk; step 0 and the base are one policy.
  expect(loads.map((call) => call.detail)).toEqual([{ base: "tiny" }]);
  expect((await service.call("GET", `${MODELS}/${modelId}/checkpoints`)).status).toBe(200);
});
