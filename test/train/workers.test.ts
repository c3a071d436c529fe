import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { contentHash, defineEnvironment, reward, runWorker, type WorkerEvent } from "../../src/library/environment/index.ts";
import { connect, trajectory, type Service } from "../../src/index.ts";
import { trainRl, type TrainRlOptions } from "../../src/training/train/index.ts";
import { DISPATCHERS } from "../support/dispatchers.ts";
import { environment as tokens, readLines, recorded, setUp, type Scenario, timelessMetrics } from "./support.ts";

/** A file without imports stands for the environment's own, which imports the whole package. */
const environment = { ...tokens, source: new URL("../../src/base/util/late.ts", import.meta.url).href };

/** Environment with a group reward, and rollouts that fail on some seeds. */
const relative = defineEnvironment<Scenario>({
  ...environment,
  name: "relative",
  async rollout(scenario, context) {
    if (context.seed % 4 === 0 && scenario.id.startsWith("train")) throw new Error(`seed ${context.seed}`);
    return tokens.rollout(scenario, context);
  },
  groupRewards: [
    { name: "rank", weight: 0.1, scoreGroup: ({ trajectories }) => trajectories.map(({ reward: own }, index) => own * index) },
  ],
});

/** Starts workers that end with the test. Returns a function that stops them. */
function startWorkers(service: Service, count: number, options: Partial<Parameters<typeof runWorker>[0]> = {}) {
  const controller = new AbortController();
  const running = Array.from({ length: count }, (_, index) =>
    runWorker({
      service,
      environments: [environment, relative],
      name: `worker-${index}`,
      concurrency: 2,
      signal: controller.signal,
      graceMs: 0,
      ...options,
    }),
  );
  const stop = async () => {
    controller.abort();
    return Promise.all(running);
  };
  onTestFinished(async () => void (await stop().catch(() => undefined)));
  return { running, stop };
}

/** Groups of a run's steps, without times, and without the names of plans and tasks. */
async function groupsOf(runDir: string, steps: number, split = "train"): Promise<object[]> {
  const groups: any[] = [];
  for (let step = 0; step < steps; step++) {
    const lines = await readLines(runDir, `trajectories/${split}/${String(step).padStart(6, "0")}.jsonl`);
    groups.push(...lines.toSorted((a, b) => a.metadata.scenario_index - b.metadata.scenario_index));
  }
  const omitted = new Set(["start_time", "duration", "traceback", "rollout_task", "rollout_plan", "id", "created"]);
  return JSON.parse(JSON.stringify(groups, (name, value: unknown) => (omitted.has(name) ? undefined : value))) as object[];
}

const SETTINGS: Partial<TrainRlOptions<Scenario>> = {
  environment: [{ environment }, { environment: relative }],
  steps: 3,
  scenariosPerStep: 4,
  groupSize: 3,
  seed: 5,
  replacements: 1,
  maxExceptions: 20,
  evaluation: { every: 2 },
  report: false,
};

/** Files and weights of a run. */
interface Result {
  readonly groups: object[];
  readonly evaluations: object[];
  readonly metrics: object[];
  readonly weights: unknown;
}

/** Result of the run in one process, which no dispatcher changes. */
let inOneProcess: Result | undefined;

