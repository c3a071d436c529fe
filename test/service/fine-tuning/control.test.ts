import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import type OpenAI from "openai";
import { expect, onTestFinished, test, vi } from "vitest";
import { deferred } from "../../../src/base/util/deferred.ts";
import { missingPostgres, queryTestStore, temporarySchema } from "../../support/postgres.ts";
import type { ScriptedEngineOptions } from "../../../src/testing/index.ts";
import { chatLines, restartable, RL_JOBS, startTestService, temporaryDirectory, type TestService, statePath } from "../support.ts";
import { clientOf, createJob, eventsOf, finished, supervised, upload } from "./support.ts";

/** An engine whose optimizer step stops at these numbers until `release`. */
function holds(...numbers: readonly number[]) {
  let count = 0;
  const waiting = new Map(numbers.map((number) => [number, deferred<void>()] as const));
  const reached = new Map(numbers.map((number) => [number, deferred<void>()] as const));
  const engine: ScriptedEngineOptions = {
    async before({ verb }, { signal }) {
      if (verb !== "optimStep") return;
      const number = ++count;
      reached.get(number)?.resolve(undefined);
      const stopped = new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true }));
      await Promise.race([waiting.get(number)?.promise, stopped.catch((error: unknown) => Promise.reject(error as Error))]);
    },
  };
  return {
    engine,
    reached: (number: number) => reached.get(number)!.promise,
    release: (number: number) => waiting.get(number)!.resolve(undefined),
  };
}

/** Weights of the final checkpoint of a job, byte for byte. */
async function weights({ ok, service }: TestService, trainingJobId: string): Promise<string> {
  const { model_id: modelId, step } = await ok("GET", `${RL_JOBS}/${trainingJobId}`);
  return (await readFile(join(statePath(service.dataDir, modelId, step), "model.safetensors"))).toString("hex");
}

/** Number of paused jobs in the database. */
async function pausedJobs({ service: { dataDir } }: TestService): Promise<number> {
  return (await queryTestStore(dataDir, "SELECT id FROM jobs WHERE is_paused = 1")).length;
}

const settings = { seed: 3, method: supervised({ batch_size: 1, n_epochs: 2 }), examples: 4 } as const;
const trainingJobOf = (job: object) => (job as { training_job_id: string }).training_job_id;

test("a paused job stops after its current step, stays paused over a restart, and ends with the same weights", async () => {
  const undisturbed = await startTestService();
  const expected = await finished(clientOf(undisturbed), (await createJob(clientOf(undisturbed), settings)).id);

  const { start } = await restartable();
  const { engine, reached, release } = holds(3);
  const first = await start(engine);
  const client = clientOf(first);
  const { id } = await createJob(client, settings);
  await reached(3);
  const pausing = client.fineTuning.jobs.pause(id);
  await expect.poll(() => pausedJobs(first)).toBe(1);
  release(3);
  const paused = await pausing;
  expect(paused).toMatchObject({ id, status: "queued", fine_tuned_model: null });
  expect(await first.ok("GET", `${RL_JOBS}/${trainingJobOf(paused)}`)).toMatchObject({ type: "sft", status: "queued", paused: true });
  expect((await eventsOf(client, id)).at(-1)).toMatchObject({ message: "The job is paused after step 3", data: { step: 3 } });
  // A paused job does not block the queue.
  await finished(client, (await createJob(client, settings)).id);
  expect(await client.fineTuning.jobs.retrieve(id)).toMatchObject({ status: "queued" });
  await first.service.close({ graceMs: 0 });

  const second = await start();
  const after = clientOf(second);
  await finished(after, (await createJob(after, settings)).id);
  expect(await after.fineTuning.jobs.pause(id)).toMatchObject({ status: "queued" });
  await after.fineTuning.jobs.resume(id);
  const job = await finished(after, id);
  expect(job).toMatchObject({ status: "succeeded", trained_tokens: expected.trained_tokens });
  expect(await weights(second, trainingJobOf(job))).toBe(await weights(undisturbed, trainingJobOf(expected)));
  expect(await second.ok("GET", `${RL_JOBS}/${trainingJobOf(job)}`)).not.toHaveProperty("paused");
  const messages = (await eventsOf(after, id)).map(({ message }) => message.split(":")[0]);
  expect(messages.filter((message) => message!.startsWith("Step"))).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map((step) => `Step ${step}/8`));
  expect(messages).toContain("The job is resumed");
  const contents = async (service: OpenAI, file: string) => (await service.files.content(file)).text();
  expect(await contents(after, job.result_files[0]!)).toBe(await contents(clientOf(undisturbed), expected.result_files[0]!));
});

test("a job that is paused before it starts waits; resumed in time, a running job goes on", async () => {
  const { engine, reached, release } = holds(1, 9);
  const service = await startTestService({ engine });
  const client = clientOf(service);
  const [running, waiting] = [await createJob(client, settings), await createJob(client, settings)];
  await reached(1);
  await client.fineTuning.jobs.pause(waiting.id);
  const pausing = client.fineTuning.jobs.pause(running.id);
  await expect.poll(() => pausedJobs(service)).toBe(2);
  await expect.poll(async () => (await client.fineTuning.jobs.resume(running.id)).status).toBe("running");
  release(1);
  await pausing;
  await finished(client, running.id);
  expect((await client.fineTuning.jobs.retrieve(waiting.id)).status).toBe("queued");
  await client.fineTuning.jobs.resume(waiting.id);
  await reached(9);
  const cancelling = client.fineTuning.jobs.cancel(waiting.id);
  expect(await cancelling).toMatchObject({ status: "cancelled", fine_tuned_model: null, result_files: [], trained_tokens: null });
});

