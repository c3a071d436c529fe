import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Row } from "../../src/engine/port.ts";
import { onSqlite } from "../support/postgres.ts";
import { verifyDataDirectory } from "../../src/service/stored-files/verify.ts";
import type { ScriptedEngineOptions } from "../../src/testing/index.ts";
import {
  ARTIFACTS,
  createModel,
  finishedEvents,
  goodGroup,
  MODELS,
  PREFERENCE_JOBS,
  preferenceLines,
  restartable,
  RL_JOBS,
  startTestService,
  type TestService,
  uploadArtifact,
} from "./support.ts";

const user = (content: string) => ({ role: "user", content });
const assistant = (content: string) => ({ role: "assistant", content });

/** Starts a job on the lines of an artifact; its id. */
async function start(service: TestService, modelId: string, url: string, config: object = {}): Promise<string> {
  return (await service.ok("POST", PREFERENCE_JOBS, { model_id: modelId, training_data_url: url, config })).id;
}

const rowsOf = (service: TestService, verb: "forward" | "forwardBackward"): readonly (readonly Row[])[] =>
  service.engine.calls
    .filter((call) => call.verb === verb)
    .map((call) => (verb === "forward" ? (call.detail as Row[]) : (call.detail as { rows: Row[] }).rows));

test("a preference job makes one step per batch of pairs and one checkpoint of its kind", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, {
    "preferences.jsonl": preferenceLines(5),
    "metadata.json": JSON.stringify({ format: "jsonl", num_pairs: 5 }),
  });
  const id = await start(service, modelId, url, { batch_size: 2, learning_rate: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], epochs: 2 });
  const events = await finishedEvents(service, id);
  expect(events[0]).toMatchObject({ type: "training_started", data: { num_sequences: 6, num_dropped_pairs: 0 } });
  const steps = events.slice(1, -1);
  expect(steps.map(({ type, data }) => [type, data.gradient_step, data.learning_rate, data.num_pairs])).toEqual([
    ["gradient_step", 1, 0.1, 2],
    ["gradient_step", 2, 0.2, 2],
    ["gradient_step", 3, 0.3, 1],
    ["gradient_step", 4, 0.4, 2],
    ["gradient_step", 5, 0.5, 2],
    ["gradient_step", 6, 0.6, 1],
  ]);
  const names = ["grad_norm", "num_tokens", "num_trainable_tokens", "tokens_per_second", "tokens/trained", "policy/entropy"];
  for (const name of names) expect(steps[0]?.data[name], name).toEqual(expect.any(Number));
  // Before the first step the policy is the reference.
  expect(steps[0]?.data).toMatchObject({ loss: Math.LN2, "rewards/margins": 0, "rewards/accuracies": 0 });
  expect(steps[1]?.data["rewards/chosen"]).not.toBe(0);
  expect(await service.ok("GET", `${RL_JOBS}/${id}`)).toMatchObject({ type: "preference", status: "succeeded", step: 1 });
  const { data } = await service.ok("GET", `${MODELS}/${modelId}/checkpoints`);
  const mean = (name: string) => steps.reduce((sum, { data: step }) => sum + step[name], 0) / steps.length;
  expect(data[1]).toMatchObject({
    lineage: { job_id: id, job_type: "preference" },
    metrics: {
      num_gradient_steps: 6,
      num_pairs: 10,
      learning_rate: 0.6,
      num_dropped_pairs: 0,
      loss: expect.closeTo(mean("loss"), 12),
      last_loss: steps[5]?.data.loss,
      "rewards/margins": expect.closeTo(mean("rewards/margins"), 12),
    },
  });
});

test("trains the rows of a pair together, the chosen one with positive and the rejected one with negative weights", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const pair = { prompt: [user("q")], chosen: [assistant("yes")], rejected: [assistant("no no")] };
  const url = await uploadArtifact(service, { "train.jsonl": JSON.stringify(pair) });
  await finishedEvents(service, await start(service, modelId, url, { beta: 0.5, label_smoothing: 0.25 }));
  const [[chosen, rejected]] = rowsOf(service, "forwardBackward") as [[Row, Row]];
  // (1 − ε)·σ(0)·β − ε·σ(0)·β
  const weight = 0.5 * (0.75 - 0.25) * 0.5;
  expect([...new Set(chosen.weights)]).toEqual([0, weight]);
  expect([...new Set(rejected.weights)]).toEqual([0, -weight]);
  const shared = chosen.weights.indexOf(weight);
  expect([...rejected.tokens.subarray(0, shared)]).toEqual([...chosen.tokens.subarray(0, shared)]);
});

