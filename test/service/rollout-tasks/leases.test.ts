import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { createModel, startTestService, temporaryDirectory, UNKNOWN_ID } from "../support.ts";
import { addGroups, createPlan, deliver, HASH, lease, type Lease, OTHER_HASH, outcomePath, PLANS, TASKS, trajectoryOf } from "./support.ts";

test("a plan has a task per rollout, which are leased once each, in order, with their scenarios", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const plan = await createPlan(service, 3, { model_id: modelId, policy: "local/demo/reverse:step0", policy_step: 0, temperature: 0.5 });
  expect(await service.ok("GET", `${PLANS}/${plan.id}`)).toMatchObject({
    tasks: 6,
    finished: 0,
    failed: 0,
    entity: "local",
    status: "open",
    temperature: 0.5,
  });
  const first = await lease(service, { max: 4 });
  const second = await lease(service, { max: 4 });
  expect([...first, ...second].map(({ group, index, scenario }) => [group, index, scenario])).toEqual(
    [0, 0, 1, 1, 2, 2].map((group, position) => [group, position % 2, { text: `scenario ${group}` }]),
  );
  expect(await lease(service)).toEqual([]);
  expect(new Set(first.map((task) => task.lease_token)).size).toBe(1);
  expect(first[0]!.lease_token).not.toBe(second[0]!.lease_token);
});

test("adding a group again leaves it unchanged, and an index twice in one request is rejected", async () => {
  const service = await startTestService();
  const plan = await createPlan(service, 2);
  expect(await addGroups(service, plan.id, 3)).toMatchObject({ tasks: 6 });
  const twice = await service.call("POST", `${PLANS}/${plan.id}/groups`, { groups: [0, 0].map((group) => ({ group, scenario: 1 })) });
  expect(twice).toMatchObject({ status: 422, body: { error: { error_code: "E_ARGUMENT", param: "groups" } } });
});

test("a plan with more tasks than the limit is rejected and unchanged", async () => {
  const service = await startTestService({ limits: { maxRolloutTasks: 5 } });
  const plan = await createPlan(service, 2);
  const groups = [{ group: 9, scenario: null }];
  expect(await service.call("POST", `${PLANS}/${plan.id}/groups`, { groups })).toMatchObject({
    status: 413,
    body: { error: { error_code: "E_TOO_LARGE" } },
  });
  expect(await service.ok("GET", `${PLANS}/${plan.id}`)).toMatchObject({ tasks: 4 });
});

test("tasks go only to workers with the name and the content hash of the environment", async () => {
  const service = await startTestService();
  const plan = await createPlan(service, 1);
  expect(await lease(service, { environments: [{ name: "other", hash: HASH }] })).toEqual([]);
  // Without a client that waits for the plan, it may belong to a run that is over.
  expect(await lease(service, { environments: [{ name: "letters", hash: OTHER_HASH }] })).toEqual([]);
  await service.ok("GET", `${PLANS}/${plan.id}/finished`);
  const refused = await service.call("POST", `${TASKS}/lease`, { worker: "w", environments: [{ name: "letters", hash: OTHER_HASH }] });
  expect(refused).toMatchObject({ status: 409, body: { error: { error_code: "E_CONFLICT", param: "environments" } } });
  expect(refused.body.error.message).toContain(OTHER_HASH.slice(0, 12));
  expect(refused.body.error.message).toContain(HASH.slice(0, 12));
  expect(
    await lease(service, {
      environments: [
        { name: "other", hash: HASH },
        { name: "letters", hash: HASH },
      ],
    }),
  ).toHaveLength(1);
});

