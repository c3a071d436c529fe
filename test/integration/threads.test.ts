import { availableParallelism } from "node:os";
import { expect, onTestFinished, test } from "vitest";
import { threadCandidates } from "../../src/engine/onnx/train/thread-choice.ts";
import { startService } from "../../src/service/index.ts";
import { BASE, finishedEvents, MODELS, RL_JOBS, rollOut, send, SFT_JOBS, temporaryDirectory, uploadExamples } from "./support.ts";

/** Returns the thread counts that gradient steps report, of an SFT job and of an RL job. */
async function reported(options: { readonly trainerThreads?: number }): Promise<Record<string, number>[]> {
  const service = await startService({ dataDir: await temporaryDirectory(), ...options });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const { id, entity } = await send(service, "POST", MODELS, { project: "demo", name: "threads", base_model: BASE, lora: { rank: 4 } });
  const sft = { model_id: id, training_data_url: await uploadExamples(service, 8), config: { batch_size: 2 } };
  const jobs = [(await send(service, "POST", SFT_JOBS, sft)).id];
  await finishedEvents(service, jobs[0]);
  const groups = [await rollOut(service, "Say one word.", { model: `${entity}/demo/threads:step1` })];
  jobs.push((await send(service, "POST", RL_JOBS, { model_id: id, trajectory_groups: groups })).id);
  const events = (await Promise.all(jobs.map((job) => finishedEvents(service, job)))).flat();
  return events.filter(({ type }) => type === "gradient_step").map(({ data }) => data as Record<string, number>);
}

const engineKeys = (step: object) => Object.keys(step).filter((key) => key.startsWith("engine/"));

test("every gradient step reports the trainer's thread count, one of the candidates", async () => {
  const steps = await reported({});
  expect(steps.length).toBeGreaterThan(1);
  for (const step of steps) {
    expect(threadCandidates(availableParallelism())).toContain(step["engine/threads"]);
    for (const key of engineKeys(step)) expect(key).toMatch(/^engine\/threads(_\d+_tokens_per_second)?$/u);
  }
});

test("a given thread count is reported without measurements", async () => {
  for (const step of await reported({ trainerThreads: 1 })) {
    expect(engineKeys(step)).toEqual(["engine/threads"]);
    expect(step["engine/threads"]).toBe(1);
  }
});
