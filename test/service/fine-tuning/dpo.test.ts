import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import OpenAI from "openai";
import { expect, test } from "vitest";
import { restartable, RL_JOBS, startTestService } from "../support.ts";
import { clientOf, dpo, eventsOf, finished, pairs, upload } from "./support.ts";

test("a job of the method dpo trains a preference job, and its model and checkpoints are sampled", async () => {
  const test = await startTestService();
  const client = clientOf(test);
  const training_file = await upload(client, pairs(4));
  const validation_file = await upload(client, pairs(2), "valid.jsonl");
  const method = dpo({ n_epochs: 2, batch_size: 2, beta: 0.3, learning_rate_multiplier: 2 });
  const created = await client.fineTuning.jobs.create({ model: "tiny", training_file, validation_file, method, seed: 5 });
  const resolved = { n_epochs: 2, batch_size: 2, beta: 0.3, learning_rate_multiplier: 2 };
  expect(created.method).toEqual({ type: "dpo", dpo: { hyperparameters: resolved } });
  const job = await finished(client, created.id);
  expect(job).toMatchObject({ status: "succeeded", trained_tokens: expect.any(Number), result_files: [expect.any(String)] });
  const { training_job_id: trainingJob } = job as unknown as { readonly training_job_id: string };
  expect(await test.ok("GET", `${RL_JOBS}/${trainingJob}`)).toMatchObject({ type: "preference", status: "succeeded" });

  const steps = (await eventsOf(client, job.id)).filter(({ type }) => type === "metrics");
  expect(steps.map(({ data }) => (data as { readonly step: number }).step)).toEqual([1, 2, 3, 4]);
  expect(steps[0]!.data).toMatchObject({ train_loss: expect.closeTo(Math.log(2), 6), reward_accuracy: 0, reward_margin: 0 });
  const { data: checkpoints } = await client.fineTuning.jobs.checkpoints.list(job.id);
  expect(checkpoints.map(({ step_number }) => step_number)).toEqual([4, 2]);
  expect(checkpoints[0]!.metrics).toMatchObject({ step: 4, train_loss: expect.any(Number), valid_loss: expect.any(Number) });
  for (const model of [job.fine_tuned_model!, checkpoints[1]!.fine_tuned_model_checkpoint]) {
    const completion = await client.chat.completions.create({ model, messages: [{ role: "user", content: "question" }] });
    expect(completion.model).toBe(model);
  }
});

test("hyperparameters of dpo are chosen by the rules of supervised jobs, and beta is 0.1", async () => {
  const client = clientOf(await startTestService());
  const training_file = await upload(client, pairs(50));
  for (const method of [{ type: "dpo" as const }, dpo({ beta: "auto" })]) {
    const job = await client.fineTuning.jobs.create({ model: "tiny", training_file, method });
    expect(job.method!.dpo!.hyperparameters).toEqual({ n_epochs: 3, batch_size: 1, learning_rate_multiplier: 1, beta: 0.1 });
    await client.fineTuning.jobs.cancel(job.id);
  }
});

test("pairs that cannot be trained are rejected with line and field, and nothing is created", async () => {
  const client = clientOf(await startTestService());
  const create = async (lines: string, more: object = {}) =>
    client.fineTuning.jobs.create({ model: "tiny", training_file: await upload(client, lines), method: { type: "dpo" }, ...more });
  const withoutAnswer = pairs(3, (index) => (index === 2 ? { preferred_output: [] } : {}));
  await expect(create(withoutAnswer)).rejects.toMatchObject({
    status: 400,
    param: "training_file",
    message: expect.stringMatching(/line 3: `preferred_output/u),
  });
  await expect(create(pairs(2), { method: dpo({ beta: 0 }) })).rejects.toBeInstanceOf(OpenAI.BadRequestError);
  await expect(create(pairs(2), { hyperparameters: { n_epochs: 1 } })).rejects.toMatchObject({ status: 400, param: "hyperparameters" });
  await expect(create(pairs(2), { method: { type: "dpo", supervised: {} } })).rejects.toMatchObject({ param: "method.supervised" });
  expect((await client.fineTuning.jobs.list()).data).toEqual([]);
});

test("a job that is interrupted after a checkpoint, and whose reference values are damaged, measures them from its start again", async () => {
  const create = async (client: OpenAI) => {
    const method = dpo({ batch_size: 1, n_epochs: 3, learning_rate_multiplier: 10 });
    return client.fineTuning.jobs.create({ model: "tiny", seed: 9, training_file: await upload(client, pairs(2)), method });
  };
  const csv = async (client: OpenAI, id: string) => (await client.files.content((await finished(client, id)).result_files[0]!)).text();
  const undisturbed = clientOf(await startTestService());
  const expected = await csv(undisturbed, (await create(undisturbed)).id);

  const { dataDir, start } = await restartable();
  let steps = 0;
  const untilAborted = (signal?: AbortSignal) =>
    new Promise<void>((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error)));
  const before = await start({
    before: ({ verb }, { signal }) => (verb === "optimStep" && ++steps === 4 ? untilAborted(signal) : undefined),
  });
  const { id, ...job } = await create(clientOf(before));
  await expect.poll(() => steps).toBe(4);
  await before.service.close({ graceMs: 0 });
  const { training_job_id: trainingJob } = job as unknown as { readonly training_job_id: string };
  await writeFile(join(dataDir, "jobs", trainingJob, "reference-logprobs.bin"), "damaged");
  expect(await csv(clientOf(await start()), id)).toBe(expected);
});