test("a waiting lease gets tasks that are added, and a waiting reader the finished ones, in the order of their deliveries", async () => {
  const service = await startTestService();
  const plan = await createPlan(service, 0);
  const waiting = lease(service, { max: 2, wait: 30 });
  await addGroups(service, plan.id, 1);
  const tasks = await waiting;
  expect(tasks).toHaveLength(2);
  const finished = service.ok("GET", `${PLANS}/${plan.id}/finished?wait=30`);
  expect((await deliver(service, tasks[1]!, 1)).status).toBe(200);
  expect((await finished).data).toMatchObject([{ id: tasks[1]!.id, index: 1, status: "done", finished: 1 }]);
  await service.ok("PUT", outcomePath(tasks[0]!), { exception: { type: "Error", message: "no" } });
  const rest = await service.ok("GET", `${PLANS}/${plan.id}/finished?after=1&wait=30`);
  expect(rest.data).toMatchObject([{ id: tasks[0]!.id, status: "failed", finished: 2 }]);
  expect(rest.plan).toMatchObject({ tasks: 2, finished: 2, failed: 1 });
  // Nothing more will finish.
  expect((await service.ok("GET", `${PLANS}/${plan.id}/finished?after=2&wait=30`)).data).toEqual([]);
});

test("an expired lease is given to the next worker, and a late delivery is then refused", async () => {
  const service = await startTestService();
  await createPlan(service, 1, { group_size: 1 });
  const [late] = await lease(service, { lease_seconds: 1 });
  const [task] = await lease(service, { wait: 30, lease_seconds: 600, worker: "second" });
  expect(task).toMatchObject({ id: late!.id });
  expect(task!.lease_token).not.toBe(late!.lease_token);
  const refused = await deliver(service, late!, 1);
  expect(refused).toMatchObject({ status: 409, body: { error: { error_code: "E_CONFLICT", param: "lease_token" } } });
  expect(refused.body.error.message).toContain("second");
  expect(await service.ok("POST", `${TASKS}/heartbeat`, { leases: [named(late!), named(task!)] })).toEqual({
    held: [task!.id],
    lost: [late!.id],
  });
  expect((await deliver(service, task!, 0.5)).status).toBe(200);
  expect(await service.ok("GET", `${TASKS}/${task!.id}`)).toMatchObject({ status: "done", leases: 2, worker: "second" });
});

test("a late delivery is accepted if no other worker has leased the task", async () => {
  const service = await startTestService();
  const plan = await createPlan(service, 1, { group_size: 1 });
  const [task] = await lease(service, { lease_seconds: 1 });
  await expect.poll(async () => (await service.ok("GET", `${TASKS}/${task!.id}`)).status).toBe("pending");
  expect((await deliver(service, task!, 1)).status).toBe(200);
  expect(await service.ok("GET", `${PLANS}/${plan.id}`)).toMatchObject({ finished: 1 });
});

test("heartbeats keep a lease, and also renew an expired one that nobody has taken", async () => {
  const service = await startTestService();
  await createPlan(service, 1, { group_size: 1 });
  const [task] = await lease(service, { lease_seconds: 1 });
  const beat = async (seconds: number) =>
    expect(await service.ok("POST", `${TASKS}/heartbeat`, { leases: [named(task!)], lease_seconds: seconds })).toEqual({
      held: [task!.id],
      lost: [],
    });
  const status = async () => (await service.ok("GET", `${TASKS}/${task!.id}`)).status;
  await beat(600);
  // Longer than the first lease and the time between two looks for expired leases.
  await sleep(2000);
  expect([await status(), await lease(service)]).toEqual(["leased", []]);
  await beat(1);
  await expect.poll(status).toBe("pending");
  await beat(600);
  expect(await lease(service)).toEqual([]);
});

test("the same delivery twice has the same answer, and another outcome is refused", async () => {
  const service = await startTestService();
  const plan = await createPlan(service, 1, { group_size: 1 });
  const [task] = await lease(service);
  const [first, second] = await Promise.all([deliver(service, task!, 1), deliver(service, task!, 1)]);
  expect(first.status).toBe(200);
  expect(second).toEqual({ ...first, headers: second.headers });
  expect((await deliver(service, task!, 1)).body).toEqual(first.body);
  expect(await deliver(service, task!, 0)).toMatchObject({ status: 409, body: { error: { param: "lease_token" } } });
  expect(await service.ok("GET", `${PLANS}/${plan.id}`)).toMatchObject({ finished: 1 });
  expect((await service.ok("GET", `${TASKS}/${task!.id}/outcome`)).trajectory.reward).toBe(1);
});

