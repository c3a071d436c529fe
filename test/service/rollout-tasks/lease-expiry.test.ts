/** Expiry of a lease that begins while the search for expired leases ends. */
import type { KyselyPlugin } from "kysely";
import { expect, onTestFinished, test } from "vitest";
import { deferred } from "../../../src/base/util/deferred.ts";
import { stderrLogger } from "../../../src/service/common/logger.ts";
import { RolloutLeases } from "../../../src/service/rollout-tasks/leases.ts";
import { addPlanGroups, newPlan } from "../../../src/service/rollout-tasks/plans.ts";
import { insertPlan } from "../../../src/service/store/rollout-plans.ts";
import { openPostgres } from "../../../src/service/store/postgres.ts";
import { missingPostgres, temporarySchema } from "../../support/postgres.ts";
import { HASH } from "./support.ts";

/** Delays the answers to the question whether a task is leased. They keep their connection, of which SQLite has only one. */
function delaysAnswers(until: Promise<void>) {
  const questions = new WeakSet<object>();
  let count = 0;
  const plugin: KyselyPlugin = {
    transformQuery({ node, queryId }) {
      const text = JSON.stringify(node);
      // Other queries of leased tasks compare the times at which the leases end.
      if (node.kind === "SelectQueryNode" && text.includes('"leased"') && !text.includes('"lease_until"')) questions.add(queryId);
      return node;
    },
    async transformResult({ result, queryId }) {
      if (questions.has(queryId)) {
        count++;
        await until;
      }
      return result;
    },
  };
  return { plugin, count: () => count };
}

const reason = missingPostgres === null ? "" : `: ${missingPostgres}`;

test.skipIf(missingPostgres !== null)(`a lease expires that began after the last look for leases${reason}`, async () => {
  const store = await openPostgres(temporarySchema());
  onTestFinished(() => store.destroy());
  const { promise, resolve } = deferred<void>();
  const { plugin, count } = delaysAnswers(promise);
  const leases = new RolloutLeases({ store: store.withPlugin(plugin), logger: stderrLogger });
  onTestFinished(() => leases.close());
  const request = { worker: "test", environments: [{ name: "letters", hash: HASH }], lease_seconds: 1 };
  expect((await leases.lease(store, request, new AbortController().signal)).data).toEqual([]);
  await expect.poll(count).toBe(1);
  const plan = await newPlan(store, { environment: "letters", environment_hash: HASH, policy: "tiny", group_size: 1, seed: 7 });
  await insertPlan(store, plan);
  await addPlanGroups(store, plan.id, { groups: [{ group: 0, scenario: {} }] }, { maxRolloutTasks: 1 });
  expect((await leases.lease(store, request, new AbortController().signal)).data).toHaveLength(1);
  resolve();
  const state = async () => (await store.selectFrom("rollout_tasks").select("state").executeTakeFirstOrThrow()).state;
  await expect.poll(state).toBe("pending");
});
