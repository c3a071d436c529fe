import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import {
  type Address,
  ARTIFACTS,
  BASE,
  eventsSoFar,
  finishedEvents,
  type JobEvent,
  MODELS,
  RL_JOBS,
  rollOut,
  send,
  SFT_JOBS,
  startProcess,
  temporaryDirectory,
  uploadExamples,
} from "./support.ts";

const STEPS = 20;
const BATCH = 16;
/**
 * When the process is killed: so many ms after so many optimizer steps of the SFT job are known, or after the RL job is running.
 * Progress is committed every fourth step, so kills land before, on and after commits, once right after a start, and into the RL job.
 */
const KILLS: readonly { readonly sftSteps?: number; readonly delayMs: number }[] = [
  { sftSteps: 1, delayMs: 0 },
  { sftSteps: 7, delayMs: 35 },
  { sftSteps: 0, delayMs: 0 },
  { sftSteps: 12, delayMs: 10 },
  { delayMs: 5 },
  { delayMs: 150 },
];

/** What was asked of a service before anything went wrong. */
interface Work {
  readonly modelId: string;
  readonly sft: string;
  readonly rl: string;
}

/** A model, an SFT job of many steps and an RL job of one long step behind it. */
async function begin(service: Address, groups: readonly object[]): Promise<Work> {
  const { id: modelId } = await send(service, "POST", MODELS, { project: "demo", name: "killed", base_model: BASE });
  const sft = await send(service, "POST", SFT_JOBS, {
    model_id: modelId,
    training_data_url: await uploadExamples(service, STEPS * BATCH),
    config: { batch_size: BATCH, learning_rate: 1e-3 },
    experimental_config: { shuffle_seed: 3 },
  });
  return { modelId, sft: sft.id, rl: await postRl(service, modelId, groups) };
}

async function postRl(service: Address, modelId: string, groups: readonly object[]): Promise<string> {
  return (
    await send(service, "POST", RL_JOBS, { model_id: modelId, trajectory_groups: groups, experimental_config: { learning_rate: 1e-3 } })
  ).id;
}

function weights(dataDir: string, modelId: string, step: number): Promise<Buffer> {
  return readFile(join(dataDir, "checkpoints", modelId, String(step), "model.safetensors"));
}

/** Waits until it is time for a kill. */
async function untilDue(service: Address, { sft, rl }: Work, { sftSteps, delayMs }: (typeof KILLS)[number]): Promise<void> {
  const isDue = async () =>
    sftSteps === undefined
      ? (await statusOf(service, rl)) !== "queued"
      : (await eventsSoFar(service, sft)).filter((event) => event.type === "gradient_step").length >= sftSteps;
  while (!(await isDue())) await sleep(10);
  await sleep(delayMs);
}

async function statusOf(service: Address, jobId: string): Promise<string> {
  return (await send(service, "GET", `${RL_JOBS}/${jobId}`)).status;
}

/** Everything of an event but its identity and the clock. */
const content = (events: readonly JobEvent[]) => events.map(({ type, data }) => [type, { ...data, tokens_per_second: 0 }]);

test("a service that is killed again and again ends its jobs with the weights of one that never was", { timeout: 120_000 }, async () => {
  const calmDir = await temporaryDirectory();
  const calm = await startProcess(calmDir);
  // Long, so that the RL job's one step is long enough to be hit.
  const prompts = Array.from(
    { length: 16 },
    (_, index) => `Write about the number ${index}. ${"Take your time and use short words. ".repeat(6)}`,
  );
  const groups = await Promise.all(prompts.map((prompt) => rollOut(calm, prompt, { n: 8 })));
  const expected = await begin(calm, groups);
  const expectedEvents = [await finishedEvents(calm, expected.sft), await finishedEvents(calm, expected.rl)];
  await calm.kill();

  const dataDir = await temporaryDirectory();
  let service = await startProcess(dataDir);
  const work = await begin(service, groups);
  const artifact = await send(service, "POST", ARTIFACTS, { project: "demo", name: "open" });
  const jobs = [work.sft, work.rl];
  const hit = { sft: 0, rl: 0 };
  for (const kill of KILLS) {
    await untilDue(service, work, kill);
    const seen = await Promise.all(jobs.map((id) => eventsSoFar(service, id)));
    const checkpoints = (await send(service, "GET", `${MODELS}/${work.modelId}/checkpoints`)).data;
    const [sft, rl] = await Promise.all(jobs.map((id) => statusOf(service, id)));
    await service.kill();
    if (sft === "running") hit.sft++;
    if (rl === "running") hit.rl++;

    service = await startProcess(dataDir);
    for (const [index, id] of jobs.entries()) expect((await eventsSoFar(service, id)).slice(0, seen[index]!.length)).toEqual(seen[index]);
    expect((await send(service, "GET", `${MODELS}/${work.modelId}/checkpoints`)).data.slice(0, checkpoints.length)).toEqual(checkpoints);
    expect(await send(service, "GET", `${ARTIFACTS}/${artifact.id}`)).toEqual(artifact);
  }
  // Kills that miss the jobs would prove nothing.
  expect(hit.sft).toBeGreaterThanOrEqual(2);
  expect(hit.rl).toBeGreaterThanOrEqual(1);

  const events = [await finishedEvents(service, work.sft), await finishedEvents(service, work.rl)];
  expect(events.map(content)).toEqual(expectedEvents.map(content));
  const ids = events.flat().map((event) => event.id);
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of [work.sft, work.rl]) expect(await send(service, "GET", `${RL_JOBS}/${id}`)).toMatchObject({ status: "succeeded" });
  for (const step of [1, 2]) {
    const [killed, undisturbed] = await Promise.all([weights(dataDir, work.modelId, step), weights(calmDir, expected.modelId, step)]);
    expect(killed.equals(undisturbed), `weights of step ${step}`).toBe(true);
  }

  // Life goes on: rollouts of the newest checkpoint train the next one.
  const next = await postRl(service, work.modelId, [await rollOut(service, "hello", { model: work.modelId })]);
  expect((await finishedEvents(service, next)).at(-1)).toMatchObject({ type: "training_ended", data: { step: 3 } });
  expect((await send(service, "GET", `${MODELS}/${work.modelId}/checkpoints`)).data.map((each: { step: number }) => each.step)).toEqual([
    0, 1, 2, 3,
  ]);
});
