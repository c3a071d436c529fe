/** A backup of a service on Postgres that answers chats, accepts rollouts, trains and deletes files meanwhile. */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { CreatedSession } from "../../src/base/schema/index.ts";
import { createPlan, deliver, lease, TASKS } from "../service/rollout-tasks/support.ts";
import { ask, CHAT, createSession, SESSIONS, user } from "../service/sessions/support.ts";
import {
  ARTIFACTS,
  createModel,
  finishedEvents,
  MODELS,
  RL_JOBS,
  startRlJob,
  startTestService,
  temporaryDirectory,
  testBase,
  uploadArtifact,
  type TestService,
} from "../service/support.ts";
import { missingPostgres, temporarySchema } from "../support/postgres.ts";
import { runHere } from "./run-here.ts";

/** Everything that the service has acknowledged, by kind. */
interface Acknowledged {
  /** Number of turns by session. */
  readonly turns: Map<string, number>;
  /** Reward of the delivered outcome by task. */
  readonly rewards: Map<string, number>;
  /** Finished jobs, and the step of their checkpoint. */
  readonly steps: Map<string, number>;
  readonly artifacts: Set<string>;
}

interface Load {
  readonly acknowledged: Acknowledged;
  readonly modelIds: readonly string[];
  /** Throws the error of a request that has failed. */
  readonly requireRunning: () => void;
  /** Ends the load. @throws the error of a request that has failed. */
  readonly stop: () => Promise<void>;
}

/** Sends requests of all kinds at the same time. */
async function startLoad(service: TestService): Promise<Load> {
  const acknowledged: Acknowledged = { turns: new Map(), rewards: new Map(), steps: new Map(), artifacts: new Set() };
  await createPlan(service, 1000);
  const models = [await createModel(service, "a"), await createModel(service, "b")];
  let isRunning = true;
  const chat = async () => {
    while (isRunning) await converse(await createSession(service));
  };
  const converse = async (session: CreatedSession) => {
    for (let turns = 1; isRunning && turns <= 20; turns++) {
      expect((await ask(service, session, { messages: [user(`turn ${turns}`)] })).status).toBe(200);
      acknowledged.turns.set(session.id, turns);
    }
  };
  let reward = 0;
  const play = async () => {
    while (isRunning) {
      for (const task of await lease(service, { max: 3 })) {
        const own = ++reward;
        expect((await deliver(service, task, own)).status).toBe(200);
        acknowledged.rewards.set(task.id, own);
      }
    }
  };
  // Of the checkpoints, only the last two are kept.
  const train = async (modelId: string) => {
    for (let step = 1; isRunning; step++) {
      const job = await startRlJob(service, modelId);
      expect((await finishedEvents(service, job)).at(-1)?.type).toBe("training_ended");
      acknowledged.steps.set(job, step);
      if (step > 2) await service.ok("DELETE", `${MODELS}/${modelId}/checkpoints`, { steps: [step - 2] });
    }
  };
  const upload = async () => {
    for (let index = 0; isRunning; index++) {
      acknowledged.artifacts.add(await uploadArtifact(service, { "a.txt": `kept ${index}` }, "kept"));
      await uploadArtifact(service, { "a.txt": `deleted ${index}` }, "deleted");
      for (const { id } of (await service.ok("GET", `${ARTIFACTS}?name=deleted`)).data as { id: string; name: string }[])
        await service.call("DELETE", `${ARTIFACTS}/${id}`);
    }
  };
  const running = Promise.all([chat(), chat(), play(), play(), upload(), ...models.map(({ id }) => train(id))]);
  let failure: unknown = null;
  running.catch((error: unknown) => (failure = error));
  const requireRunning = () => {
    if (failure !== null) throw failure;
  };
  const stop = async () => {
    isRunning = false;
    await running;
  };
  return { acknowledged, modelIds: models.map(({ id }) => id), requireRunning, stop };
}

const sizeOf = ({ turns, rewards, steps, artifacts }: Acknowledged) => ({
  turns: [...turns.values()].reduce((sum, count) => sum + count, 0),
  rewards: rewards.size,
  steps: steps.size,
  artifacts: artifacts.size,
});

/** Number of further acknowledgements before each backup. */
const MORE = { turns: 5, rewards: 5, steps: 4, artifacts: 3 };