for (const { name, missing, open } of DISPATCHERS)
  describe.skipIf(missing !== null)(`workers by ${name}`, () => {
    test("a run on one or three workers has the groups, metrics and weights of a run in one process", { timeout: 120_000 }, async () => {
      const { service, runDir } = await setUp();
      const { workers, broker, count: jobs } = open();
      const resultOf = async (count: number): Promise<Result> => {
        const model = await service.models.create({ project: "demo", name: `m${count}`, baseModel: "tiny" });
        const directory = `${runDir}-${count}`;
        const { stop } = startWorkers(service, count, { broker });
        const run = trainRl({ ...SETTINGS, model, runDir: directory, workers: count > 0 && workers } as TrainRlOptions<Scenario>);
        await run.done;
        const outcomes = await stop();
        if (count > 0) expect(outcomes.reduce((sum, { delivered }) => sum + delivered, 0)).toBeGreaterThan(3 * 4 * 3 - 1);
        const [newest] = await service.checkpoints.list(model.id, { order: "desc", max: 1 });
        return {
          groups: await groupsOf(directory, 3),
          evaluations: await groupsOf(directory, 1, "eval"),
          metrics: await timelessMetrics(directory),
          weights: newest?.metrics["loss"],
        };
      };
      const inProcess = (inOneProcess ??= await resultOf(0));
      const [one, three] = [await resultOf(1), await resultOf(3)];
      expect(inProcess.groups).toHaveLength(12);
      expect(JSON.stringify(inProcess.groups)).toContain("independent_reward");
      expect(inProcess.metrics.some((row) => Number((row as Record<string, unknown>)["rollout/replaced"]) > 0)).toBe(true);
      expect(one).toEqual(inProcess);
      expect(three).toEqual(inProcess);
      // Plans are deleted once they are trained, and leave no jobs.
      await expect.poll(async () => (await service.rolloutPlans.list()).length).toBe(0);
      expect(await jobs()).toBe(0);
    });

    test("jobs name stored rollouts instead of sending them, except for trajectories that the run has changed", async () => {
      const { service, model, runDir } = await setUp();
      const { workers, broker } = open();
      const bodies: any[] = [];
      const { createRl } = service.trainingJobs;
      service.trainingJobs.createRl = (body, options) => {
        bodies.push(JSON.parse(JSON.stringify(body)));
        return createRl(body, options);
      };
      startWorkers(service, 1, { broker });
      const changed = (wire: any) => ({ ...wire, messages_and_choices: structuredClone(wire.messages_and_choices) });
      const { TrajectoryGroup } = await import("../../src/base/trajectory/index.ts");
      const run = trainRl({
        ...SETTINGS,
        model,
        runDir,
        environment,
        steps: 1,
        workers,
        scoreGroup: (group) => {
          const wire = group.toJSON();
          const trajectories = wire.trajectories.map((each, index) => ({ ...(index === 0 ? changed(each) : each), reward: index }));
          if (wire.metadata["scenario_index"] === 0) return TrajectoryGroup.fromJSON({ ...wire, trajectories });
          return group.with({ trajectories: group.trajectories.map((each, index) => each.with({ reward: index })) });
        },
      });
      await run.done;
      const [{ trajectory_groups: groups }] = bodies;
      expect(groups[0].trajectories.map((each: object) => "stored_rollout" in each)).toEqual([false, false, false]);
      for (const { trajectories } of groups.slice(1)) {
        expect(trajectories.map((each: any) => [typeof each.stored_rollout, each.reward])).toEqual(
          [0, 1, 2].map((index) => ["string", index]),
        );
      }
    });

    test("a run that is aborted cancels its plan, and continues with another one", async () => {
      const { service, model, runDir } = await setUp();
      const { workers, broker } = open();
      const controller = new AbortController();
      const settings = { ...SETTINGS, model, runDir, environment, steps: 1, workers, evaluation: undefined } as TrainRlOptions<Scenario>;
      const run = trainRl({ ...settings, signal: controller.signal });
      await expect.poll(async () => (await service.rolloutPlans.list())[0]?.tasks).toBe(12);
      controller.abort(new Error("enough"));
      await expect(run.done).rejects.toThrow("enough");
      expect((await service.rolloutPlans.list()).map(({ status }) => status)).toEqual(["cancelled"]);
      startWorkers(service, 1, { broker });
      expect(await trainRl(settings).done).toMatchObject({ reason: "completed", steps: 1 });
    });

    test("a run that was killed continues with the plan that it had", async () => {
      const { service, model, runDir } = await setUp();
      const { workers, broker, send } = open();
      const settings = { ...SETTINGS, model, environment, steps: 1, workers, evaluation: undefined } as TrainRlOptions<Scenario>;
      // As after a kill: the plan stays open, and nobody waits for it.
      const abandoned = new AbortController();
      const { cancel } = service.rolloutPlans;
      service.rolloutPlans.cancel = () => Promise.reject(new Error("killed"));
      const run = trainRl({ ...settings, runDir, signal: abandoned.signal });
      await expect.poll(async () => (await service.rolloutPlans.list())[0]?.tasks).toBe(12);
      abandoned.abort(new Error("killed"));
      await expect(run.done).rejects.toThrow("killed");
      service.rolloutPlans.cancel = cancel;
      const [plan] = await service.rolloutPlans.list();
      // The run that was not really killed has removed its jobs.
      await send(plan!, [0, 1, 2, 3]);
      const played: WorkerEvent[] = [];
      const { stop } = startWorkers(service, 1, { broker, onEvent: (event) => void played.push(event) });
      await expect.poll(async () => (await service.rolloutPlans.get(plan!.id)).finished).toBe(12);
      await stop();
      const resumed = trainRl({ ...settings, runDir });
      expect(await resumed.done).toMatchObject({ reason: "completed" });
      expect(played.filter(({ type }) => type === "rollout-deliver")).toHaveLength(12);
    });

    test("a run sends its trajectories if its stored rollouts are lost", async () => {
      const { service, model, runDir } = await setUp();
      const { workers, broker } = open();
      startWorkers(service, 1, { broker });
      const { createRl } = service.trainingJobs;
      service.trainingJobs.createRl = async (body, options) => {
        for (const { id } of await service.rolloutPlans.list()) await service.rolloutPlans.delete(id);
        return createRl(body, options);
      };
      const run = trainRl({ ...SETTINGS, model, runDir, environment, steps: 1, workers } as TrainRlOptions<Scenario>);
      expect(await run.done).toMatchObject({ reason: "completed", checkpointStep: 1 });
    });

    test("more failed rollouts than allowed end the run and cancel its plan", async () => {
      const { service, model, runDir } = await setUp();
      const { workers, broker } = open();
      const failing = defineEnvironment<Scenario>({
        ...environment,
        name: "failing",
        rollout: () => Promise.reject(new TypeError("broken")),
      });
      startWorkers(service, 1, { broker, environments: [failing] });
      const run = trainRl({ model, runDir, environment: failing, steps: 1, scenariosPerStep: 2, groupSize: 4, workers, report: false });
      await expect(run.done).rejects.toMatchObject({ code: "E_TOO_MANY_EXCEPTIONS", message: expect.stringContaining("broken") });
      expect((await service.rolloutPlans.list()).map(({ status }) => status)).toEqual(["cancelled"]);
    });

    test("options and scenarios that workers cannot have are rejected", async () => {
      const { model, runDir } = await setUp();
      const { workers } = open();
      const settings = { ...SETTINGS, model, runDir, environment, steps: 1, workers, evaluation: undefined } as TrainRlOptions<Scenario>;
      expect(() => trainRl({ ...settings, concurrency: 4 })).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param: "concurrency" }));
      await expect(trainRl({ ...settings, environment: tokens }).done).rejects.toMatchObject({ code: "E_CONFIG", param: "source" });
      const dated = { ...environment, scenarios: { ...environment.scenarios, train: [{ id: "a", at: new Date() }] } };
      const other = { ...settings, runDir: `${runDir}-dated`, environment: dated } as TrainRlOptions<Scenario>;
      await expect(trainRl(other).done).rejects.toMatchObject({ code: "E_ARGUMENT", param: "workers" });
    });

    test("a worker with other files is refused while a run waits, unless it had tasks before", async () => {
      const { service, model, runDir } = await setUp();
      const { workers, broker } = open();
      const folder = await mkdtemp(join(tmpdir(), "whetstone-versions-"));
      onTestFinished(() => rm(folder, { recursive: true, force: true }));
      await writeFile(join(folder, "helper.ts"), "export const factor = 1;\n");
      await writeFile(join(folder, "environment.ts"), 'import { factor } from "./helper.ts";\nexport default factor;\n');
      const versioned = defineEnvironment<Scenario>({ ...tokens, name: "versioned", source: join(folder, "environment.ts") });
      const before = await contentHash(versioned);
      const controller = new AbortController();
      const run = trainRl({ model, runDir, environment: versioned, steps: 1, workers, report: false, signal: controller.signal });
      await expect.poll(async () => (await service.rolloutPlans.list())[0]?.tasks ?? 0).toBeGreaterThan(0);
      // A change of an imported file is another version.
      await writeFile(join(folder, "helper.ts"), "export const factor = 2;\n");
      expect(await contentHash(versioned)).not.toBe(before);
      await expect(runWorker({ service, environments: [versioned], broker })).rejects.toMatchObject({
        status: 409,
        param: "environments",
        message: expect.stringContaining(before.slice(0, 12)),
      });
      controller.abort(new Error("over"));
      await expect(run.done).rejects.toThrow("over");
      expect(await recorded(run).catch(() => [])).toBeDefined();
    });

    test("a worker ends by itself without tasks, and releases its rollouts when it is stopped", async () => {
      const { service } = await setUp();
      const { broker, send, count } = open();
      expect(await runWorker({ service, environments: [environment], broker, idleExitMs: 50 })).toMatchObject({
        reason: "idle",
        delivered: 0,
      });
      const started: string[] = [];
      const slow = defineEnvironment<Scenario>({
        ...environment,
        name: "slow",
        rollout: ({ id }, { signal }) => {
          started.push(id);
          return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
        },
      });
      const hash = await contentHash(slow);
      const plan = await service.rolloutPlans.create({ environment: "slow", environmentHash: hash, policy: "tiny", groupSize: 3, seed: 1 });
      await service.rolloutPlans.addGroups(plan.id, [{ group: 0, scenario: { id: "a" } }]);
      await send(plan, [0]);
      const controller = new AbortController();
      const worker = runWorker({ service, environments: [slow], broker, concurrency: 2, signal: controller.signal, graceMs: 100 });
      await expect.poll(() => started.length).toBe(2);
      controller.abort();
      expect(await worker).toMatchObject({ reason: "stopped", delivered: 0, released: 2 });
      if (broker !== undefined) expect(await count()).toBe(3);
      const { tasks } = await service.rolloutPlans.lease({ worker: "next", environments: [{ name: "slow", hash }], max: 10 });
      expect(tasks).toHaveLength(3);
    });

    test("a worker stops rollouts of a cancelled plan, and continues with others", async () => {
      const { service } = await setUp();
      const { broker, send, count } = open();
      let aborted = 0;
      const started: string[] = [];
      const waiting = defineEnvironment<Scenario>({
        ...environment,
        name: "waiting",
        rollout: async (scenario, context) => {
          started.push(scenario.id);
          if (scenario.id !== "long") return tokens.rollout(scenario, context);
          await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
          aborted++;
          context.signal.throwIfAborted();
          return trajectory({ messages: [{ role: "user", content: scenario.id }] });
        },
        rewards: [reward("one", () => 1)],
      });
      const hash = await contentHash(waiting);
      const create = async (id: string) => {
        const plan = await service.rolloutPlans.create({
          environment: "waiting",
          environmentHash: hash,
          policy: "tiny",
          groupSize: 2,
          seed: 1,
        });
        await service.rolloutPlans.addGroups(plan.id, [{ group: 0, scenario: { id } }]);
        await send(plan, [0]);
        return plan.id;
      };
      const long = await create("long");
      const events: WorkerEvent[] = [];
      startWorkers(service, 1, { broker, environments: [waiting], leaseSeconds: 3, onEvent: (event) => void events.push(event) });
      await expect.poll(() => started).toEqual(["long", "long"]);
      await service.rolloutPlans.cancel(long);
      const short = await create("short");
      await expect.poll(async () => (await service.rolloutPlans.get(short)).finished).toBe(2);
      await expect.poll(() => aborted).toBe(2);
      await expect.poll(() => events.filter(({ type }) => type === "rollout-lose").length).toBe(2);
      await expect.poll(count).toBe(0);
    });

    test("a worker keeps its rollouts while the service is restarted", async () => {
      const { broker, send } = open();
      const { startTestService } = await import("../../src/testing/index.ts");
      const dataDir = await mkdtemp(join(tmpdir(), "whetstone-restart-"));
      onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
      let running = await startTestService({ dataDir, answer: () => "a" });
      const port = Number(new URL(running.url).port);
      const service = await connect({ baseUrl: running.url, apiKey: running.apiKey, maxRetries: 0 });
      onTestFinished(() => service.close());
      let isOpen = false;
      const gated = defineEnvironment<Scenario>({
        ...environment,
        name: "gated",
        rollout: async (scenario, context) => {
          while (!isOpen) await new Promise((resolve) => setTimeout(resolve, 10));
          return tokens.rollout(scenario, context);
        },
      });
      const hash = await contentHash(gated);
      const plan = await service.rolloutPlans.create({
        environment: "gated",
        environmentHash: hash,
        policy: "whetstone-tiny",
        groupSize: 4,
        seed: 1,
      });
      await service.rolloutPlans.addGroups(plan.id, [{ group: 0, scenario: { id: "a" } }]);
      await send(plan, [0]);
      const { stop } = startWorkers(service, 1, { broker, environments: [gated], concurrency: 4 });
      await expect.poll(async () => (await service.rolloutPlans.list())[0]?.tasks).toBe(4);
      await running.close({ graceMs: 0 });
      isOpen = true;
      running = await startTestService({ dataDir, port, answer: () => "a" });
      await expect.poll(async () => (await service.rolloutPlans.get(plan.id).catch(() => null))?.finished).toBe(4);
      await stop();
      await running.close({ graceMs: 0 });
    });
  });
