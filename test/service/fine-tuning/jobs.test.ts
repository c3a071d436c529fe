import OpenAI from "openai";
import { expect, test } from "vitest";
import { chatLines, CONTEXT, createModel, finishedEvents, RL_JOBS, startTestService, temporaryDirectory } from "../support.ts";
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
void [OpenAI, CONTEXT, createModel, finishedEvents, RL_JOBS, temporaryDirectory];
