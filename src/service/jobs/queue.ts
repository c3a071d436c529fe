import { ConflictError, EngineError, UnavailableError } from "../../errors.ts";
import { delay } from "../../util/delay.ts";
import { appendEvent, getJob, nextQueuedJob } from "../store/jobs.ts";
import type { JobRow, Store } from "../store/tables.ts";
import type { Changes } from "./changes.ts";
import { removeJobFiles } from "./job-files.ts";
import { runJob, type RunContext } from "./run-job.ts";
import { TrainerDeaths } from "./trainer-deaths.ts";
import { messageOf, traceOf } from "../error-text.ts";

/** How long a cancelling request waits for a running job to stop. */
const CANCEL_PATIENCE_MS = 20_000;

/** Runs jobs one after another, in the order of creation. */
export interface JobQueue {
  readonly changes: Changes;
  /** Whether {@link close} was called: nobody should wait for news any longer. */
  readonly isClosing: boolean;
  /** Looks for work; call it at start and after each accepted job. */
  wake(): void;
  /**
   * Cancels a job that is not over and waits, for at most 20 s, until a running one has stopped.
   *
   * @throws ConflictError `E_CONFLICT` when it has already succeeded or failed.
   */
  cancel(jobId: string): Promise<JobRow>;
  /** Unloads what is kept of a deleted model. */
  forgetModel(modelId: string): Promise<void>;
  /** Stops after aborting the running job, which goes on at the next start. */
  close(): Promise<void>;
}

interface Running {
  readonly jobId: string;
  readonly controller: AbortController;
  readonly settled: Promise<void>;
  isCancelled: boolean;
}

/** See {@link JobQueue}. */
export function createJobQueue(context: RunContext): JobQueue {
  const { store, changes, warm, logger, directory, limits } = context;
  let running: Running | null = null;
  let loop: Promise<void> | null = null;
  let isWoken = false;
  let isClosed = false;
  const deaths = new TrainerDeaths();

  async function work(): Promise<void> {
    while (isWoken && !isClosed) {
      isWoken = false;
      // A job whose end could not be written down may be the first in the queue still: it waits for the next wake.
      const stuck = new Set<string>();
      for (;;) {
        const job = await nextQueuedJob(store);
        if (job === undefined || isClosed || stuck.has(job.id)) break;
        await runOne(job).catch((error: unknown) => {
          stuck.add(job.id);
          logger.error("The end of a training job could not be recorded", { job: job.id, error: traceOf(error) });
        });
      }
    }
  }
  async function runOne(job: JobRow): Promise<void> {
    const controller = new AbortController();
    let settle: () => void = () => undefined;
    const mine: Running = { jobId: job.id, controller, isCancelled: false, settled: new Promise((resolve) => (settle = resolve)) };
    running = mine;
    try {
      await runJob(context, job, controller.signal);
    } catch (error) {
      // A stopping service leaves the row at `running`: the next start takes the job up again.
      if (isClosed && !mine.isCancelled) return;
      if (mine.isCancelled) {
        await settleCancelled(store, job.id);
        await cleanUp(job.id);
      } else if (error instanceof UnavailableError) await resumeOrFail(job.id, error);
      else await fail(job.id, error);
    } finally {
      running = null;
      settle();
      changes.notify();
    }
  }

  async function fail(jobId: string, error: unknown): Promise<void> {
    logger.error("A training job failed", { job: jobId, error: traceOf(error) });
    await settleFailed(store, jobId, error);
    await cleanUp(jobId);
  }

  /** Requeues a job during which the trainer died: it resumes from its last committed step, unless the trainer keeps dying in it. */
  async function resumeOrFail(jobId: string, error: UnavailableError): Promise<void> {
    const count = deaths.note(await getJob(store, jobId));
    if (count >= limits.maxJobAttempts) {
      const message = `The trainer died ${count} times during the job, which made no progress in between. Send less data at once, or give the service more memory. The last death: ${error.message}`;
      await fail(jobId, new EngineError(message, { cause: error }));
      return;
    }
    logger.warn("The trainer died during a training job; the job resumes from its last committed step", { job: jobId, deaths: count });
    await store.transaction().execute(async (transaction) => requeueNow(transaction, await getJob(transaction, jobId)));
  }

  /** Of a job that is over: what cannot be removed now is swept at the next start. */
  async function cleanUp(jobId: string): Promise<void> {
    await removeJobFiles(directory, jobId).catch((error: unknown) =>
      logger.warn("A training job's files could not be removed", { job: jobId, error: messageOf(error) }),
    );
  }

  const queue: JobQueue = {
    changes,
    get isClosing() {
      return isClosed;
    },
    wake() {
      isWoken = true;
      // Never two loops: a wake during the last look of a loop makes that loop look once more.
      loop ??= work()
        .catch((error: unknown) => logger.error("The job queue stopped", { error: traceOf(error) }))
        .finally(() => {
          loop = null;
          if (isWoken && !isClosed) queue.wake();
        });
    },
    async cancel(jobId) {
      const job = await requestCancel(store, jobId);
      if (job.status === "cancelled") {
        await cleanUp(job.id);
        changes.notify();
        return job;
      }
      const current = running;
      if (current?.jobId === job.id) {
        current.isCancelled = true;
        current.controller.abort(new DOMException("The training job was cancelled", "AbortError"));
        const patience = new AbortController();
        await Promise.race([current.settled, delay(CANCEL_PATIENCE_MS, { signal: patience.signal }).catch(() => undefined)]);
        patience.abort();
      } else {
        // Nobody runs it: it has ended just now, or its end could not be recorded.
        await settleCancelled(store, job.id);
        changes.notify();
      }
      const after = await getJob(store, job.id);
      requireCancellable(after);
      return after;
    },
    forgetModel: (modelId) => warm.forget(modelId),
    async close() {
      isClosed = true;
      changes.notify();
      running?.controller.abort(new DOMException("The service is stopping", "AbortError"));
      await loop;
    },
  };
  return queue;
}

