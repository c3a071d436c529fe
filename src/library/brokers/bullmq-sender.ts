/** Sending side of the BullMQ broker: a training run adds a job per rollout, and removes the jobs that no worker has taken. */
import type { Queue } from "bullmq";
import type { RolloutMessage, RolloutSender } from "../environment/index.ts";
import { awaitCommand, jobDataOf, jobIdOf, loadBullmq, type JobData, type RedisQueue } from "./redis-queue.ts";

/** Max jobs of one command. */
const MAX_JOBS = 500;

/** Connects to the queue to add jobs. @throws ConfigError `E_CONFIG` if BullMQ is not installed. */
export async function openSender(queue: RedisQueue): Promise<RolloutSender> {
  const { Queue: BullmqQueue } = await loadBullmq();
  return new BullmqSender(queue, new BullmqQueue<JobData>(queue.name, { connection: queue.connection }));
}

/** Sender of rollouts to a queue of BullMQ. */
class BullmqSender implements RolloutSender {
  readonly #redis: RedisQueue;
  readonly #queue: Queue<JobData>;
  /** Error of the connection since Redis last answered; null for none. */
  #lastError: Error | null = null;

  constructor(redis: RedisQueue, queue: Queue<JobData>) {
    this.#redis = redis;
    this.#queue = queue;
    queue.on("error", (error) => (this.#lastError = error));
  }

  async send(messages: readonly RolloutMessage[]): Promise<void> {
    for (let start = 0; start < messages.length; start += MAX_JOBS) {
      const jobs = messages.slice(start, start + MAX_JOBS).map((message) => ({
        name: message.environment,
        data: jobDataOf(message),
        // BullMQ ignores a job with an id that the queue has. A finished job leaves the queue, so that it can be added again.
        opts: { jobId: jobIdOf(message), removeOnComplete: true, removeOnFail: true },
      }));
      await this.#command(this.#queue.addBulk(jobs));
    }
  }

  async remove(messages: readonly RolloutMessage[]): Promise<void> {
    for (let start = 0; start < messages.length; start += MAX_JOBS) {
      const removed = messages.slice(start, start + MAX_JOBS);
      // A job that a worker has locked is left to the worker.
      await this.#command(Promise.all(removed.map((message) => this.#queue.remove(jobIdOf(message)))));
    }
  }

  async close(): Promise<void> {
    await this.#command(this.#queue.close()).catch(() => undefined);
  }

  /** Waits for a command with a time limit, see {@link awaitCommand}. */
  async #command<T>(command: Promise<T>): Promise<T> {
    const answer = await awaitCommand(this.#redis, command, () => this.#lastError);
    this.#lastError = null;
    return answer;
  }
}
