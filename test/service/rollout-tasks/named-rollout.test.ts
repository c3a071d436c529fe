/** Leases of named rollouts, which workers of a message broker request. */
import { expect, test } from "vitest";
import { startTestService, UNKNOWN_ID } from "../support.ts";
import { createPlan, deliver, HASH, lease, OTHER_HASH, outcomePath, PLANS, TASKS } from "./support.ts";

const ENVIRONMENTS = [{ name: "letters", hash: HASH }];

test("a lease that names a rollout gets this rollout, and none while another worker has it", async () => {
  const service = await startTestService();
  const plan = await createPlan(service, 2);
  const named = { plan_id: plan.id, rollout: { group: 1, index: 1 }, max: 10 };
  const [task, ...more] = await lease(service, named);
  expect(more).toEqual([]);
  expect(task).toMatchObject({ group: 1, index: 1, scenario: { text: "scenario 1" } });
  expect(await lease(service, named)).toEqual([]);
  const waiting = lease(service, { ...named, wait: 30 });
  await service.ok("POST", `${TASKS}/release`, { leases: [{ id: task!.id, lease_token: task!.lease_token }] });
  expect(await waiting).toMatchObject([{ id: task!.id }]);
  expect(await lease(service, { max: 10 })).toHaveLength(3);
});

test("a lease that names a rollout without need of a worker is refused at once", async () => {
  const service = await startTestService();
  const plan = await createPlan(service, 1);
  const refusal = async (fields: object) => {
    const body = { worker: "test", environments: ENVIRONMENTS, plan_id: plan.id, rollout: { group: 0, index: 0 }, wait: 30, ...fields };
    const { status, body: answer } = await service.call("POST", `${TASKS}/lease`, body);
    return { status, param: answer.error.param as unknown };
  };
  expect(await refusal({ plan_id: null })).toEqual({ status: 422, param: "plan_id" });
  expect(await refusal({ plan_id: UNKNOWN_ID })).toEqual({ status: 404, param: "plan_id" });
  expect(await refusal({ rollout: { group: 0, index: 2 } })).toEqual({ status: 404, param: "rollout" });
  expect(await refusal({ rollout: { group: 0, index: -1 } })).toMatchObject({ status: 422 });
  const [task] = await lease(service, { plan_id: plan.id, rollout: { group: 0, index: 0 } });
  expect((await deliver(service, task!, 1)).status).toBe(200);
  expect(await refusal({})).toEqual({ status: 409, param: "rollout" });
  // A waiting request is answered when another worker delivers.
  const [other] = await lease(service);
  const waiting = refusal({ rollout: { group: 0, index: 1 } });
  await service.ok("PUT", outcomePath(other!), { exception: { type: "Error", message: "no" } });
  expect(await waiting).toEqual({ status: 409, param: "rollout" });
  await service.ok("POST", `${PLANS}/${plan.id}/cancel`);
  expect(await refusal({})).toEqual({ status: 409, param: "plan_id" });
});

test("a worker with another environment is refused a named rollout while a client follows the plan", async () => {
  const service = await startTestService();
  const plan = await createPlan(service, 1);
  const environments = (name: string, hash: string) => ({
    plan_id: plan.id,
    rollout: { group: 0, index: 0 },
    environments: [{ name, hash }],
  });
  expect(await lease(service, environments("letters", OTHER_HASH))).toEqual([]);
  await service.ok("GET", `${PLANS}/${plan.id}/finished`);
  for (const [name, hash] of [
    ["letters", OTHER_HASH],
    ["words", HASH],
  ] as const) {
    const answer = await service.call("POST", `${TASKS}/lease`, { worker: "test", ...environments(name, hash) });
    expect(answer).toMatchObject({ status: 409, body: { error: { error_code: "E_CONFLICT", param: "environments" } } });
  }
  expect(await lease(service, environments("letters", HASH))).toHaveLength(1);
});
