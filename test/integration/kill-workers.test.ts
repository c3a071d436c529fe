import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { connect, Trajectory } from "../../src/index.ts";
import { contentHash } from "../../src/library/environment/index.ts";
import { rolloutSeed } from "../../src/library/rollout/index.ts";
import { ROOT } from "../project/files.ts";
import { missingRedis, REDIS, sendRollouts, temporaryQueue } from "../support/dispatchers.ts";
import { type Address, BASE, startProcess, temporaryDirectory } from "./support.ts";

/** Workers that are killed; `WHETSTONE_KILLS=20` for a longer trial. */
const KILLS = Number(process.env["WHETSTONE_KILLS"] ?? 2);
const GROUPS = 4 + 2 * KILLS;
const GROUP_SIZE = 4;
const ENVIRONMENT = fileURLToPath(new URL("worker-environment.ts", import.meta.url));

interface WorkerProcess {
  readonly child: ChildProcess;
  readonly exited: Promise<unknown[]>;
  /** Events that the worker has printed so far. */
  readonly events: any[];
}

/** Starts `whetstone worker` in a process of its own, which ends with the test. */
function startWorker({ url, apiKey }: Address, ...more: string[]): WorkerProcess {
  const args = ["dist/cli/main.js", "worker", ENVIRONMENT, "--service", url, "--concurrency", "2", "--lease", "5", "--json", ...more];
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, WHETSTONE_API_KEY: apiKey },
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const events: any[] = [];
  createInterface({ input: child.stdout! }).on("line", (line) => events.push(JSON.parse(line)));
  return { child, exited: once(child, "exit"), events };
}

const deliveredBy = ({ events }: WorkerProcess): string[] =>
  events.filter(({ type }) => type === "rollout-deliver").map(({ taskId }) => taskId as string);

/** Ways in which rollouts reach workers, with the reason why one is skipped. */
const DISPATCHERS = [
  { by: "the service", isBroker: false, missing: null },
  { by: "BullMQ", isBroker: true, missing: missingRedis },
];

for (const { by, isBroker, missing } of DISPATCHERS)
  test.skipIf(missing !== null)(
    `while workers by ${by} and the service are killed, every rollout is played, none counts twice, and no acknowledged outcome is lost${missing === null ? "" : `: ${missing}`}`,
    { timeout: 240_000 + KILLS * 20_000 },
    async () => {
      const queue = isBroker ? temporaryQueue() : null;
      const flags = queue === null ? [] : ["--redis", REDIS, "--queue", queue.name];
      const dataDir = join(await temporaryDirectory(), "service");
      let address = await startProcess(dataDir);
      const port = Number(new URL(address.url).port);
      const service = await connect({ baseUrl: address.url, apiKey: address.apiKey, maxRetries: 60 });
      onTestFinished(() => service.close());
      const hash = await contentHash({ name: "waiting", source: ENVIRONMENT });
      const plan = await service.rolloutPlans.create({
        environment: "waiting",
        environmentHash: hash,
        policy: BASE,
        groupSize: GROUP_SIZE,
        seed: 11,
        maxLeases: 100,
      });
      const scenario = (index: number) => ({ id: `scenario ${index}`, waitMs: 100 + 40 * (index % 5) });
      await service.rolloutPlans.addGroups(
        plan.id,
        Array.from({ length: GROUPS }, (_, group) => ({ group, scenario: scenario(group) })),
      );
      await (queue === null
        ? undefined
        : sendRollouts(
            queue.broker,
            plan,
            Array.from({ length: GROUPS }, (_, group) => group),
          ));
      const finished = async () => (await service.rolloutPlans.get(plan.id)).finished;
      const workers = [startWorker(address, ...flags), startWorker(address, ...flags)];
      const acknowledged: string[] = [];
      for (let kill = 0; kill < KILLS; kill++) {
        const before = await finished();
        await expect.poll(finished).toBeGreaterThan(before);
        const [victim] = workers.splice(kill % workers.length, 1);
        victim!.child.kill("SIGKILL");
        await victim!.exited;
        acknowledged.push(...deliveredBy(victim!));
        if (kill % 2 === 0) {
          await address.kill();
          await sleep(200);
          address = await startProcess(dataDir, { port });
        }
        workers.push(startWorker(address, ...flags));
      }
      await expect.poll(finished, { timeout: 120_000 }).toBe(GROUPS * GROUP_SIZE);
      if (queue !== null) await expect.poll(queue.count).toBe(0);
      for (const worker of workers) {
        // A worker that is still starting would end without an event.
        await expect.poll(() => worker.events.length).toBeGreaterThan(0);
        worker.child.kill("SIGTERM");
      }
      for (const worker of workers) {
        await worker.exited;
        acknowledged.push(...deliveredBy(worker));
        expect(worker.events.at(-1)).toMatchObject({ type: "worker-end", reason: "stopped" });
        expect(worker.child.exitCode).toBe(0);
      }
      const tasks = [];
      for (let after = 0; after < GROUPS * GROUP_SIZE; after = tasks.length)
        tasks.push(...(await service.rolloutPlans.finished(plan.id, { after })).finished);
      expect(tasks.map((task) => task.finished)).toEqual(tasks.map((_, index) => index + 1));
      expect(new Set(tasks.map(({ group, index }) => `${group} ${index}`)).size).toBe(GROUPS * GROUP_SIZE);
      expect(tasks.filter(({ status }) => status !== "done")).toEqual([]);
      expect(new Set(acknowledged).size).toBe(acknowledged.length);
      const known = new Set(tasks.map(({ id }) => id));
      expect(acknowledged.filter((id) => !known.has(id))).toEqual([]);
      // The process that plays a rollout does not matter to it.
      for (const { id, group, index } of tasks) {
        const { metadata } = Trajectory.fromJSON((await service.rolloutPlans.outcome(id)).trajectory);
        expect(metadata["seed"]).toBe(rolloutSeed(11, group, index));
      }
    },
  );
