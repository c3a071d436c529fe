import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { expect, test } from "vitest";
import { builtProgram } from "../support/built-program.ts";
import { testDatabase, onSqlite } from "../support/postgres.ts";
import type { ScriptedEngineOptions } from "../../src/testing/index.ts";
import {
  ARTIFACTS,
  chatLines,
  createModel,
  finishedEvents,
  MODELS,
  restartable,
  RL_JOBS,
  rlBody,
  SFT_JOBS,
  startRlJob,
  startSftJob,
  startTestService,
  uploadArtifact,
  type TestService,
  statePath,
} from "./support.ts";

const STEPS = 10;

/** Weights of a model's newest checkpoint, byte for byte. */
async function weights(dataDir: string, modelId: string, step: number): Promise<string> {
  return (await readFile(join(statePath(dataDir, modelId, step), "model.safetensors"))).toString("hex");
}

/** Holds the engine at the n-th optimizer step until the service goes down. */
function holdAt(step: number): ScriptedEngineOptions & { readonly reached: Promise<void> } {
  let count = 0;
  let reach: () => void = () => undefined;
  const reached = new Promise<void>((resolve) => (reach = resolve));
  return {
    reached,
    async before({ verb }, { signal }) {
      if (verb !== "optimStep" || ++count < step) return;
      reach();
      await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error)));
    },
  };
}

async function startSft(service: TestService): Promise<{ modelId: string; jobId: string }> {
  const { id: modelId } = await createModel(service);
  const settings = { config: { batch_size: 1, learning_rate: 0.1 }, experimental_config: { shuffle_seed: 7 } };
  return { modelId, jobId: await startSftJob(service, modelId, STEPS, settings) };
}

test("resumes an SFT job from its last commit after a restart, with the same weights and no duplicate event", async () => {
  onSqlite();
  const { bases, dataDir, start } = await restartable({ limits: { commitEverySteps: 3 } });
  const undisturbed = await startTestService({ engine: { bases } });
  const expected = await startSft(undisturbed);
  const expectedEvents = await finishedEvents(undisturbed, expected.jobId);

  const held = holdAt(9);
  const first = await start(held);
  const { modelId, jobId } = await startSft(first);
  await held.reached;
  const seen = (await first.ok("GET", `${RL_JOBS}/${jobId}/events?limit=100`)).data;
  expect(seen.map((event: { data: { gradient_step?: number } }) => event.data.gradient_step ?? 0)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  expect(await readdir(join(dataDir, "jobs", jobId))).toEqual(["progress-6"]);
  await first.service.close({ graceMs: 0 });
  // One that the commit replaced, and one that was saved and not committed.
  for (const name of ["progress-3", "progress-9"]) await mkdir(join(dataDir, "jobs", jobId, name));

  const second = await start();
  const events = await finishedEvents(second, jobId);
  const [time = ""] = await readdir(join(dataDir, "quarantine"));
  expect(await readdir(join(dataDir, "quarantine", time, "jobs", jobId))).toEqual(["progress-9"]);
  expect(events.slice(0, seen.length)).toEqual(seen);
  const withoutSpeed = (list: typeof events) => list.map(({ type, data }) => [type, { ...data, tokens_per_second: 0 }]);
  expect(withoutSpeed(events)).toEqual(withoutSpeed(expectedEvents));
  // Steps 7 to 10 alone were computed again.
  expect(second.engine.calls.filter((call) => call.verb === "optimStep")).toHaveLength(4);
  expect(await weights(dataDir, modelId, 1)).toBe(await weights(undisturbed.service.dataDir, expected.modelId, 1));
  expect(await readdir(join(dataDir, "jobs"))).toEqual([]);
});

test("runs an interrupted RL job first after a restart, then queued jobs in order", async () => {
  const { start } = await restartable();
  const held = holdAt(2);
  const first = await start(held);
  const { id: modelId } = await createModel(first);
  const jobs: string[] = [];
  for (let index = 0; index < 4; index++) jobs.push(await startRlJob(first, modelId));
  await held.reached;
  await first.ok("POST", `${RL_JOBS}/${jobs[3]}/cancel`);
  await first.service.close({ graceMs: 0 });
  const second = await start();
  const ends = [];
  for (const job of jobs) ends.push((await finishedEvents(second, job)).at(-1));
  expect(ends).toMatchObject([{ data: { step: 1 } }, { data: { step: 2 } }, { data: { step: 3 } }, { data: { cancelled: true } }]);
});

test("completes a job after more restarts than `maxJobAttempts`", async () => {
  const { start } = await restartable({ limits: { maxJobAttempts: 2 } });
  let jobId = "";
  for (let attempt = 0; attempt < 7; attempt++) {
    const held = holdAt(1);
    const service = await start(held);
    if (attempt === 0) jobId = await startRlJob(service, (await createModel(service)).id);
    await held.reached;
    await service.service.close({ graceMs: 0 });
  }
  const last = await start();
  expect((await finishedEvents(last, jobId)).at(-1)).toMatchObject({ type: "training_ended", data: { step: 1 } });
});

test("removes incomplete files at the start and moves other unknown files to the quarantine", async () => {
  onSqlite();
  const { dataDir, start } = await restartable();
  const first = await start();
  const { id: modelId } = await createModel(first);
  const jobId = await startRlJob(first, modelId);
  await finishedEvents(first, jobId);
  const url = await uploadArtifact(first, { "train.jsonl": chatLines(2) });
  await first.service.close();
  const incomplete = `.tmp-${randomUUID()}`;
  const useless = [
    "tmp/upload",
    `tokens/x.json${incomplete}`,
    `checkpoints/${modelId}/2${incomplete}/model.safetensors`,
    // Its row says that the job is over, and that the optimizer of a checkpoint without one was dropped.
    `jobs/${jobId}/groups.jsonl`,
  ];
  const unmentioned = [
    "artifacts/blobs/ab/abcdef",
    "artifacts/blobs/stray",
    "checkpoints/nobody/1/state.json",
    `checkpoints/${modelId}/2/model.safetensors`,
    "jobs/nobody/groups.jsonl",
    "tokens/nobody.json",
  ];
  for (const path of [...useless, ...unmentioned]) {
    await mkdir(join(dataDir, path, ".."), { recursive: true });
    await writeFile(join(dataDir, path), path);
  }
  const second = await start();
  const [time = ""] = await readdir(join(dataDir, "quarantine"));
  for (const path of unmentioned) expect(await readFile(join(dataDir, "quarantine", time, path), "utf8")).toBe(path);
  const entries = await readdir(dataDir, { recursive: true, withFileTypes: true });
  const left = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name).slice(dataDir.length + 1));
  for (const path of [...useless, ...unmentioned]) expect(left).not.toContain(path);
  expect(await readdir(join(dataDir, "checkpoints"))).toEqual([modelId]);
  expect(await readdir(join(dataDir, "checkpoints", modelId))).toEqual([basename(statePath(dataDir, modelId, 1))]);
  const sft = await second.ok("POST", SFT_JOBS, { model_id: modelId, training_data_url: url });
  expect((await finishedEvents(second, sft.id)).at(-1)).toMatchObject({ type: "training_ended", data: { step: 2 } });
});

