import { expect, test } from "vitest";
import type { Row } from "../../src/engine/port.ts";
import { chatExamples, chatLines, createModel, finishedEvents, MODELS, SFT_JOBS, startTestService, uploadArtifact } from "./support.ts";

type Service = Awaited<ReturnType<typeof startTestService>>;

async function start(service: Service, modelId: string, url: string, config: object, experimental: object): Promise<string> {
  const body = { model_id: modelId, training_data_url: url, config, experimental_config: experimental };
  return (await service.ok("POST", SFT_JOBS, body)).id;
}

const rowsOf = (service: Service, verb: "forward" | "forwardBackward") =>
  service.engine.calls
    .filter((call) => call.verb === verb)
    .map((call) => (verb === "forward" ? (call.detail as Row[]) : (call.detail as { rows: Row[] }).rows));

test("validates held-out examples after each epoch without training or counting them", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(10) });
  const id = await start(service, modelId, url, { batch_size: 4 }, { epochs: 2, validation_split: 0.2 });
  const [started, ...steps] = (await finishedEvents(service, id)).slice(0, -1);
  expect(started?.data).toMatchObject({ num_sequences: 4, num_validation_trajectories: 2 });
  expect(steps.map(({ data }) => "validation/loss" in data)).toEqual([false, true, false, true]);
  expect(steps.map(({ data }) => data.num_trajectories)).toEqual([4, 4, 4, 4]);
  const measured = rowsOf(service, "forward");
  // The check of the trained model, on one row, follows the last step.
  expect(measured.map((rows) => rows.length)).toEqual([2, 1, 2]);
  const texts = (rows: readonly Row[]) => rows.map(({ tokens }) => String([...tokens]));
  const trained = new Set(rowsOf(service, "forwardBackward").flatMap(texts));
  expect(trained.size).toBe(8);
  expect(texts(measured[0]!).filter((text) => trained.has(text))).toEqual([]);
  // The scripted engine gives every token the same log-probability, so the mean is known.
  expect(steps[3]?.data["validation/loss"]).toBeGreaterThan(0);
  const { data } = await service.ok("GET", `${MODELS}/${modelId}/checkpoints`);
  expect(data[1].metrics).toMatchObject({
    num_trajectories: 16,
    num_validation_trajectories: 2,
    "validation/loss": steps[3]?.data["validation/loss"],
  });
});

test("validates with a separate artifact every so many steps and at the end", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(5) });
  const validation = await uploadArtifact(service, { "trajectories.jsonl": chatLines(3) }, "other");
  const id = await start(service, modelId, url, { batch_size: 1 }, { validation_data_url: validation, validation_every: 2 });
  const steps = (await finishedEvents(service, id)).slice(1, -1);
  expect(steps.map(({ data }) => "validation/loss" in data)).toEqual([false, true, false, true, true]);
  expect(rowsOf(service, "forward").map((rows) => rows.length)).toEqual([3, 3, 1, 3]);
});

test("checks validation data like training data", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(2) });
  const bad = await uploadArtifact(service, { "train.jsonl": `${chatLines(1)}\n{"text": 1}` }, "bad");
  const param = "experimental_config.validation_data_url";
  for (const [validation_data_url, status] of [
    [bad, 422],
    ["artifact:///local/demo/nothing:v0", 404],
    ["http://example.com/x", 422],
  ] as const) {
    const body = { model_id: modelId, training_data_url: url, experimental_config: { validation_data_url } };
    expect(await service.call("POST", SFT_JOBS, body)).toMatchObject({ status, body: { error: { param } } });
  }
  const alone = { model_id: modelId, training_data_url: await uploadArtifact(service, { "train.jsonl": chatLines(1) }, "one") };
  expect(await service.call("POST", SFT_JOBS, { ...alone, experimental_config: { validation_split: 0.5 } })).toMatchObject({
    status: 422,
    body: { error: { param: "experimental_config.validation_split" } },
  });
});

test("rejects more steps than the maximum at creation", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(1001) });
  const settings = { config: { batch_size: 1 }, experimental_config: { epochs: 1000 } };
  expect(await service.call("POST", SFT_JOBS, { model_id: modelId, training_data_url: url, ...settings })).toMatchObject({
    status: 422,
    body: {
      error: { param: "experimental_config.epochs", message: expect.stringContaining("at most 1000000 optimizer steps, got 1001000") },
    },
  });
});

test("learning rates follow the schedule", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(5) });
  const schedule = { learning_rate_schedule: "cosine", warmup_ratio: 0.2, min_learning_rate: 0.1 };
  const id = await start(service, modelId, url, { batch_size: 1, learning_rate: 1 }, schedule);
  const steps = (await finishedEvents(service, id)).slice(1, -1);
  const rates = [1, 1, 0.1 + 0.45 * 1.5, 0.1 + 0.45 * 0.5, 0.1].map((rate) => expect.closeTo(rate, 12));
  expect(steps.map(({ data }) => data.learning_rate)).toEqual(rates);
});

test("applies example weights and `assistant_turns`, and counts dropped lines", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const [first, second] = chatExamples(2);
  const lines = [
    { ...first, weight: 3 },
    { messages: [...second!.messages, ...second!.messages] },
    {
      messages: [
        { role: "user", content: "x".repeat(500) },
        { role: "assistant", content: "y" },
      ],
    },
  ];
  const url = await uploadArtifact(service, { "train.jsonl": lines.map((line) => JSON.stringify(line)).join("\n") });
  const id = await start(service, modelId, url, { assistant_turns: "last" }, {});
  const [started] = await finishedEvents(service, id);
  expect(started?.data).toMatchObject({ num_sequences: 1, num_dropped_trajectories: 1, num_dropped_sequences: 1, num_dropped_tokens: 2 });
  const [[heavy, light]] = rowsOf(service, "forwardBackward") as [[Row, Row]];
  const trained = ({ weights }: Row) => [...weights].filter((weight) => weight !== 0);
  expect(trained(heavy)).toHaveLength(trained(light).length);
  expect(trained(heavy)[0]).toBeCloseTo(3 * trained(light)[0]!, 6);
  expect([...heavy.weights, ...light.weights].reduce((sum, weight) => sum + weight, 0)).toBeCloseTo(1, 6);
});