function requireCancellable(job: JobRow): void {
  if (job.status === "succeeded" || job.status === "failed") {
    throw new ConflictError(`Training job '${job.id}' has already ${job.status} and cannot be cancelled`, { param: "training_job_id" });
  }
}

/** A queued job is cancelled here and now; of a running one it is written down, so that a crash does not bring it back. */
function requestCancel(store: Store, jobId: string): Promise<JobRow> {
  return store.transaction().execute(async (transaction) => {
    const job = await getJob(transaction, jobId);
    requireCancellable(job);
    if (job.status === "queued") return cancelNow(transaction, job);
    if (job.status === "running") await transaction.updateTable("jobs").set({ cancel_requested: 1 }).where("id", "=", job.id).execute();
    return job;
  });
}

/**
 * Ends a job as cancelled, within a transaction.
 *
 * Appends two events: `training_cancelled`, and `training_failed` as the last one, because clients of the hosted interface stop polling
 * only at `training_ended` and `training_failed`.
 */
export async function cancelNow(transaction: Store, job: JobRow): Promise<JobRow> {
  const changed = { status: "cancelled" as const, training_end: new Date().toISOString(), cancel_requested: 1, progress_dir: null };
  await transaction.updateTable("jobs").set(changed).where("id", "=", job.id).execute();
  await appendEvent(transaction, job.id, { key: "cancelled", type: "training_cancelled", data: {} });
  await appendEvent(transaction, job.id, {
    key: "end",
    type: "training_failed",
    data: { error_message: "The training job was cancelled", cancelled: true },
  });
  return { ...job, ...changed };
}

function settleCancelled(store: Store, jobId: string): Promise<unknown> {
  return store.transaction().execute(async (transaction) => {
    const job = await getJob(transaction, jobId);
    if (job.status === "running") await cancelNow(transaction, job);
  });
}

/** Returns a running job to its place in the queue, within a transaction; its progress stays. A cancelled one ends instead. */
export async function requeueNow(transaction: Store, job: JobRow): Promise<void> {
  if (job.cancel_requested === 1) await cancelNow(transaction, job);
  else await transaction.updateTable("jobs").set({ status: "queued" }).where("id", "=", job.id).execute();
}

function settleFailed(store: Store, jobId: string, error: unknown): Promise<void> {
  const message = messageOf(error);
  return store.transaction().execute(async (transaction) => {
    const changed = { status: "failed" as const, error_message: message, training_end: new Date().toISOString(), progress_dir: null };
    await transaction.updateTable("jobs").set(changed).where("id", "=", jobId).execute();
    await appendEvent(transaction, jobId, { key: "end", type: "training_failed", data: { error_message: message } });
  });
}