test("a cancelled job keeps its checkpoints; jobs that are over cannot be paused, resumed or cancelled", async () => {
  const { engine, reached } = holds(6);
  const service = await startTestService({ engine });
  const client = clientOf(service);
  const { id } = await createJob(client, settings);
  await reached(6);
  expect(await client.fineTuning.jobs.retrieve(id)).toMatchObject({ status: "running", estimated_finish: expect.any(Number) });
  await expect(client.files.delete((await client.fineTuning.jobs.retrieve(id)).training_file)).rejects.toMatchObject({
    status: 400,
    param: "file_id",
    message: expect.stringMatching(/File 'file-\w+' cannot be deleted/u),
  });
  const job = await client.fineTuning.jobs.cancel(id);
  expect(job).toMatchObject({ status: "cancelled", error: null, estimated_finish: null });
  expect(await client.fineTuning.jobs.cancel(id)).toEqual(job);
  for (const verb of ["pause", "resume"] as const)
    await expect(client.fineTuning.jobs[verb](id)).rejects.toMatchObject({
      status: 400,
      param: "fine_tuning_job_id",
      message: expect.stringContaining(`Fine-tuning job '${id}' is cancelled`),
    });
  const levels = new Set((await eventsOf(client, id)).map(({ level }) => level));
  expect(levels).toEqual(new Set(["info"]));
  const { data } = await client.fineTuning.jobs.checkpoints.list(id);
  expect(data.map((checkpoint) => checkpoint.step_number)).toEqual([4]);
  const model = data[0]!.fine_tuned_model_checkpoint;
  const answer = await client.chat.completions.create({ model, messages: [{ role: "user", content: "hello" }] });
  expect(answer.model).toBe(model);
  const paused = await createJob(client, settings);
  await client.fineTuning.jobs.pause(paused.id);
  expect(await client.fineTuning.jobs.cancel(paused.id)).toMatchObject({ status: "cancelled" });
});

test("the estimated end of a job is not in the past, also if its steps have been interrupted", async () => {
  const { engine, reached } = holds(6);
  const client = clientOf(await startTestService({ engine }));
  const { id } = await createJob(client, settings);
  await reached(6);
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 3_600_000 });
  onTestFinished(() => void vi.useRealTimers());
  const { estimated_finish: end } = await client.fineTuning.jobs.retrieve(id);
  expect(end).toBeGreaterThanOrEqual(Math.floor(Date.now() / 1000));
  await client.fineTuning.jobs.cancel(id);
});

test("a job that fails has an error, and its training job the same", async () => {
  const service = await startTestService({
    engine: {
      before: ({ verb }) => (verb === "optimStep" ? Promise.reject(new Error("no such kernel")) : Promise.resolve()),
    },
  });
  const client = clientOf(service);
  const { id } = await createJob(client, settings);
  const job = await finished(client, id);
  expect(job).toMatchObject({
    status: "failed",
    fine_tuned_model: null,
    error: { code: "training_failed", message: "no such kernel", param: null },
  });
  expect((await eventsOf(client, id)).at(-1)).toMatchObject({ level: "error", message: "no such kernel" });
  expect(await service.ok("GET", `${RL_JOBS}/${trainingJobOf(job)}`)).toMatchObject({ type: "sft", status: "failed" });
});

test("lists jobs newest first, by cursor and by metadata", async () => {
  const client = clientOf(await startTestService());
  const ids: string[] = [];
  const file = await upload(client, chatLines(2));
  for (const metadata of [{ team: "a", run: "1" }, { team: "a" }, null, { team: "b" }])
    ids.unshift((await client.fineTuning.jobs.create({ model: "tiny", training_file: file, metadata })).id);
  const all = async (query: OpenAI.FineTuning.JobListParams) => {
    const found: string[] = [];
    for await (const job of client.fineTuning.jobs.list(query)) found.push(job.id);
    return found;
  };
  expect(await all({ limit: 3 })).toEqual(ids);
  expect(await all({ metadata: { team: "a" }, limit: 1 })).toEqual([ids[2], ids[3]]);
  expect(await all({ metadata: { team: "a", run: "1" } })).toEqual([ids[3]]);
  expect(await all({ metadata: { "no such": "x'y" } })).toEqual([]);
  expect(await all({ metadata: null })).toEqual([ids[1]]);
  await expect(client.fineTuning.jobs.list({ after: "ftjob-none" })).rejects.toMatchObject({ status: 400, param: "after" });
});

test.skipIf(missingPostgres !== null)(
  `a job fails with the reason if another process removes the contents of its result file${missingPostgres === null ? "" : `: ${missingPostgres}`}`,
  async () => {
    const dataDir = await temporaryDirectory();
    const blobs = join(dataDir, "artifacts", "blobs");
    const removeResults = async () => {
      for (const entry of await readdir(blobs, { recursive: true, withFileTypes: true })) {
        const path = join(entry.parentPath, entry.name);
        if (entry.isFile() && (await readFile(path, "utf8")).startsWith("step,")) await rm(path);
      }
    };
    const before: ScriptedEngineOptions["before"] = async ({ verb }) => (verb === "saveState" ? removeResults() : undefined);
    const service = await startTestService({ dataDir, database: temporarySchema(), engine: { before } });
    const job = await finished(clientOf(service), (await createJob(clientOf(service), settings)).id);
    expect(job).toMatchObject({ status: "failed", result_files: [] });
    expect(job.error!.message).toContain("The file with the metrics of the job's steps was deleted through another process");
    expect(service.log).not.toContainEqual(expect.objectContaining({ message: expect.stringContaining("trainer died") }));
  },
);