test("divides by the trained tokens of each continuation with `length_normalization`", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const pair = { prompt: [user("q")], chosen: [assistant("yes")], rejected: [assistant("no no no")] };
  const url = await uploadArtifact(service, { "train.jsonl": JSON.stringify(pair) });
  await finishedEvents(service, await start(service, modelId, url, { length_normalization: true }));
  const [[chosen, rejected]] = rowsOf(service, "forwardBackward") as [[Row, Row]];
  for (const [{ weights }, sign] of [
    [chosen, 1],
    [rejected, -1],
  ] as const)
    expect(weights.reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(sign * 0.05, 6);
});

test("drops pairs longer than the context and counts them", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const long = { prompt: [user("q")], chosen: [assistant("y")], rejected: [assistant("x".repeat(500))] };
  const url = await uploadArtifact(service, { "train.jsonl": `${JSON.stringify(long)}\n${preferenceLines(2)}` });
  const [started, step] = await finishedEvents(service, await start(service, modelId, url));
  expect(started?.data).toMatchObject({ num_dropped_pairs: 1, num_dropped_tokens: expect.any(Number) });
  expect(step?.data).toMatchObject({ num_pairs: 2, "tokens/dropped": started?.data.num_dropped_tokens });
});

test("validates held-out pairs, and pairs of another artifact, with the metrics of a step", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": preferenceLines(10) });
  const split = await finishedEvents(service, await start(service, modelId, url, { batch_size: 4, epochs: 2, validation_split: 0.2 }));
  expect(split[0]?.data).toMatchObject({ num_sequences: 4, num_validation_pairs: 2 });
  const steps = split.slice(1, -1).map(({ data }) => data);
  expect(steps.map((data) => "validation/loss" in data)).toEqual([false, true, false, true]);
  for (const name of ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "tokens"])
    expect(steps[1][`validation/${name}`], name).toEqual(expect.any(Number));
  const trained = new Set(rowsOf(service, "forwardBackward").flatMap((rows) => rows.map(({ tokens }) => String([...tokens]))));
  expect(trained.size).toBe(16);
  const other = await uploadArtifact(service, { "train.jsonl": preferenceLines(3) }, "other");
  const config = { batch_size: 4, validation_data_url: other, validation_every: 2 };
  const separate = await finishedEvents(service, await start(service, modelId, url, config));
  expect(separate.slice(1, -1).map(({ data }) => "validation/loss" in data)).toEqual([false, true, true]);
  const { data } = await service.ok("GET", `${MODELS}/${modelId}/checkpoints`);
  expect(data[2].metrics).toMatchObject({ num_validation_pairs: 3, "validation/loss": separate.at(-2)?.data["validation/loss"] });
});

test("compares with the base by default, with a checkpoint by its step, and with the start", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": preferenceLines(4) });
  const marginOf = async (config: object) =>
    (await finishedEvents(service, await start(service, modelId, url, { learning_rate: 0.1, ...config })))[1]?.data["rewards/chosen"];
  const loaded = () => service.engine.calls.filter((call) => call.verb === "createModel").length;
  expect(await marginOf({})).toBe(0);
  expect(await marginOf({})).not.toBe(0);
  const before = loaded();
  expect(await marginOf({ reference_step: "start" })).toBe(0);
  expect(loaded()).toBe(before);
  expect(await marginOf({ reference_step: 3 })).toBe(0);
  expect(await marginOf({ reference_step: 1 })).not.toBe(0);
  // Models loaded as reference are unloaded.
  expect(service.engine.liveModels()).toHaveLength(1);
  const missing = { model_id: modelId, training_data_url: url, config: { reference_step: 99 } };
  expect(await service.call("POST", PREFERENCE_JOBS, missing)).toMatchObject({
    status: 404,
    body: { error: { param: "config.reference_step", message: expect.stringContaining("`reference_step` is 99") } },
  });
});

test("resets the moments of another kind of job", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": preferenceLines(2) });
  const resets = () => service.engine.calls.filter((call) => call.verb === "resetOptimizer").length;
  await finishedEvents(service, await start(service, modelId, url));
  await finishedEvents(service, await start(service, modelId, url));
  expect(resets()).toBe(0);
  await finishedEvents(service, (await service.ok("POST", RL_JOBS, { model_id: modelId, trajectory_groups: [goodGroup()] })).id);
  expect(resets()).toBe(1);
  await finishedEvents(service, await start(service, modelId, url));
  expect(resets()).toBe(2);
});

