/** Broker that distributes rollouts with BullMQ on Redis: validates the address and the name of the queue, and connects on use. */
import { ConfigError } from "../../base/errors.ts";
import type { RolloutBroker } from "../environment/index.ts";
import { openReceiver } from "./bullmq-receiver.ts";
import { openSender } from "./bullmq-sender.ts";
import type { RedisQueue } from "./redis-queue.ts";

/** Redis server and name of the queue, for {@link bullmq}. */
export interface BullmqOptions {
  /**
   * Redis server: its address (`redis://user:password@host:6379/0`, or `rediss://…` for TLS), or options of ioredis, such as `host`, `port`,
   * `password`, `tls` and `sentinels`.
   */
  readonly connection: string | Readonly<Record<string, unknown>>;
  /** Name of the queue, without colons. A training run and its workers need the same one. @default "whetstone" */
  readonly queue?: string | undefined;
}

/**
 * Distributes rollouts to workers with BullMQ on Redis, instead of the service. Needs the packages `bullmq` and `ioredis`, which are loaded
 * when a run or a worker connects.
 *
 * The queue has a job per rollout with the ids of its plan, scenario and environment. Scenarios, leases and outcomes stay in the service: a
 * worker leases the rollout of its job, so that a job that is delivered twice is played once. A run adds jobs that Redis has lost again, and
 * removes its jobs when it ends.
 *
 * @param options - Redis server and name of the queue.
 * @returns the broker, which connects when a run or a worker uses it.
 * @throws ConfigError `E_CONFIG` for an address that is not a URL of Redis, and for an empty name of a queue or a name with a colon.
 * @example
 * ```ts
 * import { runWorker } from "whetstone/environment";
 * import { bullmq } from "whetstone/brokers/bullmq";
 * import { trainRl } from "whetstone/train";
 *
 * const broker = bullmq({ connection: "redis://127.0.0.1:6379", queue: "sums" });
 * // On the machine of the run:
 * await trainRl({ model, environment, steps: 20, runDir: "runs/sums", workers: broker }).done;
 * // On every other machine:
 * await runWorker({ service, environments: [environment], broker });
 * ```
 */
export function bullmq({ connection, queue: name = "whetstone" }: BullmqOptions): RolloutBroker {
  if (name === "" || name.includes(":"))
    throw new ConfigError(`Expected the name of a queue without colons, got ${JSON.stringify(name)}`, { param: "queue" });
  const isAddress = typeof connection === "string";
  const host = isAddress ? hostOf(connection) : String(connection["host"] ?? "its address");
  const queue: RedisQueue = { name, connection: isAddress ? { url: connection } : connection, label: `Redis at ${host}` };
  return { openSender: () => openSender(queue), openReceiver: (options) => openReceiver(queue, options) };
}

/** Returns host and port of an address, without its password. @throws ConfigError `E_CONFIG` if it is not an address of Redis. */
function hostOf(address: string): string {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (url !== null && (url.protocol === "redis:" || url.protocol === "rediss:") && url.hostname !== "") return url.host;
  throw new ConfigError("Expected the address of a Redis server, redis://host:6379 or rediss://host:6379, got another text", {
    param: "connection",
  });
}
