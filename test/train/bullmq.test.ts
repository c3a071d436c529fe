/** The BullMQ broker: contents of its jobs, repeated and lost jobs, and Redis servers that cannot be used. */
import { describe, expect, onTestFinished, test } from "vitest";
import { bullmq } from "../../src/library/brokers/bullmq.ts";
import { contentHash, defineEnvironment, runWorker, type WorkerEvent, type WorkerOptions } from "../../src/library/environment/index.ts";
import type { RolloutPlanInfo, Service } from "../../src/library/client/index.ts";
import { trainRl, type TrainRlOptions } from "../../src/training/train/index.ts";
import { missingRedis, sendRollouts, temporaryQueue } from "../support/dispatchers.ts";
import { environment as tokens, setUp, type Scenario } from "./support.ts";

const environment = { ...tokens, source: new URL("../../src/base/util/late.ts", import.meta.url).href };

/** Creates a plan with one group for each scenario. */
async function createPlan(service: Service, ids: readonly string[], groupSize = 1): Promise<RolloutPlanInfo> {
  const environmentHash = await contentHash(environment);
  const plan = await service.rolloutPlans.create({ environment: environment.name, environmentHash, policy: "tiny", groupSize, seed: 1 });
  return service.rolloutPlans.addGroups(
    plan.id,
    ids.map((id, group) => ({ group, scenario: { id } })),
  );
}

/** Starts a worker that ends with the test. */
function startWorker(options: Pick<WorkerOptions, "service" | "broker"> & Partial<WorkerOptions>) {
  const controller = new AbortController();
  const events: WorkerEvent[] = [];
  const onEvent = (event: WorkerEvent) => void events.push(event);
  const running = runWorker({ environments: [environment], signal: controller.signal, graceMs: 0, onEvent, ...options });
  onTestFinished(async () => {
    controller.abort();
    await running.catch(() => undefined);
  });
  return { running, events };
}

const finishedOf = async (service: Service, { id }: RolloutPlanInfo) => (await service.rolloutPlans.get(id)).finished;

test("addresses and queue names that BullMQ cannot use are rejected", () => {
  for (const connection of ["127.0.0.1:6379", "http://127.0.0.1:6379", "redis:", ""])
    expect(() => bullmq({ connection })).toThrow(expect.objectContaining({ code: "E_CONFIG", param: "connection" }));
  for (const queue of ["", "a:b"])
    expect(() => bullmq({ connection: "redis://127.0.0.1", queue })).toThrow(expect.objectContaining({ code: "E_CONFIG", param: "queue" }));
});

test("a worker reports a server that it cannot reach, without the password, and waits for it", async () => {
  const { service } = await setUp();
  const { events } = startWorker({ service, broker: bullmq({ connection: "redis://me:secret@127.0.0.1:1" }) });
  await expect.poll(() => events.filter(({ type }) => type === "service-unavailable").length).toBeGreaterThan(1);
  const messages = events.map((event) => (event.type === "service-unavailable" ? event.message : ""));
  expect(messages).toContainEqual(expect.stringMatching(/^Redis at 127\.0\.0\.1:1 cannot be used: .*ECONNREFUSED/u));
  expect(messages.join()).not.toContain("secret");
});

