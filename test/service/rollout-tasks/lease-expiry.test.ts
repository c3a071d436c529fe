/** Expiry of a lease that begins while the search for expired leases ends. */
import { expect, test, vi } from "vitest";
import { deferred } from "../../../src/base/util/deferred.ts";
import type * as rolloutTasks from "../../../src/service/store/rollout-tasks.ts";
import { startTestService } from "../support.ts";
import { createPlan, lease, TASKS } from "./support.ts";

const { asked, answer } = vi.hoisted(() => ({ asked: { count: 0 }, answer: { given: Promise.resolve() } }));

// Delays the answer that no task is leased.
vi.mock("../../../src/service/store/rollout-tasks.ts", async (original) => {
  const actual = await original<typeof rolloutTasks>();
  return {
    ...actual,
    async hasLeases(store: Parameters<typeof actual.hasLeases>[0]) {
      const result = await actual.hasLeases(store);
      asked.count++;
      await answer.given;
      return result;
    },
  };
});

test("a lease expires that began after the last look for leases", async () => {
  const { promise, resolve } = deferred<void>();
  answer.given = promise;
  const service = await startTestService();
  expect(await lease(service)).toEqual([]);
  await expect.poll(() => asked.count).toBe(1);
  await createPlan(service, 1, { group_size: 1 });
  const [task] = await lease(service, { lease_seconds: 1 });
  resolve();
  await expect.poll(async () => (await service.ok("GET", `${TASKS}/${task!.id}`)).status, { timeout: 10_000 }).toBe("pending");
});
