import { expect, test } from "vitest";
import { chatLines, finishedEvents, RL_JOBS, SFT_JOBS, startTestService } from "../support.ts";
import { clientOf, createJob, eventsOf, finished, supervised, upload } from "./support.ts";

test("trains a model whose name, checkpoints and result file the client reads", async () => {
  const service = await startTestService();
  const client = clientOf(service);
  const validation = await upload(client, chatLines(2));
  const created = await createJob(client, {
    validation_file: validation,
    suffix: "demo",
    seed: 5,
    metadata: { purpose: "test" },
    method: supervised({ batch_size: 2, n_epochs: 4, learning_rate_multiplier: 2 }),
  });
  expect(created).toMatchObject({
    object: "fine_tuning.job",
    model: "tiny",
    seed: 5,
    fine_tuned_model: null,
    result_files: [],
    error: null,
  });
  const job = await finished(client, created.id);
  const name = job.fine_tuned_model!;
  expect(name).toMatch(/^ft:tiny:local:demo:[0-9a-f]{12}$/u);
  expect(job).toMatchObject({
    status: "succeeded",
    hyperparameters: { batch_size: 2, n_epochs: 4, learning_rate_multiplier: 2 },
    metadata: { purpose: "test" },
    validation_file: validation,
    error: null,
  });
  expect(job.trained_tokens).toBeGreaterThan(0);
  expect(job.finished_at).toBeGreaterThanOrEqual(job.created_at);

  const { data: checkpoints } = await client.fineTuning.jobs.checkpoints.list(job.id);
  expect(checkpoints.map((checkpoint) => checkpoint.fine_tuned_model_checkpoint)).toEqual(
    [8, 6, 4].map((step) => `${name}:ckpt-step-${step}`),
  );
  expect(checkpoints.map(({ metrics, step_number: step }) => [step, metrics.step])).toEqual([8, 6, 4].map((step) => [step, step]));
  for (const { metrics } of checkpoints)
    expect(metrics).toMatchObject({ full_valid_mean_token_accuracy: 1, train_loss: expect.any(Number), valid_loss: expect.any(Number) });

  const csv = await (await client.files.content(job.result_files[0]!)).text();
  const rows = csv.trim().split("\n");
  expect(rows[0]).toBe("step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy");
  expect(rows.slice(1).map((row) => row.split(",")[0])).toEqual(["1", "2", "3", "4", "5", "6", "7", "8"]);
  expect(rows.at(-1)).toMatch(/^8,[\d.]+,,[\d.]+,1$/u);
  expect(await client.files.retrieve(job.result_files[0]!)).toMatchObject({ purpose: "fine-tune-results", filename: "step_metrics.csv" });

  const ids = (await client.models.list()).data.map((model) => model.id);
  expect(ids).toEqual(expect.arrayContaining([name, ...checkpoints.map((checkpoint) => checkpoint.fine_tuned_model_checkpoint)]));
});

test("reports progress as events, newest first", async () => {
  const service = await startTestService();
  const client = clientOf(service);
  const { id } = await createJob(client, { method: supervised({ batch_size: 4, n_epochs: 2 }) });
  await finished(client, id);
  const events = await eventsOf(client, id);
  expect(events.map(({ message }) => message.replace(/=[\d.]+/u, "=…"))).toEqual([
    `Created fine-tuning job: ${id}`,
    "Fine-tuning job started",
    "Step 1/2: training loss=…",
    expect.stringMatching(/^Checkpoint created at step 1: ft:/u),
    "Step 2/2: training loss=…",
    expect.stringMatching(/^New fine-tuned model created: ft:/u),
    "The job has successfully completed",
  ]);
  expect(events.filter(({ type }) => type === "metrics").map(({ data }) => data)).toEqual([
    expect.objectContaining({ step: 1, total_steps: 2, train_loss: expect.any(Number) }),
    expect.objectContaining({ step: 2, total_steps: 2, train_loss: expect.any(Number) }),
  ]);
  expect(new Set(events.map((event) => event.level))).toEqual(new Set(["info"]));
});

test("is a job and a model of the service's own interface, whose later jobs do not change the fine-tuned name", async () => {
  const service = await startTestService();
  const client = clientOf(service);
  const { id } = await createJob(client, { method: supervised({ n_epochs: 1, batch_size: 1 }) });
  const job = (await finished(client, id)) as Awaited<ReturnType<typeof finished>> & { readonly training_job_id: string };
  const model = job.fine_tuned_model!;
  const events = await finishedEvents(service, job.training_job_id);
  expect(events.map(({ type }) => type)).toEqual(["training_started", ...Array(4).fill("gradient_step"), "training_ended"]);
  const own = await service.ok("GET", `${RL_JOBS}/${job.training_job_id}`);
  expect(own).toMatchObject({ type: "sft", status: "succeeded", step: 1 });
  const { root } = (await service.ok("GET", "/v1/models")).data.find((each: { id: string }) => each.id === model);
  expect(root).toMatch(/^local\/fine-tuning\/[0-9a-f]{12}:step1$/u);

  const [artifact] = (await service.ok("GET", "/v1/preview/artifacts?project=files")).data.filter(
    ({ name }: { name: string }) => name === job.training_file,
  );
  const next = await service.ok("POST", SFT_JOBS, { model_id: own.model_id, training_data_url: artifact.url });
  await finishedEvents(service, next.id);
  const { data } = await service.ok("GET", "/v1/models");
  expect(data.find((each: { id: string }) => each.id === model).root).toBe(root);
  expect(data.find((each: { id: string }) => each.id === root.split(":")[0]).root).toMatch(/:step2$/u);

  // Without its training job there is no fine-tuning job; the model and the result file stay.
  await service.ok("DELETE", `${RL_JOBS}/${job.training_job_id}`);
  await expect(client.fineTuning.jobs.retrieve(id)).rejects.toMatchObject({ status: 404 });
  expect((await client.fineTuning.jobs.list()).data).toEqual([]);
  expect(await client.models.retrieve(model)).toMatchObject({ id: model });
  await client.files.retrieve(job.result_files[0]!);
});

test("creates a job once for an idempotency key", async () => {
  const client = clientOf(await startTestService());
  const training_file = await upload(client);
  const options = { headers: { "Idempotency-Key": "once" } };
  const create = () => client.fineTuning.jobs.create({ model: "tiny", training_file }, options);
  expect((await create()).id).toBe((await create()).id);
  expect((await client.fineTuning.jobs.list()).data).toHaveLength(1);
});

test("reports examples that are longer than the context as a warning", async () => {
  const client = clientOf(await startTestService());
  const long = JSON.stringify({
    messages: [
      { role: "user", content: "word ".repeat(500) },
      { role: "assistant", content: "a" },
    ],
  });
  const job = await client.fineTuning.jobs.create({ model: "tiny", training_file: await upload(client, `${chatLines(2)}\n${long}`) });
  await finished(client, job.id);
  expect((await eventsOf(client, job.id)).filter(({ level }) => level === "warn").map(({ message }) => message)).toEqual([
    "Examples that are longer than the model's context are not trained: 1",
  ]);
});
