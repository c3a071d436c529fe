/**
 * Queue of training jobs. Its loop takes one job at a time and waits for disk space. `runJob` then runs the job and commits its success;
 * the queue records every other outcome.
 */
import { traceOf, logFailure } from "../common/logger.ts";
import { EngineError, UnavailableError } from "../../base/errors.ts";
import type { JobObserver } from "../observability/observer.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { appendEvent, getJob } from "../store/jobs.ts";
import { DatabaseUnavailableError } from "../store/database-errors.ts";
import type { JobRow } from "../store/tables.ts";
import type { Changes } from "./changes.ts";
import type { NewEvent } from "./states.ts";
import { removeJobFiles } from "../training-data/job-files.ts";
import { requestCancel, requeueNow, requireCancellable, settleCancelled, settleFailed } from "./endings.ts";
import { observeRun, reportEnd } from "./observed.ts";
import { LeaseLostError, requireLease } from "./leases.ts";
import { JobPaused, pauseEvent, requestPause, requestResume } from "./pause.ts";
import { StorageError } from "../storage/errors.ts";
import { runJob, type RunContext } from "./run-job.ts";
import { abortCancelled, keepLease, settledWithin, STOP_PATIENCE_MS, type RunningJob } from "./running-job.ts";
import { TrainerDeaths } from "./trainer-deaths.ts";
import { messageOf } from "../../base/util/values.ts";
import { transact } from "../store/database.ts";

/** Milliseconds until the queue retries jobs after a failure to record their end. */
const RETRY_MS = 60_000;
/** Milliseconds until the queue retries after a failure of the connection to the database. */
const RECONNECT_MS = 2000;
/** Milliseconds between looks for changes that other processes of the same database have made. */
const POLL_MS = 1000;

/** Job queue. Jobs run one at a time: entities take turns, and the jobs of an entity run in order of creation. */
export class JobQueue {
  readonly #context: RunContext;
  readonly #trainerDeaths = new TrainerDeaths();
  #running: RunningJob | null = null;
  /** Loop that runs the jobs; null while it does not run. */
  #jobLoop: Promise<void> | null = null;
  /** Controller that ends the current wait for disk space; null while there is none. */
  #spaceWait: AbortController | null = null;
  /** Whether {@link wake} was called since the loop last looked for jobs. */
  #isWoken = false;
  #isClosed = false;
  /** Timer with interval {@link POLL_MS}; null before the first {@link wake}, and always on a database that only this process uses. */
  #pollTimer: NodeJS.Timeout | null = null;
  /** Time of `performance.now()` before which the timer starts no jobs, because the queue waits after a failure. */
  #quietUntilMs = 0;

  constructor(context: RunContext) {
    this.#context = context;
  }

  /** Wakes long polls about jobs. */
  get changes(): Changes {
    return this.#context.changes;
  }

  /** Whether {@link close} was called; long polls must then end. */
  get isClosing(): boolean {
    return this.#isClosed;
  }