test("a released task can be leased at once, and its lease does not count", async () => {
  const service = await startTestService();
  await createPlan(service, 1, { group_size: 1, max_leases: 1 });
  const [task] = await lease(service);
  expect(await service.ok("POST", `${TASKS}/release`, { leases: [named(task!)] })).toEqual({ released: 1 });
  expect(await service.ok("POST", `${TASKS}/release`, { leases: [named(task!)] })).toEqual({ released: 0 });
  expect(await deliver(service, task!, 1)).toMatchObject({ status: 409 });
  const [again] = await lease(service);
  expect(again!.id).toBe(task!.id);
  expect(await service.ok("GET", `${TASKS}/${task!.id}`)).toMatchObject({ leases: 1, status: "leased" });
});

test("a task that no worker delivers fails after its last lease", async () => {
  const service = await startTestService();
  const plan = await createPlan(service, 1, { group_size: 1, max_leases: 2 });
  const workers = ["first", "last"];
  for (const worker of workers) expect(await lease(service, { worker, lease_seconds: 1, wait: 30 })).toHaveLength(1);
  const { data } = await service.ok("GET", `${PLANS}/${plan.id}/finished?wait=30`);
  expect(data).toMatchObject([{ status: "failed", leases: 2 }]);
  const { exception } = await service.ok("GET", `${TASKS}/${data[0].id}/outcome`);
  expect(exception).toMatchObject({ type: "WorkerLost", message: expect.stringContaining("last") });
});

test("a cancelled plan is not leased, refuses deliveries, and reports its leases as lost", async () => {
  const service = await startTestService();
  const plan = await createPlan(service, 2);
  const [done, open] = await lease(service, { max: 2 });
  await deliver(service, done!, 1);
  const waiting = service.ok("GET", `${PLANS}/${plan.id}/finished?after=1&wait=30`);
  expect(await service.ok("POST", `${PLANS}/${plan.id}/cancel`)).toMatchObject({ status: "cancelled" });
  expect(await waiting).toMatchObject({ data: [], plan: { status: "cancelled" } });
  expect(await lease(service)).toEqual([]);
  expect(await deliver(service, open!, 1)).toMatchObject({ status: 409, body: { error: { param: "plan_id" } } });
  expect(await service.ok("POST", `${TASKS}/heartbeat`, { leases: [named(open!)] })).toEqual({ held: [], lost: [open!.id] });
  expect(await service.ok("GET", `${TASKS}/${open!.id}`)).toMatchObject({ status: "cancelled" });
  expect((await service.ok("GET", `${TASKS}/${done!.id}/outcome`)).trajectory.reward).toBe(1);
  expect((await service.call("POST", `${PLANS}/${plan.id}/groups`, { groups: [{ group: 9, scenario: 0 }] })).status).toBe(409);
});

test("invalid outcomes are rejected, and the task can still be delivered", async () => {
  const service = await startTestService({ limits: { maxRolloutBytes: 5000 } });
  await createPlan(service, 1, { group_size: 1 });
  const [task] = await lease(service);
  const exception = { type: "Error", message: "no" };
  const bodies = [
    {},
    { trajectory: trajectoryOf(1), exception },
    { trajectory: { reward: "high" } },
    { trajectory: trajectoryOf(1), more: 1 },
  ];
  for (const body of bodies)
    expect(await service.call("PUT", outcomePath(task!), body)).toMatchObject({
      status: 422,
      body: { error: { error_code: "E_ARGUMENT" } },
    });
  expect(await service.call("PUT", `${TASKS}/${task!.id}/outcome`, { exception })).toMatchObject({
    status: 422,
    body: { error: { param: "lease_token" } },
  });
  expect(await service.call("PUT", outcomePath({ ...task!, lease_token: UNKNOWN_ID }), { exception })).toMatchObject({ status: 409 });
  expect(await service.call("PUT", outcomePath({ ...task!, id: UNKNOWN_ID }), { exception })).toMatchObject({ status: 404 });
  const large = { exception: { ...exception, traceback: "x".repeat(6000) } };
  expect(await service.call("PUT", outcomePath(task!), large)).toMatchObject({
    status: 413,
    body: { error: { error_code: "E_TOO_LARGE" } },
  });
  expect((await deliver(service, task!, 1)).status).toBe(200);
});