test("keeps every acknowledged change after kill -9", async () => {
  const { bases, dataDir, start } = await restartable();
  const script = await builtProgram(new URL("held-service.ts", import.meta.url));
  const child = spawn(process.execPath, [script, dataDir, JSON.stringify(bases), "optimStep", "2", testDatabase(dataDir).database ?? ""], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  try {
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const { url, apiKey } = JSON.parse((await lines.next()).value as string) as { url: string; apiKey: string };
    const send = async (method: string, path: string, body?: unknown): Promise<any> => {
      const response = await fetch(url + path, {
        method,
        headers: { authorization: `Bearer ${apiKey}`, ...(body === undefined ? {} : { "content-type": "application/json" }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      expect([path, response.status]).toEqual([path, 200]);
      return response.json();
    };
    const model = await send("POST", MODELS, { project: "demo", name: "reverse", base_model: "tiny" });
    const artifact = await send("POST", ARTIFACTS, { project: "demo", name: "data" });
    const jobs = [];
    for (let index = 0; index < 3; index++) jobs.push(await send("POST", RL_JOBS, rlBody(model.id)));
    // The first job is over, the second holds in its optimizer step, the third waits.
    expect((await lines.next()).value).toBe("held");
    const events = (await send("GET", `${RL_JOBS}/${jobs[1].id}/events`)).data;
    expect(events).toHaveLength(1);
    const before = {
      checkpoints: await send("GET", `${MODELS}/${model.id}/checkpoints`),
      first: await send("GET", `${RL_JOBS}/${jobs[0].id}/events`),
    };
    child.kill("SIGKILL");
    await exited;

    // Its lock and its service.json do not stand in the way.
    expect(await readdir(dataDir)).toContain("service.json");
    const after = await start();
    expect(after.service.apiKey).toBe(apiKey);
    for (const [index, job] of jobs.entries())
      expect((await finishedEvents(after, job.id)).at(-1)).toMatchObject({ type: "training_ended", data: { step: index + 1 } });
    expect((await after.ok("GET", `${RL_JOBS}/${jobs[1].id}/events`)).data[0]).toEqual(events[0]);
    expect(await after.ok("GET", `${RL_JOBS}/${jobs[0].id}/events`)).toEqual(before.first);
    // The second job makes a newer checkpoint, and the optimizer state of the first is deleted.
    const withoutSize = (checkpoints: readonly any[]) => checkpoints.map((checkpoint) => ({ ...checkpoint, bytes: undefined }));
    expect(withoutSize((await after.ok("GET", `${MODELS}/${model.id}/checkpoints`)).data.slice(0, 2))).toEqual(
      withoutSize(before.checkpoints.data),
    );
    expect((await after.ok("GET", `${ARTIFACTS}/${artifact.id}`)).state).toBe("open");
  } finally {
    child.kill("SIGKILL");
  }
});