const good = preferenceLines(2);
const third = (value: unknown) => ({ "train.jsonl": `${good}\n${JSON.stringify(value)}` });
const pair = { prompt: [user("q")], chosen: [assistant("a")], rejected: [assistant("b")] };

test.each([
  ["a line that is no JSON", { "train.jsonl": `${good}\n{` }, /train\.jsonl line 3: not JSON/],
  ["a chat line", third({ messages: [user("q"), assistant("a")] }), /train\.jsonl line 3: expected an object with `input`/],
  ["a missing role", third({ ...pair, rejected: [{ content: "b" }] }), /train\.jsonl line 3: `rejected\.0\.role`/],
  [
    "text without a chat template",
    third({ prompt: "q", chosen: "a", rejected: "b" }),
    /line 3: expected `chosen` to be a list of messages/,
  ],
  ["equal continuations", third({ ...pair, rejected: pair.chosen }), /line 3: expected `chosen` and `rejected` to differ/],
  [
    "a list that is too long",
    third({ ...pair, chosen: Array(4097).fill(assistant("a")) }),
    /line 3: Expected `chosen` to have at most 4096/,
  ],
  ["tools as text that is nested too deep", third({ ...pair, tools: "[".repeat(200) }), /line 3: Expected JSON nested at most 128 levels/],
  ["an empty file", { "train.jsonl": "" }, /nothing to train: the file is empty/],
  [
    "nothing that fits the context",
    { "train.jsonl": JSON.stringify({ ...pair, chosen: [assistant("x".repeat(500))] }) },
    /all of its 1 pairs are longer than the model's context of 128/,
  ],
  ["a file of another kind", { "trajectories.jsonl": good }, /either preferences\.jsonl \(with metadata\.json\) or train\.jsonl/],
  [
    "metadata that counts other pairs",
    { "preferences.jsonl": good, "metadata.json": '{"num_pairs":3}' },
    /`num_pairs` is 3, but preferences\.jsonl has 2/,
  ],
])("rejects %s with its location and creates no job", async (_, files, message) => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, files as Readonly<Record<string, string>>);
  const answer = await service.call("POST", PREFERENCE_JOBS, { model_id: modelId, training_data_url: url });
  expect(answer).toMatchObject({ status: 422, body: { error: { param: "training_data_url", message: expect.stringMatching(message) } } });
  expect(await readdir(join(service.service.dataDir, "jobs"))).toEqual([]);
});

test.each([
  [{ beta: 0 }, "config.beta"],
  [{ label_smoothing: 0.5 }, "config.label_smoothing"],
  [{ reference_step: "end" }, "config.reference_step"],
  [{ assistant_turns: "last" }, "config.assistant_turns"],
  [{ validation_every: 2 }, "config.validation_every"],
  [{ warmup_steps: 1, warmup_ratio: 0.1 }, "config.warmup_ratio"],
  [{ learning_rate: [1, 2, 3] }, "config.learning_rate"],
  [{ epochs: 1000, batch_size: 1, validation_data_url: "http://example.com/x" }, "config.validation_data_url"],
])("rejects %j by name", async (config, param) => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": good });
  const answer = await service.call("POST", PREFERENCE_JOBS, { model_id: modelId, training_data_url: url, config });
  expect(answer).toMatchObject({ status: 422, body: { error: { param } } });
});

test("an artifact cannot be deleted while a preference job reads it", async () => {
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  const service = await startTestService({ engine: { before: ({ verb }) => (verb === "optimStep" ? held : undefined) } });
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": good });
  const { data } = await service.ok("GET", ARTIFACTS);
  const id = await start(service, modelId, url);
  expect(await service.call("DELETE", `${ARTIFACTS}/${data[0].id}`)).toMatchObject({ status: 409 });
  release();
  await finishedEvents(service, id);
  await service.ok("DELETE", `${ARTIFACTS}/${data[0].id}`);
});

/** Holds a service in its third step, after the reference policy was computed; later services do not stop. */
function holding(): { readonly engine: ScriptedEngineOptions; readonly reached: Promise<void> } {
  let steps = 0;
  let reach: () => void = () => undefined;
  const reached = new Promise<void>((resolve) => (reach = resolve));
  return {
    reached,
    engine: {
      async before({ verb }, { signal }) {
        if (verb !== "optimStep" || ++steps < 3) return;
        reach();
        await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error)));
      },
    },
  };
}

