import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { defineEnvironment, reward } from "../../src/library/environment/index.ts";
import { connect, trajectory } from "../../src/index.ts";
import { trainRl } from "../../src/training/train/index.ts";
import { uniform } from "../../src/base/util/rng.ts";
import { builtProgram } from "../support/built-program.ts";
import { readLines, timelessMetrics } from "../train/support.ts";
import type { HostSettings } from "./train-host.ts";
import { type Address, type SharedService, startProcess, startShared, temporaryDirectory } from "./support.ts";

/** Kills per mode: a few here; `WHETSTONE_KILLS=50` for the whole trial. */
const KILLS = Number(process.env["WHETSTONE_KILLS"] ?? 2);
/** Off-policy modes without options of batches; the run with every option is on-policy, so `WHETSTONE_KILLS` adds the mode 0. */
const MODES = process.env["WHETSTONE_KILLS"] === undefined ? [1] : [0, 1];
/** Long enough that there is something left to kill: four steps have more events than lie between two kills, and than pass before one takes effect. */
const STEPS = KILLS * 4;
/** Events from one kill to the next. */
const [NEAREST, FARTHEST] = [3, 12];

/** The service of the runs that are killed. */
let shared: SharedService;
beforeAll(async () => {
  shared = await startShared();
});
afterAll(() => shared.end());

/** Runs the host until it ends (true) or kills itself (false). */
async function runHost({ url, apiKey }: Address, runDir: string, settings: HostSettings): Promise<boolean> {
  const args = [await builtProgram(new URL("train-host.ts", import.meta.url)), url, apiKey, runDir, JSON.stringify(settings)];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== null && code !== 0) throw new Error(`The run's process ended with ${code}`);
  return code === 0;
}

describe("a training run that is killed repeatedly", () => {
  test.each(MODES)("completes every step once: %i steps off-policy", { timeout: 300_000 + KILLS * 30_000 }, async (maxStepsOffPolicy) => {
    const directory = await temporaryDirectory();
    const { service } = shared;
    const [name, calmName] = [`killed-${maxStepsOffPolicy}`, `calm-${maxStepsOffPolicy}`];
    const settings = { steps: STEPS, maxStepsOffPolicy };
    const runDir = join(directory, "killed");
    let seq = -1;
    for (let kill = 0; kill < KILLS; kill++) {
      const drawn = (what: number, below: number) => Math.floor(uniform(11n, maxStepsOffPolicy, 2 * kill + what) * below);
      seq += NEAREST + drawn(0, FARTHEST - NEAREST + 1);
      const death = { seq, delayMs: drawn(1, 50) };
      // A run that is over before its kill would prove less than it says.
      expect(await runHost(service, runDir, { ...settings, name, death }), `killed ${kill} times`).toBe(false);
    }
    expect(await runHost(service, runDir, { ...settings, name })).toBe(true);

    const events = await readLines(runDir, "events.jsonl");
    expect(events.filter(({ type }) => type === "step-end").map(({ step }) => step as number)).toEqual(
      Array.from({ length: STEPS }, (_, step) => step),
    );
    const jobs = events.filter(({ type }) => type === "job-start").map(({ job_id }) => job_id as string);
    // Steps from which nothing could be learned have none.
    const trained = events.filter(({ type, metrics }) => type === "step-end" && metrics.skipped === 0).length;
    expect(trained).toBeGreaterThan(STEPS / 2);
    expect(new Set(jobs).size).toBe(trained);
    const client = await connect({ baseUrl: service.url, apiKey: service.apiKey });
    const model = await client.models.create({ project: "demo", name, baseModel: "whetstone-tiny", returnExisting: true });
    await expect(model.step()).resolves.toBe(trained);
    await client.close();
    for (let step = 0; step < STEPS; step++) {
      const groups = await readLines(runDir, `trajectories/train/${String(step).padStart(6, "0")}.jsonl`);
      expect(groups.map((group) => group.metadata.scenario_index as number).toSorted((a, b) => a - b)).toEqual(
        [0, 1, 2, 3].map((k) => step * 4 + k),
      );
    }
    const metrics = await timelessMetrics(runDir);
    expect(metrics).toHaveLength(events.filter(({ type }) => type === "step-end" || type === "evaluation-end").length);
    // Which rollouts an off-policy step is given depends on the clock.
    if (maxStepsOffPolicy > 0) return;
    const calm = join(directory, "calm");
    await runHost(service, calm, { ...settings, name: calmName });
    expect(metrics).toEqual(await timelessMetrics(calm));
  });
});

