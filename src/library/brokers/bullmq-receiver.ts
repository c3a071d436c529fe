/** Receiving side of the BullMQ broker: a worker takes jobs from the queue, renews their locks, and settles each of them. */
import { randomUUID } from "node:crypto";
import type { Job, Worker } from "bullmq";
import { onceAborted } from "../../base/util/abort.ts";
import type { OpenReceiverOptions, ReceivedRollout, ReceiveOptions, RolloutReceiver } from "../environment/index.ts";
import { awaitCommand, connectionError, loadBullmq, rolloutMessageOf, type RedisQueue } from "./redis-queue.ts";

/** Max milliseconds of a wait for a job before the state of the connection is checked. */
const MAX_WAIT_MS = 2_000;

/** Seconds for which Redis holds a request for a job, and thus max duration of {@link RolloutReceiver.close}. */
const HOLD_SECONDS = 1;

/** Connects a worker. @throws ConfigError `E_CONFIG` if BullMQ is not installed. */
export async function openReceiver(queue: RedisQueue, { lockSeconds }: OpenReceiverOptions): Promise<RolloutReceiver> {
  const { Worker: BullmqWorker } = await loadBullmq();
  const lockMs = lockSeconds * 1000;
  const worker = new BullmqWorker(queue.name, null, {
    connection: { ...queue.connection, maxRetriesPerRequest: null },
    autorun: false,
    drainDelay: HOLD_SECONDS,
    lockDuration: lockMs,
    stalledInterval: Math.max(1000, lockMs / 4),
    // Stalled jobs are always delivered again: the service limits how often a rollout is leased.
    maxStalledCount: Number.MAX_SAFE_INTEGER,
  });
  return new BullmqReceiver(queue, worker, lockMs);
}

/** Job that is locked with a token. */
interface LockedJob {
  readonly job: Job;
  readonly token: string;
}

/** Receiver of rollouts from a queue of BullMQ, which fetches its jobs one by one. */
class BullmqReceiver implements RolloutReceiver {
  readonly #redis: RedisQueue;
  readonly #worker: Worker;
  readonly #lockMs: number;
  /** Jobs that were received but not settled, whose locks are renewed. */
  readonly #locked = new Set<LockedJob>();
  /** Request for a job that outlived its call of {@link receive}; the next call continues to wait for it. Null for none. */
  #fetching: Promise<LockedJob | null> | null = null;
  /** Error of the connection since Redis last answered; null for none. */
  #lastError: Error | null = null;

  constructor(redis: RedisQueue, worker: Worker, lockMs: number) {
    this.#redis = redis;
    this.#worker = worker;
    this.#lockMs = lockMs;
    worker.on("error", (error) => (this.#lastError = error));
    worker.on("ready", () => (this.#lastError = null));
    // BullMQ starts this timer only with `autorun`; it returns the jobs of workers that have died to the queue.
    worker.startStalledCheckTimer().catch((error: unknown) => (this.#lastError = error as Error));
  }

  async receive({ waitSeconds, signal }: ReceiveOptions): Promise<ReceivedRollout | null> {
    const endsAtMs = performance.now() + waitSeconds * 1000;
    for (;;) {
      const fetched = await this.#nextJob(Math.min(endsAtMs - performance.now(), MAX_WAIT_MS), signal);
      const received = fetched === null ? null : await this.#read(fetched);
      if (received !== null) return received;
      if (signal.aborted) return null;
      if (this.#lastError !== null) throw connectionError(this.#redis, this.#lastError);
      if (performance.now() >= endsAtMs) return null;
    }
  }

  async extend(): Promise<void> {
    const locked = [...this.#locked];
    if (locked.length === 0) return;
    const ids = locked.map(({ job }) => job.id ?? "");
    const tokens = locked.map(({ token }) => token);
    // A lock that has expired is of no concern: the lease of the rollout decides which worker plays it.
    await this.#command(this.#worker.extendJobLocks(ids, tokens, this.#lockMs));
  }

  async close(): Promise<void> {
    const close = async () => {
      const isConnected = this.#lastError === null;
      if (isConnected) await this.#abandonFetch();
      // Without a connection, closing by force does not wait for the commands in flight.
      await this.#worker.close(!isConnected);
    };
    await this.#command(close()).catch(() => undefined);
  }

  /**
   * Waits for a job. Returns null if there was none within `timeoutMs`. BullMQ cannot cancel the request, so it remains for the next call;
   * after an abort, the job of the request is returned to the queue.
   */
  async #nextJob(timeoutMs: number, signal: AbortSignal): Promise<LockedJob | null> {
    this.#fetching ??= this.#fetch();
    const fetching = this.#fetching;
    let timer: NodeJS.Timeout | undefined;
    let removeListener = () => {};
    const waitOver = new Promise<"over">((resolve) => {
      timer = setTimeout(() => resolve("over"), Math.max(0, timeoutMs));
      removeListener = onceAborted(signal, () => resolve("over"));
    });
    try {
      const job = await Promise.race([fetching, waitOver]);
      if (job !== "over") {
        this.#fetching = null;
        return job;
      }
    } catch (error) {
      this.#fetching = null;
      throw connectionError(this.#redis, error);
    } finally {
      clearTimeout(timer);
      removeListener();
    }
    if (signal.aborted) void this.#abandonFetch();
    return null;
  }

  /** Requests a job and locks it; null if Redis had none for {@link HOLD_SECONDS}. */
  async #fetch(): Promise<LockedJob | null> {
    const token = randomUUID();
    const job = (await this.#worker.getNextJob(token)) as Job | undefined;
    this.#lastError = null;
    return job === undefined ? null : { job, token };
  }

  /** Returns the job of a request that nobody waits for to the queue. If this fails, the lock of the job expires. */
  async #abandonFetch(): Promise<void> {
    const fetching = this.#fetching;
    this.#fetching = null;
    try {
      const fetched = await fetching;
      await fetched?.job.moveToWait(fetched.token);
    } catch (error) {
      this.#lastError = error as Error;
    }
  }

  /** Reads a job. A job of another program is marked as failed, and null is returned. */
  async #read(locked: LockedJob): Promise<ReceivedRollout | null> {
    const { job, token } = locked;
    const message = rolloutMessageOf(job.data);
    if (message === null) {
      await this.#command(job.moveToFailed(new Error("The job names no rollout"), token));
      return null;
    }
    this.#locked.add(locked);
    const settle = async (command: () => Promise<unknown>): Promise<void> => {
      this.#locked.delete(locked);
      await this.#command(command().catch(ignoreLostLock));
    };
    return {
      message,
      receptions: job.attemptsStarted,
      complete: () => settle(() => job.moveToCompleted(null, token, false)),
      release: (delayMs) => settle(() => (delayMs > 0 ? job.moveToDelayed(Date.now() + delayMs, token) : job.moveToWait(token))),
    };
  }

  /** Waits for a command with a time limit, see {@link awaitCommand}. */
  async #command<T>(command: Promise<T>): Promise<T> {
    return awaitCommand(this.#redis, command, () => this.#lastError);
  }
}

/** Ignores that the lock of a job has expired, after which another worker settles the job. @throws any other error. */
function ignoreLostLock(error: unknown): void {
  // Only the errors of a job's state have a number as their code in BullMQ; errors of the connection have a string or none.
  if (typeof (error as { readonly code?: unknown }).code !== "number") throw error;
}