test.each([
  ["reads the stored reference values", false],
  ["computes damaged reference values again", true],
])("a job that is interrupted %s, and ends as without interruption", async (_, isDamaged) => {
  onSqlite();
  const config = { batch_size: 1, learning_rate: 0.01, beta: 0.5 };
  const calm = await startTestService({ limits: { commitEverySteps: 2 } });
  const lines = { "train.jsonl": preferenceLines(5) };
  const expected = await finishedEvents(calm, await start(calm, (await createModel(calm)).id, await uploadArtifact(calm, lines), config));
  const { dataDir, start: startNext } = await restartable({ limits: { commitEverySteps: 2 } });
  const { engine, reached } = holding();
  const first = await startNext(engine);
  const id = await start(first, (await createModel(first)).id, await uploadArtifact(first, lines), config);
  await reached;
  await first.service.close({ graceMs: 0 });
  const path = join(dataDir, "jobs", id, "reference-logprobs.bin");
  if (isDamaged) {
    const bytes = await readFile(path);
    bytes.writeUInt8(bytes.readUInt8(40) ^ 1, 40);
    await writeFile(path, bytes);
  }
  const found = await verifyDataDirectory(dataDir);
  expect({ ...found, damaged: found.damaged.map(({ path: damaged }) => damaged) }).toMatchObject({
    missing: [],
    unreferenced: [],
    damaged: isDamaged ? [`jobs/${id}/reference-logprobs.bin`] : [],
  });
  const second = await startNext();
  const timeless = (events: readonly { readonly type: string; readonly data: object }[]) =>
    events.map(({ type, data }) => [type, { ...data, tokens_per_second: null }]);
  expect(timeless(await finishedEvents(second, id))).toEqual(timeless(expected));
  // The progress is loaded, and only for damaged values a second model, the reference.
  expect(second.engine.calls.filter((call) => call.verb === "createModel")).toHaveLength(isDamaged ? 2 : 1);
  expect(await readdir(join(dataDir, "jobs"))).toEqual([]);
});

test("reports its start before it computes the reference, and can be cancelled meanwhile", async () => {
  let reach: () => void = () => undefined;
  const reached = new Promise<void>((resolve) => (reach = resolve));
  const service = await startTestService({
    engine: {
      async before({ verb }, { signal }) {
        if (verb !== "forward") return;
        reach();
        await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error)));
      },
    },
  });
  const { id: modelId } = await createModel(service);
  const id = await start(service, modelId, await uploadArtifact(service, { "train.jsonl": good }));
  await reached;
  expect((await service.ok("GET", `${RL_JOBS}/${id}/events`)).data).toMatchObject([{ type: "training_started" }]);
  await service.ok("POST", `${RL_JOBS}/${id}/cancel`);
  expect((await finishedEvents(service, id)).at(-1)?.data).toMatchObject({ cancelled: true });
});

test("reads large data on a work thread to the same rows", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const lines = preferenceLines(900);
  expect(lines.length).toBeGreaterThan(128 * 1024);
  const large = await uploadArtifact(service, { "train.jsonl": lines }, "large");
  const small = await uploadArtifact(service, { "train.jsonl": preferenceLines(3) }, "small");
  await finishedEvents(service, await start(service, modelId, large, { batch_size: 900 }));
  await finishedEvents(service, await start(service, modelId, small, { reference_step: "start" }));
  const [first, second] = rowsOf(service, "forwardBackward");
  expect(first).toHaveLength(1800);
  const texts = (rows: readonly Row[]) => rows.map(({ tokens, weights }) => [[...tokens], [...weights].map(Math.sign)]);
  expect(texts(first!.slice(0, 6))).toEqual(texts(second!));
});

test("a cancelled job leaves no checkpoint and no files", async () => {
  const { engine, reached } = holding();
  const service = await startTestService({ engine });
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": preferenceLines(5) });
  const id = await start(service, modelId, url, { batch_size: 1 });
  await reached;
  await service.ok("POST", `${RL_JOBS}/${id}/cancel`);
  expect((await finishedEvents(service, id)).at(-1)?.data).toMatchObject({ cancelled: true });
  expect(await readdir(join(service.service.dataDir, "jobs"))).toEqual([]);
  expect((await service.ok("GET", `${MODELS}/${modelId}/checkpoints`)).data).toHaveLength(1);
});
