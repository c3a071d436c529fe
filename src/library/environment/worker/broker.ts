/**
 * Message brokers that distribute rollouts to workers. A message only names a rollout: plans, leases and outcomes stay in the service, which
 * accepts one outcome per rollout. A broker may therefore lose messages, or deliver them more than once.
 */

/** Rollout of a plan, as the message of a broker. */
export interface RolloutMessage {
  /** UUID of the plan. */
  readonly planId: string;
  /** Index of the scenario. */
  readonly group: number;
  /** Index of the rollout in its group, from 0. */
  readonly index: number;
  /** Name of the environment. */
  readonly environment: string;
  /** Content hash of the environment. */
  readonly environmentHash: string;
}

/**
 * Message broker that distributes rollouts to workers: `workers` of `trainRl`, and `broker` of `runWorker`.
 *
 * @example
 * ```ts
 * import { bullmq } from "whetstone/brokers/bullmq";
 *
 * const broker = bullmq({ connection: "redis://127.0.0.1:6379" });
 * const sender = await broker.openSender();
 * const receiver = await broker.openReceiver({ lockSeconds: 60 });
 * await Promise.all([sender.close(), receiver.close()]);
 * ```
 */
export interface RolloutBroker {
  /**
   * Connects a process that has plans.
   *
   * @returns the sender, which need not be connected yet.
   * @throws ConfigError `E_CONFIG` if a package is not installed.
   */
  openSender(): Promise<RolloutSender>;
  /**
   * Connects a worker.
   *
   * @param options - Duration of the locks.
   * @returns the receiver, which need not be connected yet.
   * @throws ConfigError `E_CONFIG` if a package is not installed.
   */
  openReceiver(options: OpenReceiverOptions): Promise<RolloutReceiver>;
}

/**
 * Connection of a process that has plans.
 *
 * @example
 * ```ts
 * import { bullmq } from "whetstone/brokers/bullmq";
 *
 * const plan = await service.rolloutPlans.get("5f0c5a1e-7b3d-4b8e-9a55-3f6f1f0f6c1d");
 * const { id: planId, environment, environmentHash } = plan;
 * const messages = [0, 1].map((index) => ({ planId, group: 0, index, environment, environmentHash }));
 * const sender = await bullmq({ connection: "redis://127.0.0.1:6379" }).openSender();
 * await sender.send(messages);
 * await sender.remove(messages);
 * await sender.close();
 * ```
 */
export interface RolloutSender {
  /**
   * Adds messages to the queue, without the messages that the queue already has.
   *
   * @param messages - Rollouts to play.
   * @throws ConnectionError `E_CONNECTION` if the broker does not answer.
   */
  send(messages: readonly RolloutMessage[]): Promise<void>;
  /**
   * Removes messages that no worker has received. Others are unchanged.
   *
   * @param messages - Rollouts that need no worker any more.
   * @throws ConnectionError `E_CONNECTION` if the broker does not answer.
   */
  remove(messages: readonly RolloutMessage[]): Promise<void>;
  /** Ends the connection. */
  close(): Promise<void>;
}

/** Duration of the locks of a receiver. */
export interface OpenReceiverOptions {
  /** Seconds after which another worker receives a message that was neither extended nor settled. */
  readonly lockSeconds: number;
}

/** Max wait for a message. */
export interface ReceiveOptions {
  /** Max seconds to wait for a message. */
  readonly waitSeconds: number;
  /** Ends the wait. */
  readonly signal: AbortSignal;
}

/**
 * Connection of a worker.
 *
 * @example
 * ```ts
 * import { bullmq } from "whetstone/brokers/bullmq";
 *
 * const { signal } = new AbortController();
 * const receiver = await bullmq({ connection: "redis://127.0.0.1:6379" }).openReceiver({ lockSeconds: 60 });
 * const received = await receiver.receive({ waitSeconds: 20, signal });
 * await receiver.extend();
 * await received?.complete();
 * await receiver.close();
 * ```
 */
export interface RolloutReceiver {
  /**
   * Receives a message and locks it.
   *
   * @param options - Max wait, and a signal that ends it.
   * @returns the message; null if there was none.
   * @throws ConnectionError `E_CONNECTION` if the broker cannot be reached.
   */
  receive(options: ReceiveOptions): Promise<ReceivedRollout | null>;
  /**
   * Extends the locks of all messages that are not settled.
   *
   * @throws ConnectionError `E_CONNECTION` if the broker does not answer.
   */
  extend(): Promise<void>;
  /** Ends the connection. Messages that are not settled are received by other workers when their locks expire. */
  close(): Promise<void>;
}

/**
 * Message that a worker has received. Each of its methods settles it.
 *
 * @example
 * ```ts
 * import { bullmq } from "whetstone/brokers/bullmq";
 *
 * const { signal } = new AbortController();
 * const receiver = await bullmq({ connection: "redis://127.0.0.1:6379" }).openReceiver({ lockSeconds: 60 });
 * const received = await receiver.receive({ waitSeconds: 20, signal });
 * if (received !== null && received.receptions > 3) await received.complete();
 * else await received?.release(1000);
 * ```
 */
export interface ReceivedRollout {
  /** Rollout to play. */
  readonly message: RolloutMessage;
  /** Number of times that workers have received the message, this one included. */
  readonly receptions: number;
  /**
   * Removes the message from the queue: its rollout needs no worker any more.
   *
   * @throws ConnectionError `E_CONNECTION` if the broker does not answer.
   */
  complete(): Promise<void>;
  /**
   * Returns the message to the queue.
   *
   * @param delayMs - Milliseconds until a worker can receive it again.
   * @throws ConnectionError `E_CONNECTION` if the broker does not answer.
   */
  release(delayMs: number): Promise<void>;
}
