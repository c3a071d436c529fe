import { expect, test } from "vitest";
import { createModel, goodGroup, RL_JOBS, startTestService, UNKNOWN_ID } from "../support.ts";
import { createPlan, deliver, lease, outcomePath, PLANS, trajectoryOf } from "./support.ts";

/** Ends a job and returns its events. */
async function done(service: Awaited<ReturnType<typeof startTestService>>, id: string): Promise<any> {
  await expect.poll(async () => (await service.ok("GET", `${RL_JOBS}/${id}`)).status).toMatch(/succeeded|failed/u);
  return service.ok("GET", `${RL_JOBS}/${id}`);
}

/** Rows that the engine was given in the job that ended last. */
function rowsOf(service: Awaited<ReturnType<typeof startTestService>>): unknown {
  const calls = service.engine.calls.filter(({ verb }) => verb === "forwardBackward");
  return calls.at(-1)?.detail;
}

test("a job from stored rollouts trains on the same rows as a job from sent ones, with the rewards of the request", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  await createPlan(service, 1);
  const tasks = await lease(service, { max: 2 });
  for (const [index, task] of tasks.entries()) await deliver(service, task, index);
  const sent = await service.ok("POST", RL_JOBS, {
    model_id: id,
    trajectory_groups: [{ trajectories: [trajectoryOf(3), trajectoryOf(1)] }],
  });
  expect((await done(service, sent.id)).status).toBe("succeeded");
  const expected = rowsOf(service);
  const trajectories = [{ stored_rollout: tasks[0]!.id, reward: 3 }, { stored_rollout: tasks[1]!.id }];
  const stored = await service.ok("POST", RL_JOBS, { model_id: id, trajectory_groups: [{ trajectories }] });
  expect((await done(service, stored.id)).status).toBe("succeeded");
  expect(rowsOf(service)).toEqual(expected);
});

test("a job keeps its own copy of stored rollouts, and mixes them with sent ones", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  const plan = await createPlan(service, 1);
  const [task] = await lease(service);
  await deliver(service, task!, 1);
  const trajectories = [{ stored_rollout: task!.id }, ...goodGroup().trajectories];
  const job = await service.ok("POST", RL_JOBS, { model_id: id, trajectory_groups: [{ trajectories }] });
  await service.ok("DELETE", `${PLANS}/${plan.id}`);
  expect((await done(service, job.id)).status).toBe("succeeded");
});

test("stored rollouts may exceed the limit of bodies", async () => {
  const maxBodyBytes = 300_000;
  const service = await startTestService({ limits: { maxBodyBytes } });
  const { id } = await createModel(service);
  await createPlan(service, 4);
  const tasks = await lease(service, { max: 8 });
  // Text that is not trained makes them large.
  const logs = ["x".repeat(200_000)];
  for (const [index, task] of tasks.entries())
    await service.ok("PUT", outcomePath(task), { trajectory: { ...trajectoryOf(index % 2), logs } });
  const groups = [0, 1, 2, 3].map((group) => ({
    trajectories: tasks.filter((task) => task.group === group).map((task) => ({ stored_rollout: task.id })),
  }));
  const job = await service.ok("POST", RL_JOBS, { model_id: id, trajectory_groups: groups });
  expect((await done(service, job.id)).status).toBe("succeeded");
});

test("a job names rollouts that exist, have a trajectory, and are different", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  await createPlan(service, 1);
  const tasks = await lease(service, { max: 2 });
  await deliver(service, tasks[0]!, 1);
  const create = (trajectories: object[]) => service.call("POST", RL_JOBS, { model_id: id, trajectory_groups: [{ trajectories }] });
  const own = { stored_rollout: tasks[0]!.id };
  const error = (status: number, code: string, param = "trajectory_groups") => ({ status, body: { error: { error_code: code, param } } });
  expect(await create([own, { stored_rollout: UNKNOWN_ID }])).toMatchObject(error(404, "E_NOT_FOUND"));
  expect(await create([own, { stored_rollout: tasks[1]!.id }])).toMatchObject(error(409, "E_CONFLICT"));
  expect(await create([own, own])).toMatchObject(error(422, "E_ARGUMENT"));
  const path = "trajectory_groups.0.trajectories.0";
  expect(await create([{ ...own, tools: [] }])).toMatchObject({ status: 422, body: { error: { param: expect.stringContaining(path) } } });
  expect((await service.ok("GET", RL_JOBS)).data).toEqual([]);
});