/** Waits until more of every kind was acknowledged. */
async function waitForMore({ acknowledged, requireRunning }: Load): Promise<void> {
  const before = sizeOf(acknowledged);
  const endsAtMs = performance.now() + 150_000;
  for (;;) {
    requireRunning();
    const now = sizeOf(acknowledged);
    const missing = Object.keys(MORE).filter(
      (kind) => now[kind as keyof typeof MORE] < before[kind as keyof typeof MORE] + MORE[kind as keyof typeof MORE],
    );
    if (missing.length === 0) return;
    if (performance.now() > endsAtMs)
      throw new Error(`Expected more ${missing.join(", ")} within 150 s, got ${JSON.stringify(now)} after ${JSON.stringify(before)}`);
    await sleep(50);
  }
}

/** Returns the URLs of all artifact versions. */
async function artifactsOf({ ok }: TestService): Promise<string[]> {
  const urls: string[] = [];
  for (let after = ""; ;) {
    const page = (await ok("GET", `${ARTIFACTS}?limit=100${after}`)) as { data: { id: string; url: string }[]; has_more: boolean };
    urls.push(...page.data.map(({ url }) => url));
    if (!page.has_more) return urls;
    after = `&after=${page.data.at(-1)?.id}`;
  }
}

async function run(...args: string[]): Promise<any> {
  const { code, stdout, stderr } = await runHere(...args, "--json");
  expect([code, stderr]).toEqual([0, ""]);
  return JSON.parse(stdout);
}

describe.skipIf(missingPostgres !== null)(
  `with Postgres${missingPostgres === null ? "" : `: ${missingPostgres}`}`,
  { timeout: 600_000 },
  () => {
    test("backups under load have everything that was acknowledged before, restored into an empty database", async () => {
      const [dataDir, database, bases, parent] = [
        join(await temporaryDirectory(), "data"),
        temporarySchema(),
        await testBase(),
        await temporaryDirectory(),
      ];
      const service = await startTestService({ dataDir, database, engine: { bases }, limits: { jobLeaseMs: 2000 } });
      const load = await startLoad(service);
      const backups: { readonly path: string; readonly expected: Acknowledged }[] = [];
      for (const name of ["first", "second"]) {
        await waitForMore(load);
        const { turns, rewards, steps, artifacts } = load.acknowledged;
        const expected = { turns: new Map(turns), rewards: new Map(rewards), steps: new Map(steps), artifacts: new Set(artifacts) };
        const path = join(parent, name);
        await run("backup", path, "--data-dir", dataDir, "--database", database);
        // Requests were answered during the backup.
        expect(sizeOf(load.acknowledged).turns).toBeGreaterThan(sizeOf(expected).turns);
        backups.push({ path, expected });
      }
      await load.stop();
      await service.service.close({ graceMs: 0 });
      for (const { path, expected } of backups) {
        const place = { dataDir: `${path}-restored`, database: temporarySchema() };
        const options = ["--data-dir", place.dataDir, "--database", place.database];
        await run("restore", path, ...options);
        expect(await run("verify", ...options)).toMatchObject({ intact: true, missing: [], damaged: [], unknown: [], unreferenced: [] });
        const restored = await startTestService({ ...place, engine: { bases }, limits: { jobLeaseMs: 2000 } });
        for (const [id, turns] of expected.turns)
          expect((await restored.ok("GET", `${SESSIONS}/${id}`)).requests).toBeGreaterThanOrEqual(turns);
        for (const [task, reward] of expected.rewards)
          expect((await restored.ok("GET", `${TASKS}/${task}/outcome`)).trajectory.reward).toBe(reward);
        for (const [job, step] of expected.steps)
          expect(await restored.ok("GET", `${RL_JOBS}/${job}`)).toMatchObject({ status: "succeeded", step });
        expect(await artifactsOf(restored)).toEqual(expect.arrayContaining([...expected.artifacts]));
        for (const modelId of load.modelIds) {
          const { data } = await restored.ok("GET", `${MODELS}/${modelId}/checkpoints?limit=100`);
          for (const { step } of data as { step: number }[])
            await restored.ok("POST", CHAT, { model: `${modelId}:step${step}`, messages: [user("a")], max_tokens: 2 });
          await finishedEvents(restored, await startRlJob(restored, modelId));
        }
        await restored.service.close({ graceMs: 0 });
      }
    });
  },
);
