import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  ARTIFACTS,
  chatLines,
  createModel,
  finishedEvents,
  goodGroup,
  RL_JOBS,
  SFT_JOBS,
  startTestService,
  UNKNOWN_ID,
  uploadArtifact,
} from "./support.ts";

test("an SFT job makes one step per batch and one checkpoint", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, {
    "trajectories.jsonl": chatLines(5),
    "metadata.json": JSON.stringify({ format: "jsonl", num_trajectories: 5 }),
  });
  const { id } = await service.ok("POST", SFT_JOBS, {
    model_id: modelId,
    training_data_url: url,
    config: { batch_size: 2, learning_rate: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6] },
    experimental_config: { epochs: 2 },
  });
  const events = await finishedEvents(service, id);
  expect(events[0]).toMatchObject({ type: "training_started", data: { num_sequences: 6 } });
  const steps = events.slice(1, -1);
  expect(steps.map((event) => event.type)).toEqual(Array(6).fill("gradient_step"));
  expect(steps.map((event) => [event.data.gradient_step, event.data.learning_rate, event.data.num_trajectories])).toEqual([
    [1, 0.1, 2],
    [2, 0.2, 2],
    [3, 0.3, 1],
    [4, 0.4, 2],
    [5, 0.5, 2],
    [6, 0.6, 1],
  ]);
  for (const key of ["loss", "grad_norm", "num_tokens", "num_trainable_tokens", "tokens_per_second"])
    expect(steps[0]?.data[key]).toEqual(expect.any(Number));
  expect(events.at(-1)).toMatchObject({ type: "training_ended", data: { step: 1 } });
  const { data } = await service.ok("GET", `/v1/preview/models/${modelId}/checkpoints`);
  expect(data[1].metrics).toMatchObject({ num_gradient_steps: 6, num_trajectories: 10, num_dropped_sequences: 0, learning_rate: 0.6 });
  expect(await service.ok("GET", `${RL_JOBS}/${id}`)).toMatchObject({ type: "sft", status: "succeeded", step: 1 });
});

test("defaults to two trajectories per step and one epoch, and accepts train.jsonl and any artifact scheme prefix", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": `\uFEFF${chatLines(3)}\r\n\n` });
  const { id } = await service.ok("POST", SFT_JOBS, {
    model_id: modelId,
    training_data_url: url.replace("artifact:", "some-artifact:"),
    config: { batch_size: "auto" },
  });
  const events = await finishedEvents(service, id);
  expect(events.slice(1, -1).map((event) => [event.data.num_trajectories, event.data.learning_rate])).toEqual([
    [2, 5e-5],
    [1, 5e-5],
  ]);
});

test("trains sampled trajectories, and drops and counts examples longer than the context", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const lines = [
    JSON.stringify(goodGroup().trajectories[0]),
    JSON.stringify({
      messages: [
        { role: "user", content: "x".repeat(500) },
        { role: "assistant", content: "y" },
      ],
    }),
    JSON.stringify({
      messages: [
        { role: "user", content: "x" },
        { role: "assistant", content: "y" },
      ],
    }),
  ];
  const url = await uploadArtifact(service, { "train.jsonl": lines.join("\n") });
  const { id } = await service.ok("POST", SFT_JOBS, { model_id: modelId, training_data_url: url });
  expect((await finishedEvents(service, id))[1]?.data.num_trajectories).toBe(2);
  const { data } = await service.ok("GET", `/v1/preview/models/${modelId}/checkpoints`);
  expect(data[1].metrics).toMatchObject({ num_dropped_sequences: 1, num_trajectories: 2 });
});

test("keeps moments between jobs of one kind and resets them between kinds", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(2) });
  const sft = async () => finishedEvents(service, (await service.ok("POST", SFT_JOBS, { model_id: modelId, training_data_url: url })).id);
  const rl = async () =>
    finishedEvents(service, (await service.ok("POST", RL_JOBS, { model_id: modelId, trajectory_groups: [goodGroup()] })).id);
  const resets = () => service.engine.calls.filter((call) => call.verb === "resetOptimizer").length;
  await sft();
  await sft();
  expect(resets()).toBe(0);
  await rl();
  expect(resets()).toBe(1);
  await rl();
  expect(resets()).toBe(1);
  await sft();
  expect(resets()).toBe(2);
});

const good = chatLines(2);
const line = (value: unknown) => `${good}\n${JSON.stringify(value)}`;