/** Groups of a run by step, without times and names of requests. */
async function groupsOf(runDir: string): Promise<object[]> {
  const groups: object[] = [];
  for (let step = 0; step < STEPS; step++) {
    const lines = await readLines(runDir, `trajectories/train/${String(step).padStart(6, "0")}.jsonl`);
    groups.push(...lines.toSorted((a, b) => a.metadata.scenario_index - b.metadata.scenario_index));
  }
  const isTimed = (name: string) => name === "start_time" || name === "duration" || name === "traceback";
  return JSON.parse(JSON.stringify(groups, (name, value: unknown) => (isTimed(name) ? undefined : value))) as object[];
}

/** Digest of the weights of a model's newest checkpoint. */
async function weightsOf(service: Address, name: string, directory: string): Promise<string> {
  const client = await connect({ baseUrl: service.url, apiKey: service.apiKey });
  onTestFinished(() => client.close());
  const model = await client.models.create({ project: "demo", name, baseModel: "whetstone-tiny", returnExisting: true });
  const to = join(directory, `weights-${name}`);
  await client.checkpoints.download(model.id, "latest", to);
  return createHash("sha256")
    .update(await readFile(join(to, "model.safetensors")))
    .digest("hex");
}

test(
  "a run with every option of its batches that is killed repeatedly ends with the same batches, groups, metrics and weights",
  { timeout: 300_000 + KILLS * 30_000 },
  async () => {
    const directory = await temporaryDirectory();
    const { service } = shared;
    const settings = { steps: STEPS, maxStepsOffPolicy: 0, isSelective: true };
    const [killed, calm] = [join(directory, "killed"), join(directory, "calm")];
    let seq = -1;
    for (let kill = 0; kill < KILLS; kill++) {
      const drawn = (what: number, below: number) => Math.floor(uniform(13n, 2 * kill + what) * below);
      seq += NEAREST + drawn(0, FARTHEST - NEAREST + 1);
      const death = { seq, delayMs: drawn(1, 150) };
      expect(await runHost(service, killed, { ...settings, name: "killed", death }), `killed ${kill} times`).toBe(false);
    }
    expect(await runHost(service, killed, { ...settings, name: "killed" })).toBe(true);
    expect(await runHost(service, calm, { ...settings, name: "calm" })).toBe(true);
    const batches = async (runDir: string) =>
      (await readLines(runDir, "events.jsonl"))
        .filter(({ type }) => type === "batch-end")
        .map(({ seq: _seq, time: _time, ...rest }) => rest as Record<string, unknown>);
    const expected = await batches(calm);
    expect(expected).toHaveLength(STEPS);
    expect(expected.some(({ sampled }) => Number(sampled) > 4)).toBe(true);
    expect(await batches(killed)).toEqual(expected);
    const rows = await timelessMetrics(calm);
    expect(rows.some((row) => Number((row as Record<string, unknown>)["rollout/replaced"]) > 0)).toBe(true);
    expect(await timelessMetrics(killed)).toEqual(rows);
    expect(await groupsOf(killed)).toEqual(await groupsOf(calm));
    expect(await weightsOf(service, "killed", directory)).toBe(await weightsOf(service, "calm", directory));
  },
);

test("when its service is killed and restarted, a run waits, continues its job and completes", { timeout: 400_000 }, async () => {
  const directory = await temporaryDirectory();
  const dataDir = join(directory, "service");
  let service = await startProcess(dataDir);
  const port = Number(new URL(service.url).port);
  // Patient with a service that takes its time to come back.
  const client = await connect({ baseUrl: service.url, apiKey: service.apiKey, maxRetries: 50 });
  const model = await client.models.create({ project: "demo", name: "m", baseModel: "whetstone-tiny" });
  const environment = defineEnvironment<{ readonly id: string }>({
    name: "letters",
    scenarios: { train: (index) => ({ id: `word ${index}` }), eval: [] },
    async rollout({ id }, { policy, sampling }) {
      const t = trajectory({ messages: [{ role: "user", content: id }] });
      await t.sample(policy, { maxCompletionTokens: 8, ...sampling });
      return t;
    },
    rewards: [reward("letters", ({ text }) => new Set(text).size / 8)],
  });
  const runDir = join(directory, "run");
  const run = trainRl({
    model,
    environment,
    runDir,
    steps: 4,
    scenariosPerStep: 4,
    groupSize: 4,
    train: { learningRate: 1e-4 },
    report: false,
  });
  /** When the service is killed: during rollouts, during a job, and between the two. */
  const moments = new Set(["1:step-start", "2:job-start", "3:gradient-step"]);
  for await (const event of run) {
    if (!("step" in event) || !moments.delete(`${event.step}:${event.type}`)) continue;
    await service.kill();
    await sleep(300);
    service = await startProcess(dataDir, { port });
  }
  expect(moments.size).toBe(0);
  await expect(run.done).resolves.toMatchObject({ reason: "completed", steps: 4, checkpointStep: 4 });
  const jobs = (await readLines(runDir, "events.jsonl")).filter(({ type }) => type === "job-start").map(({ job_id }) => job_id as string);
  expect(new Set(jobs).size).toBe(4);
  await client.close();
});
