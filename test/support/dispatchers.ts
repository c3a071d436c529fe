/** Ways in which rollouts reach workers: leases of the service, and BullMQ on the Redis server of this machine. */
import { randomUUID } from "node:crypto";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import { onTestFinished } from "vitest";
import { bullmq } from "../../src/library/brokers/bullmq.ts";
import type { RolloutPlanInfo } from "../../src/library/client/index.ts";
import type { RolloutBroker } from "../../src/library/environment/index.ts";

export const REDIS = "redis://127.0.0.1:6379";

/** Reason why the tests on Redis are skipped; null if the server answers. */
export const missingRedis: string | null = await (async () => {
  const client = new Redis(REDIS, { lazyConnect: true, retryStrategy: () => null, connectTimeout: 2000, maxRetriesPerRequest: 0 });
  client.on("error", () => undefined);
  try {
    await client.connect();
    await client.ping();
    return null;
  } catch {
    return `no Redis server at ${REDIS}`;
  } finally {
    client.disconnect();
  }
})();

/** Queue of a test, with its jobs. */
export interface TestQueue {
  readonly name: string;
  readonly broker: RolloutBroker;
  /** The queue, as BullMQ shows it. */
  readonly queue: Queue;
  /** Returns the number of jobs in the queue, in any state. */
  count(): Promise<number>;
}

/** Opens a queue that is removed at the end of the test. */
export function temporaryQueue(): TestQueue {
  const name = `whetstone-test-${randomUUID()}`;
  const queue = new Queue(name, { connection: { url: REDIS } });
  onTestFinished(async () => {
    await queue.obliterate({ force: true });
    await queue.close();
  });
  const states = ["active", "completed", "delayed", "failed", "prioritized", "wait"] as const;
  const count = async () => Object.values(await queue.getJobCounts(...states)).reduce((sum, each) => sum + each, 0);
  return { name, broker: bullmq({ connection: REDIS, queue: name }), queue, count };
}

/** Sends the rollouts of groups of a plan to a broker. */
export async function sendRollouts(broker: RolloutBroker, plan: RolloutPlanInfo, groups: readonly number[]): Promise<void> {
  const { id: planId, environment, environmentHash, groupSize } = plan;
  const sender = await broker.openSender();
  await sender.send(
    groups.flatMap((group) => Array.from({ length: groupSize }, (_, index) => ({ planId, group, index, environment, environmentHash }))),
  );
  await sender.close();
}

/** Way in which rollouts reach workers. */
export interface Dispatcher {
  /** Option `workers` of a run. */
  readonly workers: true | RolloutBroker;
  /** Option `broker` of a worker. */
  readonly broker: RolloutBroker | undefined;
  /** Makes the rollouts of groups of a plan available to workers. A run does this for its own plans. */
  send(plan: RolloutPlanInfo, groups: readonly number[]): Promise<void>;
  /** Returns the number of jobs in the queue of the broker. */
  count(): Promise<number>;
}

/** The ways, with the reason why tests of one are skipped; null if they run. */
export const DISPATCHERS: readonly { readonly name: string; readonly missing: string | null; readonly open: () => Dispatcher }[] = [
  {
    name: "leases of the service",
    missing: null,
    open: () => ({ workers: true, broker: undefined, send: () => Promise.resolve(), count: () => Promise.resolve(0) }),
  },
  {
    name: `BullMQ${missingRedis === null ? "" : `: ${missingRedis}`}`,
    missing: missingRedis,
    open: () => {
      const { broker, count } = temporaryQueue();
      return { workers: broker, broker, send: (plan, groups) => sendRollouts(broker, plan, groups), count };
    },
  },
];