test("deliveries, leases and outcomes survive a restart; a deleted plan leaves no row and no file", async () => {
  const dataDir = await temporaryDirectory();
  const first = await startTestService({ dataDir });
  const plan = await createPlan(first, 2);
  const tasks = await lease(first, { max: 3, lease_seconds: 600 });
  await deliver(first, tasks[0]!, 1);
  await first.service.close({ graceMs: 0 });
  const service = await startTestService({ dataDir });
  expect(await service.ok("GET", `${PLANS}/${plan.id}`)).toMatchObject({ tasks: 4, finished: 1 });
  expect(await lease(service, { max: 10 })).toHaveLength(1);
  expect((await deliver(service, tasks[1]!, 0)).status).toBe(200);
  expect((await service.ok("GET", `${TASKS}/${tasks[0]!.id}/outcome`)).trajectory.reward).toBe(1);
  expect(await service.ok("DELETE", `${PLANS}/${plan.id}`)).toEqual({ plan_id: plan.id, deleted_tasks: 4 });
  expect((await service.call("GET", `${PLANS}/${plan.id}`)).status).toBe(404);
  expect((await deliver(service, tasks[2]!, 0)).status).toBe(404);
  const { readdir } = await import("node:fs/promises");
  const blobs = async () =>
    (await readdir(`${dataDir}/artifacts/blobs`, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile()).length;
  await expect.poll(blobs).toBe(0);
});

test("creating a plan twice with one idempotency key gives one plan, and another one after its deletion", async () => {
  const service = await startTestService();
  const body = { environment: "letters", environment_hash: HASH, policy: "tiny", group_size: 1, seed: 1 };
  const create = async () => (await service.ok("POST", PLANS, body, { headers: { "idempotency-key": "step-1" } })).id as string;
  const id = await create();
  expect(await create()).toBe(id);
  await service.ok("DELETE", `${PLANS}/${id}`);
  expect(await create()).not.toBe(id);
  expect((await service.ok("GET", PLANS)).data).toHaveLength(1);
});

test("an expired plan is deleted", async () => {
  const dataDir = await temporaryDirectory();
  const service = await startTestService({ dataDir });
  const plan = await createPlan(service, 1, { expires_in_seconds: 1 });
  await createPlan(service, 1);
  await sleep(1000);
  await service.service.close({ graceMs: 0 });
  // The search for expired plans runs at the start, and every minute.
  const restarted = await startTestService({ dataDir });
  await expect.poll(async () => (await restarted.ok("GET", PLANS)).data.length).toBe(1);
  expect((await restarted.call("GET", `${PLANS}/${plan.id}`)).status).toBe(404);
});

test("equal outcomes of two entities are stored once, and kept while one of them needs them", async () => {
  const service = await startTestService();
  const callers = await Promise.all(
    ["acme", "rival"].map(async (entity) => {
      const { key } = await service.ok("POST", "/v1/preview/keys", { name: entity, entity, scopes: ["train"] });
      const call: typeof service.call = (method, path, body) => service.call(method, path, body, { key });
      const ok: typeof service.ok = (method, path, body) => service.ok(method, path, body, { key });
      return { ...service, call, ok };
    }),
  );
  const plans: string[] = [];
  const tasks: Lease[] = [];
  for (const caller of callers) {
    plans.push((await createPlan(caller, 1, { group_size: 1 })).id);
    const [task] = await lease(caller, { max: 10 });
    tasks.push(task!);
    // A repeated delivery must not remove the content that the other entity has, too.
    for (let delivery = 0; delivery < 2; delivery++) expect((await deliver(caller, task!, 1)).status).toBe(200);
  }
  expect(await lease(callers[0]!)).toEqual([]);
  expect((await deliver(callers[0]!, tasks[1]!, 1)).status).toBe(404);
  await callers[0]!.ok("DELETE", `${PLANS}/${plans[0]!}`);
  await expect.poll(async () => (await callers[0]!.call("GET", `${TASKS}/${tasks[0]!.id}`)).status).toBe(404);
  await sleep(200);
  expect((await callers[1]!.ok("GET", `${TASKS}/${tasks[1]!.id}/outcome`)).trajectory.reward).toBe(1);
});

function named({ id, lease_token }: { readonly id: string; readonly lease_token: string }) {
  return { id, lease_token };
}
