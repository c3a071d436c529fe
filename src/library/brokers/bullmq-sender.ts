import type { Queue } from "bullmq";
import type { RolloutMessage, RolloutSender } from "../environment/index.ts";
import { answered, dataOf, jobIdOf, loadBullmq, type JobData, type RedisQueue } from "./redis-queue.ts";

/** Max jobs of one command. */
const JOBS_AT_ONCE = 500;

/** Connects a process that adds jobs. @throws ConfigError `E_CONFIG` if BullMQ is not installed. */
export async function openSender(queue: RedisQueue): Promise<RolloutSender> {
  const { Queue: BullmqQueue } = await loadBullmq();
  return new BullmqSender(queue, new BullmqQueue<JobData>(queue.name, { connection: queue.connection }));
}

/** Sender of rollouts to a queue of BullMQ. */
class BullmqSender implements RolloutSender {
  readonly #init: RedisQueue;
  readonly #queue: Queue<JobData>;
  #lastError: Error | null = null;

  constructor(init: RedisQueue, queue: Queue<JobData>) {
    this.#init = init;
    this.#queue = queue;
    queue.on("error", (error) => (this.#lastError = error));
  }

  async send(messages: readonly RolloutMessage[]): Promise<void> {
    for (let start = 0; start < messages.length; start += JOBS_AT_ONCE) {
      const some = messages.slice(start, start + JOBS_AT_ONCE).map((message) => ({
        name: message.environment,
        data: dataOf(message),
        // BullMQ ignores a job with an id that the queue has. A finished job leaves the queue, so that it can be added again.
        opts: { jobId: jobIdOf(message), removeOnComplete: true, removeOnFail: true },
      }));
      await this.#answered(this.#queue.addBulk(some));
    }
  }

  async remove(messages: readonly RolloutMessage[]): Promise<void> {
    for (let start = 0; start < messages.length; start += JOBS_AT_ONCE) {
      const some = messages.slice(start, start + JOBS_AT_ONCE);
      // A job that a worker has locked is left to the worker.
      await this.#answered(Promise.all(some.map((message) => this.#queue.remove(jobIdOf(message)))));
    }
  }

  async close(): Promise<void> {
    await this.#answered(this.#queue.close()).catch(() => undefined);
  }

  async #answered<T>(command: Promise<T>): Promise<T> {
    const answer = await answered(this.#init, command, () => this.#lastError);
    this.#lastError = null;
    return answer;
  }
}
