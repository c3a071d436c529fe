import { readFile } from "node:fs/promises";
import { join } from "node:path";
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
  withoutTimes,
} from "./support.ts";

const STEPS = 12;
const BATCH = 8;
/**
 * Position at which each process is killed, with the status of the SFT and the RL job at that time. Progress is committed every fourth step: kills are
 * before anything, three steps after a commit, at the end of the last step, and inside the RL job.
 */
const KILLS: readonly { readonly haltAt: number | "policy-pass"; readonly statuses: readonly string[] }[] = [
  { haltAt: 0, statuses: ["running", "queued"] },
  { haltAt: 7, statuses: ["running", "queued"] },
  { haltAt: 8, statuses: ["running", "queued"] },
  { haltAt: "policy-pass", statuses: ["succeeded", "running"] },
];

/** Requests to the service before the first kill. */
interface Work {
  readonly modelId: string;
  readonly sft: string;
  readonly rl: string;
}

/** Creates a model, an SFT job of many steps, and after it an RL job of one long step. */
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

async function statusOf(service: Address, jobId: string): Promise<string> {
  return (await send(service, "GET", `${RL_JOBS}/${jobId}`)).status;
}

/** Everything of an event but its identity and the clock. */
const content = (events: readonly JobEvent[]) => events.map(({ type, data }) => [type, withoutTimes(data)]);

test("a service that is killed repeatedly ends its jobs with the weights of an uninterrupted service", { timeout: 400_000 }, async () => {
  const calmDir = await temporaryDirectory();
  const calm = await startProcess(calmDir);
  const groups = await Promise.all([0, 1, 2, 3].map((index) => rollOut(calm, `Write about the number ${index}.`, { n: 4 })));
  const expected = await begin(calm, groups);
  const expectedEvents = [await finishedEvents(calm, expected.sft), await finishedEvents(calm, expected.rl)];
  await calm.kill();

  const dataDir = await temporaryDirectory();
  let service = await startProcess(dataDir, KILLS[0]);
  const work = await begin(service, groups);
  const artifact = await send(service, "POST", ARTIFACTS, { project: "demo", name: "open" });
  const jobs = [work.sft, work.rl];
  for (const [index, { statuses }] of KILLS.entries()) {
    await service.halted();
    const seen = await Promise.all(jobs.map((id) => eventsSoFar(service, id)));
    const checkpoints = (await send(service, "GET", `${MODELS}/${work.modelId}/checkpoints`)).data;
    // A kill that misses the jobs would prove nothing.
    expect(await Promise.all(jobs.map((id) => statusOf(service, id)))).toEqual(statuses);
    await service.kill();

    service = await startProcess(dataDir, KILLS[index + 1]);
    for (const [at, id] of jobs.entries()) expect((await eventsSoFar(service, id)).slice(0, seen[at]!.length)).toEqual(seen[at]);
    expect((await send(service, "GET", `${MODELS}/${work.modelId}/checkpoints`)).data.slice(0, checkpoints.length)).toEqual(checkpoints);
    expect(await send(service, "GET", `${ARTIFACTS}/${artifact.id}`)).toEqual(artifact);
  }

  const events = [await finishedEvents(service, work.sft), await finishedEvents(service, work.rl)];
  expect(events.map(content)).toEqual(expectedEvents.map(content));
  const ids = events.flat().map((event) => event.id);
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of [work.sft, work.rl]) expect(await send(service, "GET", `${RL_JOBS}/${id}`)).toMatchObject({ status: "succeeded" });
  for (const step of [1, 2]) {
    const [killed, undisturbed] = await Promise.all([weights(dataDir, work.modelId, step), weights(calmDir, expected.modelId, step)]);
    expect(killed.equals(undisturbed), `weights of step ${step}`).toBe(true);
  }

  // Training continues: rollouts of the newest checkpoint train the next one.
  const next = await postRl(service, work.modelId, [await rollOut(service, "hello", { model: work.modelId })]);
  expect((await finishedEvents(service, next)).at(-1)).toMatchObject({ type: "training_ended", data: { step: 3 } });
  expect((await send(service, "GET", `${MODELS}/${work.modelId}/checkpoints`)).data.map((each: { step: number }) => each.step)).toEqual([
    0, 1, 2, 3,
  ]);
});