test.each([
  ["a line that is no JSON", { "train.jsonl": `${good}\n{"messages":` }, /train\.jsonl line 3: not JSON/],
  [
    "a line that is no UTF-8",
    {
      "train.jsonl": Buffer.concat([
        Buffer.from(`${good}\n{"messages": [{"role": "user", "content": "`),
        Buffer.of(0xe9),
        Buffer.from('"}]}'),
      ]),
    },
    /train\.jsonl line 3: not UTF-8/,
  ],
  [
    "half of a surrogate pair",
    { "train.jsonl": `${good}\n{"messages": [{"role": "user", "content": "\\ud83d"}]}` },
    /train\.jsonl line 3: half of a surrogate pair, the escape sequence \\ud83d alone/,
  ],
  ["a line without messages", { "train.jsonl": line({ text: "x" }) }, /train\.jsonl line 3: expected an object with `messages`/],
  ["a null line", { "train.jsonl": line(null) }, /train\.jsonl line 3/],
  ["a message without a role", { "train.jsonl": line({ messages: [{ content: "x" }] }) }, /train\.jsonl line 3.*role/],
  [
    "a conversation in which the assistant says nothing",
    { "train.jsonl": line({ messages: [{ role: "user", content: "x" }] }) },
    /train\.jsonl line 3.*assistant/,
  ],
  ["an invalid line after blank lines", { "train.jsonl": `\n\n${line({})}` }, /train\.jsonl line 5/],
  ["an empty file", { "train.jsonl": "" }, /train\.jsonl: nothing to train: the file is empty/],
  [
    "nothing that fits the context",
    {
      "train.jsonl": JSON.stringify({
        messages: [
          { role: "user", content: "x".repeat(500) },
          { role: "assistant", content: "y" },
        ],
      }),
    },
    /longer than the model's context of 128/,
  ],
  ["no file of a known name", { "data.jsonl": good }, /trajectories\.jsonl.*train\.jsonl, found: data\.jsonl/],
  ["both files", { "train.jsonl": good, "trajectories.jsonl": good }, /either trajectories\.jsonl/],
  [
    "metadata that counts other trajectories",
    { "trajectories.jsonl": good, "metadata.json": JSON.stringify({ num_trajectories: 3 }) },
    /`num_trajectories` is 3, but trajectories\.jsonl has 2/,
  ],
  ["metadata that is no JSON", { "trajectories.jsonl": good, "metadata.json": "{" }, /metadata\.json: not JSON/],
])("rejects %s with its location and creates no job", async (_, files, message) => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, files as unknown as Record<string, string | Uint8Array>);
  const answer = await service.call("POST", SFT_JOBS, { model_id: modelId, training_data_url: url });
  expect(answer).toMatchObject({ status: 422, body: { error: { param: "training_data_url", message: expect.stringMatching(message) } } });
  expect(await readdir(join(service.service.dataDir, "jobs"))).toEqual([]);
  expect(await service.ok("DELETE", `/v1/preview/models/${modelId}`)).toMatchObject({ deleted_checkpoints: 1 });
});

test.each([
  ["http://example.com/train.jsonl", 422],
  ["https:///local/demo/data:v0", 422],
  ["file:///local/demo/data:v0", 422],
  ["artifact:///local/demo/data", 422],
  ["artifact:///local/../data:v0", 404],
  ["local/demo/data:v0", 422],
  ["artifact:///local/demo/nothing:v0", 404],
  ["artifact:///local/demo/data:v7", 404],
])("rejects training data at %s with %i", async (url, status) => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  await uploadArtifact(service, { "train.jsonl": good });
  expect(await service.call("POST", SFT_JOBS, { model_id: modelId, training_data_url: url })).toMatchObject({
    status,
    body: { error: { param: "training_data_url" } },
  });
});

test("rejects an open version, an unknown model and a wrong number of learning rates", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": good });
  const open = await service.ok("POST", ARTIFACTS, { project: "demo", name: "data" });
  expect((await service.call("POST", SFT_JOBS, { model_id: modelId, training_data_url: open.url })).status).toBe(409);
  expect((await service.call("POST", SFT_JOBS, { model_id: UNKNOWN_ID, training_data_url: url })).status).toBe(404);
  expect(
    await service.call("POST", SFT_JOBS, { model_id: modelId, training_data_url: url, config: { learning_rate: [1, 2] } }),
  ).toMatchObject({ status: 422, body: { error: { param: "config.learning_rate" } } });
  expect(await service.call("POST", SFT_JOBS, { model_id: modelId, training_data_url: url, config: { batch_size: 0 } })).toMatchObject({
    status: 422,
    body: { error: { param: "config.batch_size" } },
  });
});
