/** Outcomes of jobs that have stopped without success: cancelled, paused, failed, or returned to the queue after a crash of the trainer. */
import { EngineError, type UnavailableError } from "../../base/errors.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { logFailure, traceOf } from "../common/logger.ts";
import { transact } from "../store/database.ts";
import { appendEvent, getJob } from "../store/jobs.ts";
import type { JobRow, Store } from "../store/tables.ts";
import { removeJobFiles } from "../training-data/job-files.ts";
import { requeueNow, settleCancelled, settleFailed } from "./endings.ts";
import { requireLease } from "./leases.ts";
import { pauseEvent, type JobPaused } from "./pause.ts";
import type { RunContext } from "./run-job.ts";
import type { RunningJob } from "./running-job.ts";
import type { SpaceWait } from "./space-wait.ts";
import type { NewEvent } from "./states.ts";
import { TrainerDeaths } from "./trainer-deaths.ts";

/** Parts of the service that outcomes need. */
type OutcomeContext = Pick<RunContext, "store" | "space" | "logger" | "limits" | "data" | "storage">;

/** Recorder of the outcomes of jobs. Each method resolves once the outcome is committed. */
export class JobOutcomes {
  readonly #context: OutcomeContext;
  readonly #spaceWait: SpaceWait;
  readonly #trainerDeaths = new TrainerDeaths();

  /** @param spaceWait - Wait for disk space when there is not even enough to record an outcome. */
  constructor(context: OutcomeContext, spaceWait: SpaceWait) {
    this.#context = context;
    this.#spaceWait = spaceWait;
  }

  /** Ends a job as cancelled. */
  cancelled(running: RunningJob): Promise<void> {
    return this.#recordEnd(running, () => settleCancelled(this.#context.store, running.jobId, running.claimed));
  }

  /** Returns a paused job to the queue. */
  paused(running: RunningJob, pause: JobPaused): Promise<void> {
    const event = pauseEvent(pause);
    return this.#record(running, () => requeue(this.#context.store, running.jobId, { claimed: running.claimed, event }));
  }

  /** Ends a job as failed. */
  async failed(running: RunningJob, error: unknown): Promise<void> {
    const { store, logger } = this.#context;
    logger.error("A training job failed", { job: running.jobId, error: traceOf(error) });
    const claimed = running.claimed ?? (await getJob(store, running.jobId));
    await this.#recordEnd(running, () => settleFailed(store, claimed, error));
  }

  /** Requeues a job after a trainer crash. The job resumes from its last committed step, unless it has reached `maxJobAttempts`. */
  async trainerDied(running: RunningJob, error: UnavailableError): Promise<void> {
    const { jobId, claimed } = running;
    const { store, limits, logger } = this.#context;
    const deaths = this.#trainerDeaths.record(await getJob(store, jobId));
    if (deaths >= limits.maxJobAttempts) {
      const message = `The trainer died ${deaths} times during the job, which made no progress in between. Send less data at once, or give the service more memory. The last death: ${error.message}`;
      await this.failed(running, new EngineError(message, { cause: error }));
      return;
    }
    logger.warn("The trainer died during a training job; the job resumes from its last committed step", { job: jobId, deaths });
    await this.#record(running, () => requeue(store, jobId, { claimed }));
  }

  /** Frees the cached batch and removes the files of a finished job. Files that cannot be removed now are removed at the next start. */
  async cleanUp(jobId: string): Promise<void> {
    const { data, storage, logger } = this.#context;
    data.forget(jobId);
    await removeJobFiles(storage, jobId).catch(logFailure(logger, "A training job's files could not be removed", { job: jobId }));
  }

  /** Commits the end of a job with `settle`, and removes the files of the job. */
  async #recordEnd(running: RunningJob, settle: () => Promise<unknown>): Promise<void> {
    await this.#record(running, settle);
    await this.cleanUp(running.jobId);
  }

  /** Commits the outcome of a job with `settle`. Waits for disk space if there is not even enough for the database. */
  async #record(running: RunningJob, settle: () => Promise<unknown>): Promise<void> {
    const { store, space, logger } = this.#context;
    for (let shortages = 1; ; shortages++) {
      try {
        // The job may have been cancelled during the wait.
        await space.freeing(() => (running.isCancelled ? settleCancelled(store, running.jobId, running.claimed) : settle()));
        return;
      } catch (error) {
        if (!isNoSpace(error) || this.#spaceWait.isClosed) throw error;
        logger.warn("The end of a training job waits for disk space to be recorded", { job: running.jobId });
        await this.#spaceWait.wait(shortages);
      }
    }
  }
}

/**
 * Returns a running job to the queue, and appends an event if one is given.
 *
 * @param options - `claimed`: the job as this process has claimed it; null if no process runs it.
 * @throws LeaseLostError if another process has claimed the job since.
 */
export function requeue(
  store: Store,
  jobId: string,
  { claimed, event }: { readonly claimed: JobRow | null; readonly event?: NewEvent | undefined },
): Promise<void> {
  return transact(store, async (transaction) => {
    if (claimed !== null) await requireLease(transaction, claimed);
    await requeueNow(transaction, await getJob(transaction, jobId));
    if (event !== undefined) await appendEvent(transaction, jobId, event);
  });
}
