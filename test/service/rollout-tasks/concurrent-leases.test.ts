/** Leases of rollouts by many workers at the same time: through one service on SQLite, and through two on one Postgres database. */
import { randomUUID } from "node:crypto";
import { describe, expect, onTestFinished, test } from "vitest";
import { transactLocking } from "../../../src/service/store/database.ts";
import { openPostgres } from "../../../src/service/store/postgres.ts";
import { claimTasks, type Claim } from "../../../src/service/store/rollout-tasks.ts";
import type { Store } from "../../../src/service/store/tables.ts";
import { missingPostgres, onSqlite, queryPostgres, temporarySchema } from "../../support/postgres.ts";
import { startTestService, temporaryDirectory, type TestService } from "../support.ts";
import { addGroups, createPlan, deliver, HASH, lease, type Lease, PLANS } from "./support.ts";

const TASKS = 500;
const WORKERS = 6;

/** Leases tasks through a service with several workers at the same time, until none is left. */
async function leaseAll(service: TestService): Promise<Lease[]> {
  const work = async (index: number): Promise<Lease[]> => {
    const leased: Lease[] = [];
    for (;;) {
      const some = await lease(service, { worker: `worker ${index}`, max: 3 + index, lease_seconds: 3600 });
      if (some.length === 0) return leased;
      leased.push(...some);
    }
  };
  return (await Promise.all(Array.from({ length: WORKERS }, (_, index) => work(index)))).flat();
}

test(`${TASKS} tasks are leased once each by concurrent workers of a service on SQLite`, async () => {
  onSqlite();
  const service = await startTestService();
  await createPlan(service, TASKS, { group_size: 1 });
  const leased = await leaseAll(service);
  expect(leased).toHaveLength(TASKS);
  expect(new Set(leased.map(({ id }) => id)).size).toBe(TASKS);
});

describe.skipIf(missingPostgres !== null)(
  `two services on one Postgres database${missingPostgres === null ? "" : `: ${missingPostgres}`}`,
  () => {
    async function startTwo(): Promise<{ readonly services: readonly [TestService, TestService]; readonly database: string }> {
      const [dataDir, database] = [await temporaryDirectory(), temporarySchema()];
      const start = () => startTestService({ dataDir, database });
      return { services: [await start(), await start()], database };
    }

    test(`${TASKS} tasks are leased once each by concurrent workers of both services`, async () => {
      const { services, database } = await startTwo();
      await createPlan(services[0], TASKS, { group_size: 1 });
      const leased = await Promise.all(services.map(leaseAll));
      expect(leased.flat()).toHaveLength(TASKS);
      expect(new Set(leased.flat().map(({ id }) => id)).size).toBe(TASKS);
      for (const some of leased) expect(some.length).toBeGreaterThan(0);
      expect(await queryPostgres(database, "select state, leases, count(*) from rollout_tasks group by 1, 2")).toEqual([
        { state: "leased", leases: 1, count: TASKS },
      ]);
    });

    test("a claim takes other tasks than a claim that is not committed, and neither waits for nor repeats the other", async () => {
      const { services, database } = await startTwo();
      await createPlan(services[0], 10, { group_size: 1 });
      const open = async (): Promise<Store> => {
        const store = await openPostgres(database);
        onTestFinished(() => store.destroy());
        return store;
      };
      const [one, other] = [await open(), await open()];
      let calls = 0;
      const claim = (worker: string): Claim => ({
        worker,
        environments: [{ name: "letters", hash: HASH }],
        planId: null,
        rollout: null,
        max: 4,
        token: randomUUID(),
        until: "2999-01-01T00:00:00.000Z",
      });
      const [first, second, third] = await transactLocking(one, async (transaction) => {
        calls++;
        const mine = await claimTasks(transaction, claim("one"));
        const others: Awaited<ReturnType<typeof claimTasks>>[] = [];
        // The first claim is open during the others.
        for (let count = 0; count < 2; count++)
          others.push(
            await transactLocking(other, (inner) => {
              calls++;
              return claimTasks(inner, claim("other"));
            }),
          );
        return [mine, ...others];
      });
      expect([first, second, third].map((claimed) => claimed!.tasks.map(({ seq }) => seq))).toEqual([
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
      ]);
      expect(calls).toBe(3);
    });

    test("a waiting lease gets tasks that were added through the other service, and a waiting reader what was delivered there", async () => {
      const { services } = await startTwo();
      const [one, other] = services;
      const plan = await createPlan(one, 0, { group_size: 1 });
      const waiting = lease(other, { wait: 30 });
      await addGroups(one, plan.id, 1);
      const [task] = await waiting;
      expect(task).toBeDefined();
      const finished = one.ok("GET", `${PLANS}/${plan.id}/finished?wait=30`);
      expect((await deliver(other, task!, 1)).status).toBe(200);
      expect((await finished).data).toMatchObject([{ id: task!.id, status: "done" }]);
      // A plan that is cancelled through the other service ends the wait, too.
      await addGroups(one, plan.id, 1, 1);
      const rest = one.ok("GET", `${PLANS}/${plan.id}/finished?after=1&wait=30`);
      await other.ok("POST", `${PLANS}/${plan.id}/cancel`);
      expect((await rest).plan.status).toBe("cancelled");
    });

    test("deliveries through both services at the same time are recorded once each, in an order without gaps", async () => {
      const { services } = await startTwo();
      const plan = await createPlan(services[0], 40, { group_size: 1 });
      const tasks = await lease(services[0], { max: 40 });
      const answers = await Promise.all(tasks.map((task, index) => deliver(services[index % 2]!, task, index)));
      expect(answers.map(({ status }) => status)).toEqual(tasks.map(() => 200));
      const { data } = await services[1].ok("GET", `${PLANS}/${plan.id}/finished?limit=100`);
      expect(data.map((task: { finished: number }) => task.finished)).toEqual(tasks.map((_, index) => index + 1));
    });
  },
);