  /** Starts processing queued jobs. Call it at start and after each accepted job. */
  wake(): void {
    if (this.#context.leases.isShared && !this.#isClosed) this.#pollTimer ??= setInterval(() => this.#lookForChanges(), POLL_MS).unref();
    this.#isWoken = true;
    // At most one loop runs. After a wake during the loop's last look for jobs, `finally` starts the loop again.
    this.#jobLoop ??= this.#runJobs()
      .catch((error: unknown) => {
        const ms = error instanceof DatabaseUnavailableError ? RECONNECT_MS : RETRY_MS;
        this.#context.logger.error(`The job queue stopped; it starts again in ${ms / 1000} s`, { error: traceOf(error) });
        this.#wakeLater(ms);
      })
      .finally(() => {
        this.#jobLoop = null;
        if (this.#isWoken && !this.#isClosed) this.wake();
      });
  }

  /** Notifies waiting requests of possible changes by other processes, and looks for jobs that this process may run. */
  #lookForChanges(): void {
    this.changes.notify();
    if (this.#jobLoop === null && performance.now() >= this.#quietUntilMs) this.wake();
  }

  /**
   * Cancels an unfinished job and waits up to {@link STOP_PATIENCE_MS} until a running job has stopped.
   *
   * @returns the job after the wait.
   * @throws ConflictError `E_CONFLICT` if the job has already succeeded or failed.
   */
  async cancel({ id }: JobRow): Promise<JobRow> {
    const job = await this.#context.space.freeing(() => requestCancel(this.#context.store, id));
    if (job.status === "cancelled") {
      await this.#cleanUp(job.id);
      this.changes.notify();
      return job;
    }
    const running = this.#running;
    if (running?.jobId === job.id) {
      abortCancelled(running);
      this.#spaceWait?.abort();
      await settledWithin(running);
    } else if (await this.#context.leases.isHeldElsewhere(this.#context.store, job)) {
      // The process that runs the job reads the request when it renews the lease.
      await this.#waitUntilStoppedElsewhere(job.id);
    } else {
      // The job is not running: it has just ended, waits for disk space, or its end could not be recorded.
      await this.#context.space.freeing(() => settleCancelled(this.#context.store, job.id, null));
      await this.#cleanUp(job.id);
      this.#spaceWait?.abort();
      this.changes.notify();
    }
    const jobAfterWait = await getJob(this.#context.store, job.id);
    requireCancellable(jobAfterWait);
    return jobAfterWait;
  }

  /**
   * Pauses an unfinished job: a running job commits its current step and stops. Waits up to {@link STOP_PATIENCE_MS} until it has stopped.
   * A job without further steps ends instead. Has no effect on a paused job.
   *
   * @returns the job after the wait.
   * @throws ConflictError `E_CONFLICT` if the job is over.
   */
  async pause({ id }: JobRow): Promise<JobRow> {
    const job = await this.#context.space.freeing(() => requestPause(this.#context.store, id));
    const running = this.#running;
    if (running?.jobId === job.id) {
      running.isPausing = true;
      await settledWithin(running);
    } else if (await this.#context.leases.isHeldElsewhere(this.#context.store, job)) {
      await this.#waitUntilStoppedElsewhere(job.id);
    } else if (job.status === "running") {
      // No process runs the job: it waits for disk space or for the storage.
      await this.#context.space.freeing(() => this.#requeue(job.id, null, pauseEvent(new JobPaused(job.committed_steps))));
      this.#spaceWait?.abort();
    }
    this.changes.notify();
    return getJob(this.#context.store, job.id);
  }

  /**
   * Returns a paused job to the queue. Has no effect on an unfinished job that is not paused.
   *
   * @throws ConflictError `E_CONFLICT` if the job is over.
   */
  async resume({ id }: JobRow): Promise<JobRow> {
    const job = await this.#context.space.freeing(() => requestResume(this.#context.store, id));
    const running = this.#running;
    // Takes back a pause that the running job has not reached.
    if (running?.jobId === job.id) running.isPausing = false;
    this.changes.notify();
    this.wake();
    return job;
  }

  /** Unloads the warm model of a deleted model. */
  forgetModel(modelId: string): Promise<void> {
    return this.#context.warm.forget(modelId);
  }

  /** Aborts the running job, which resumes at the next start, and stops the queue. */
  async close(): Promise<void> {
    this.#isClosed = true;
    if (this.#pollTimer !== null) clearInterval(this.#pollTimer);
    this.changes.notify();
    this.#running?.controller.abort(new DOMException("The service is stopping", "AbortError"));
    this.#spaceWait?.abort();
    await this.#jobLoop;
  }

  /**
   * Runs jobs until none is left. A job that ran out of disk space, or cannot reach the storage, is run again after a wait that grows with
   * each attempt.
   */
  async #runJobs(): Promise<void> {
    while (this.#isWoken && !this.#isClosed) {
      this.#isWoken = false;
      // Ids of jobs with an unrecorded end. They are skipped until the next wake, because they would be selected again immediately.
      const stuck = new Set<string>();
      let shortages = 0;
      for (;;) {
        // The job is read again after the wait: it may have been cancelled, or claimed by another process.
        if ((await this.#context.leases.next(stuck)) !== undefined) await this.#waitForSpace(shortages);
        const job = await this.#context.leases.next(stuck);
        if (job === undefined || this.#isClosed) break;
        const observed = await observeRun(this.#context, job);
        const isOver = await this.#runOne(job, observed).catch((error: unknown) => {
          // The job resumes from its last committed step once the database can be reached.
          if (error instanceof DatabaseUnavailableError) throw error;
          if (error instanceof LeaseLostError) {
            this.#context.logger.warn("A training job continues in another process, or has ended there", { job: job.id });
            return true;
          }
          stuck.add(job.id);
          this.#context.logger.error("The end of a training job could not be recorded", { job: job.id, error: traceOf(error) });
          return true;
        });
        if (observed !== null) await reportEnd(this.#context, job, observed);
        shortages = isOver ? 0 : shortages + 1;
      }
      if (stuck.size > 0) this.#wakeLater(RETRY_MS);
    }
  }

  /**
   * Runs one job and records its outcome.
   *
   * @returns false if the job ran out of disk space, or cannot reach the storage, and must run again.
   * @throws LeaseLostError if another process has the job.
   * @throws DatabaseUnavailableError if the outcome cannot be recorded now.
   */
  async #runOne(job: JobRow, observed: JobObserver | null): Promise<boolean> {
    const controller = new AbortController();
    let settle: () => void = () => undefined;
    const settled = new Promise<void>((resolve) => (settle = resolve));
    // A request that is in the row already was made earlier, but a full disk or a shutdown prevented recording the end of the job.
    const isCancelled = job.cancel_requested === 1;
    const running: RunningJob = { jobId: job.id, controller, isCancelled, isPausing: false, claimed: null, isLost: false, settled };
    this.#running = running;
    let stopRenewing: () => void = () => undefined;
    try {
      if (isCancelled) throw new DOMException("The training job was cancelled", "AbortError");
      await runJob(this.#context, job, {
        onClaimed: (claimed) => (stopRenewing = keepLease(this.#context.leases, running, claimed)),
        signal: controller.signal,
        isPausing: () => running.isPausing,
        observed,
      });
      return true;
    } catch (error) {
      return await this.#settleError(running, error);
    } finally {
      stopRenewing();
      this.#running = null;
      settle();
      this.changes.notify();
    }
  }

  /** Records the outcome of a job that has stopped with an error. Result and errors are the ones of {@link #runOne}. */
  async #settleError(running: RunningJob, error: unknown): Promise<boolean> {
    const { jobId, claimed } = running;
    if (running.isLost) throw new LeaseLostError(jobId);
    // A shutdown leaves the row at `running`; the next start resumes the job.
    if (this.#isClosed && !running.isCancelled) {
      if (claimed !== null) await this.#context.leases.release(claimed);
      return true;
    }
    if (error instanceof DatabaseUnavailableError || error instanceof LeaseLostError) throw error;
    if (running.isCancelled) await this.#recordEnd(running, () => settleCancelled(this.#context.store, jobId, claimed));
    else if (error instanceof JobPaused) await this.#recordOutcome(running, () => this.#requeue(jobId, claimed, pauseEvent(error)));
    else if (isNoSpace(error) || error instanceof StorageError) {
      const problem = isNoSpace(error) ? "ran out of disk space" : "cannot reach the storage of its files";
      this.#context.logger.warn(`A training job ${problem}; it waits and resumes from its last committed step`, {
        job: jobId,
        error: messageOf(error),
      });
      return false;
    } else if (error instanceof UnavailableError) await this.#resumeOrFail(running, error);
    else await this.#fail(running, error);
    return true;
  }

  /** Waits up to {@link STOP_PATIENCE_MS} until a job that another process runs has stopped. */
  async #waitUntilStoppedElsewhere(jobId: string): Promise<void> {
    const endsAtMs = performance.now() + STOP_PATIENCE_MS;
    while ((await getJob(this.#context.store, jobId)).status === "running" && performance.now() < endsAtMs && !this.#isClosed) {
      await this.changes.wait(this.changes.revision, { timeoutMs: POLL_MS });
    }
  }

  /** Commits the outcome of a job with `settle`. Waits for disk space if there is not even enough for the database. */
  async #recordOutcome(running: RunningJob, settle: () => Promise<unknown>): Promise<void> {
    for (let shortages = 1; ; shortages++) {
      try {
        // The job may have been cancelled during the wait.
        await this.#context.space.freeing(() =>
          running.isCancelled ? settleCancelled(this.#context.store, running.jobId, running.claimed) : settle(),
        );
        return;
      } catch (error) {
        if (!isNoSpace(error) || this.#isClosed) throw error;
        this.#context.logger.warn("The end of a training job waits for disk space to be recorded", { job: running.jobId });
        await this.#waitForSpace(shortages);
      }
    }
  }

  /** Commits the end of a job with `settle`, and removes the files of the job. */
  async #recordEnd(running: RunningJob, settle: () => Promise<unknown>): Promise<void> {
    await this.#recordOutcome(running, settle);
    await this.#cleanUp(running.jobId);
  }

  /** Waits for disk space, or until {@link cancel} or {@link close} ends the wait. `failures` counts shortages in a row. */
  async #waitForSpace(failures: number): Promise<void> {
    this.#spaceWait = new AbortController();
    await this.#context.space.waitForSpace({ failures, signal: this.#isClosed ? AbortSignal.abort() : this.#spaceWait.signal });
    this.#spaceWait = null;
  }

  /** Wakes the queue after `ms`, and keeps the poll timer from waking it earlier. */
  #wakeLater(ms: number): void {
    this.#quietUntilMs = performance.now() + ms;
    setTimeout(() => this.wake(), ms).unref();
  }

  /** Ends a job as failed. */
  async #fail(running: RunningJob, error: unknown): Promise<void> {
    this.#context.logger.error("A training job failed", { job: running.jobId, error: traceOf(error) });
    const claimed = running.claimed ?? (await getJob(this.#context.store, running.jobId));
    await this.#recordEnd(running, () => settleFailed(this.#context.store, claimed, error));
  }

  /** Requeues a job after a trainer crash. The job resumes from its last committed step, unless it has reached `maxJobAttempts`. */
  async #resumeOrFail(running: RunningJob, error: UnavailableError): Promise<void> {
    const { jobId } = running;
    const count = this.#trainerDeaths.record(await getJob(this.#context.store, jobId));
    if (count >= this.#context.limits.maxJobAttempts) {
      const message = `The trainer died ${count} times during the job, which made no progress in between. Send less data at once, or give the service more memory. The last death: ${error.message}`;
      await this.#fail(running, new EngineError(message, { cause: error }));
      return;
    }
    this.#context.logger.warn("The trainer died during a training job; the job resumes from its last committed step", {
      job: jobId,
      deaths: count,
    });
    await this.#recordOutcome(running, () => this.#requeue(jobId, running.claimed));
  }

  /** Returns a running job to the queue, and appends an event if one is given. `claimed` is null if no process runs the job. */
  #requeue(jobId: string, claimed: JobRow | null, event?: NewEvent): Promise<void> {
    return transact(this.#context.store, async (transaction) => {
      if (claimed !== null) await requireLease(transaction, claimed);
      await requeueNow(transaction, await getJob(transaction, jobId));
      if (event !== undefined) await appendEvent(transaction, jobId, event);
    });
  }

  /** Frees the cached batch and removes the files of a finished job. Files that cannot be removed now are removed at the next start. */
  async #cleanUp(jobId: string): Promise<void> {
    const { data, storage, logger } = this.#context;
    data.forget(jobId);
    await removeJobFiles(storage, jobId).catch(logFailure(logger, "A training job's files could not be removed", { job: jobId }));
  }
}