describe.skipIf(missingRedis !== null)(`a queue of BullMQ${missingRedis === null ? "" : `: ${missingRedis}`}`, () => {
  test("has a job per rollout with ids only, until the run ends", async () => {
    const { service, model, runDir } = await setUp();
    const { broker, queue, count } = temporaryQueue();
    const controller = new AbortController();
    const settings = { model, environment, runDir, steps: 1, scenariosPerStep: 2, groupSize: 3, report: false };
    const run = trainRl({ ...settings, workers: broker, signal: controller.signal } as TrainRlOptions<Scenario>);
    await expect.poll(count).toBe(6);
    const [plan] = await service.rolloutPlans.list();
    const jobs = await queue.getJobs(["wait"]);
    expect(jobs.map(({ data }) => data as unknown)).toEqual(
      expect.arrayContaining(
        [0, 1].flatMap((group) =>
          [0, 1, 2].map((index) => ({
            plan_id: plan!.id,
            group,
            index,
            environment: "tokens",
            environment_hash: plan!.environmentHash,
          })),
        ),
      ),
    );
    controller.abort(new Error("enough"));
    await expect(run.done).rejects.toThrow("enough");
    expect(await count()).toBe(0);
  });

  test("gets lost jobs again from the run", async () => {
    const { service, model, runDir } = await setUp();
    const { broker, queue, count } = temporaryQueue();
    const settings = { model, environment, runDir, steps: 1, scenariosPerStep: 2, groupSize: 2, report: false };
    const run = trainRl({ ...settings, workers: broker } as TrainRlOptions<Scenario>);
    await expect.poll(count).toBe(4);
    await queue.obliterate({ force: true });
    await queue.resume();
    startWorker({ service, broker });
    expect(await run.done).toMatchObject({ reason: "completed", steps: 1 });
  });

  test("delivers the job of a lost worker again, and counts its rollout once", async () => {
    const { service } = await setUp();
    const { broker, count } = temporaryQueue();
    const plan = await createPlan(service, ["a", "b"]);
    await sendRollouts(broker, plan, [0, 1]);
    const vanished = await broker.openReceiver({ lockSeconds: 1 });
    onTestFinished(() => vanished.close());
    const received = await vanished.receive({ waitSeconds: 5, signal: new AbortController().signal });
    expect(received?.message).toMatchObject({ planId: plan.id, group: 0, index: 0 });
    const { events } = startWorker({ service, broker, leaseSeconds: 3 });
    await expect.poll(() => finishedOf(service, plan)).toBe(2);
    await expect.poll(count).toBe(0);
    // The job belongs to the worker, or is gone.
    await received?.complete();
    // Jobs of finished rollouts are discarded.
    await sendRollouts(broker, plan, [0, 1]);
    await expect.poll(count).toBe(0);
    expect(events.filter(({ type }) => type === "rollout-deliver")).toHaveLength(2);
    expect(await finishedOf(service, plan)).toBe(2);
  });

  test("has a job that was added twice once", async () => {
    const { service } = await setUp();
    const { broker, count } = temporaryQueue();
    const plan = await createPlan(service, ["a", "b"], 2);
    for (let time = 0; time < 2; time++) await sendRollouts(broker, plan, [0, 1]);
    expect(await count()).toBe(4);
  });

  test("keeps a job whose rollout another worker has until this worker delivers or loses it", async () => {
    const { service } = await setUp();
    const { broker, count } = temporaryQueue();
    const plan = await createPlan(service, ["a"]);
    const environments = [{ name: environment.name, hash: plan.environmentHash }];
    const { tasks } = await service.rolloutPlans.lease({ worker: "other", environments, leaseSeconds: 2 });
    expect(tasks).toHaveLength(1);
    await sendRollouts(broker, plan, [0]);
    const { events } = startWorker({ service, broker });
    await expect.poll(() => finishedOf(service, plan)).toBe(1);
    await expect.poll(count).toBe(0);
    expect(events.filter(({ type }) => type === "rollout-deliver")).toHaveLength(1);
  });

  test("assigns no more rollouts than a worker may play at the same time", async () => {
    const { service } = await setUp();
    const { broker, queue } = temporaryQueue();
    const plan = await createPlan(service, ["a", "b", "c", "d", "e", "f"]);
    await sendRollouts(broker, plan, [0, 1, 2, 3, 4, 5]);
    let [running, most] = [0, 0];
    let open = () => {};
    const gate = new Promise<void>((resolve) => (open = resolve));
    const gated = defineEnvironment<Scenario>({
      ...environment,
      async rollout(scenario, context) {
        most = Math.max(most, ++running);
        await gate;
        running--;
        return tokens.rollout(scenario, context);
      },
    });
    startWorker({ service, broker, environments: [gated], concurrency: 2 });
    await expect.poll(() => running).toBe(2);
    // Time in which a worker without a limit would fetch further jobs.
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(await queue.getJobCounts("active", "wait")).toEqual({ active: 2, wait: 4 });
    open();
    await expect.poll(() => finishedOf(service, plan)).toBe(6);
    expect(most).toBe(2);
  });

  test("fails jobs of other programs", async () => {
    const { service } = await setUp();
    const { broker, queue } = temporaryQueue();
    await queue.add("mail", { to: "someone" });
    const plan = await createPlan(service, ["a"]);
    await sendRollouts(broker, plan, [0]);
    startWorker({ service, broker });
    await expect.poll(() => finishedOf(service, plan)).toBe(1);
    expect((await queue.getJobs(["failed"])).map(({ failedReason }) => failedReason)).toEqual(["The job names no rollout"]);
  });

  test("of a server that refuses the password ends a worker and a run", async () => {
    const { service, model, runDir } = await setUp();
    const broker = bullmq({ connection: "redis://nobody:wrong@127.0.0.1:6379" });
    const refused = { code: "E_CONNECTION", message: expect.stringContaining("WRONGPASS") };
    await expect(startWorker({ service, broker }).running).rejects.toMatchObject(refused);
    const settings = { model, environment, runDir, steps: 1, scenariosPerStep: 1, groupSize: 2, report: false };
    await expect(trainRl({ ...settings, workers: broker } as TrainRlOptions<Scenario>).done).rejects.toMatchObject(refused);
    expect((await service.rolloutPlans.list()).map(({ status }) => status)).toEqual(["cancelled"]);
  });

  test("is not combined with a plan", async () => {
    const { service } = await setUp();
    const { broker } = temporaryQueue();
    const planId = "00000000-0000-4000-8000-000000000000";
    await expect(startWorker({ service, broker, planId }).running).rejects.toMatchObject({ code: "E_ARGUMENT", param: "planId" });
  });
});
