/**
 * Queue of training jobs. Its loop takes one job at a time and waits for disk space. `runJob` then runs the job and commits its success; the
 * queue decides about every other outcome, and `JobOutcomes` records it.
 *
 * Requests to cancel, pause or resume a job change its row, and the job itself if this process runs it.
 */
import { traceOf } from "../common/logger.ts";
import { UnavailableError } from "../../base/errors.ts";
import type { JobObserver } from "../observability/observer.ts";
import { deferred } from "../../base/util/deferred.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { getJob } from "../store/jobs.ts";
import { DatabaseUnavailableError } from "../store/database-errors.ts";
import type { JobRow } from "../store/tables.ts";
import type { Changes } from "./changes.ts";
import { requestCancel, requireCancellable, settleCancelled } from "./endings.ts";
import { JobOutcomes, requeue } from "./job-outcomes.ts";
import { observeRun, reportEnd } from "./observed.ts";
import { LeaseLostError } from "./leases.ts";
import { JobPaused, pauseEvent, requestPause, requestResume } from "./pause.ts";
import { StorageError } from "../storage/errors.ts";
import { runJob, type RunContext } from "./run-job.ts";
import { abortCancelled, keepLease, settledWithin, STOP_PATIENCE_MS, type RunningJob } from "./running-job.ts";
import { SpaceWait } from "./space-wait.ts";
import { messageOf } from "../../base/util/values.ts";

/** Milliseconds until the queue retries jobs after a failure to record their end. */
const RETRY_MS = 60_000;
/** Milliseconds until the queue retries after a failure of the connection to the database. */
const RECONNECT_MS = 2000;
/** Milliseconds between looks for changes that other processes of the same database have made. */
const POLL_MS = 1000;

/** Job queue. Jobs run one at a time: entities take turns, and the jobs of an entity run in order of creation. */
export class JobQueue {
  readonly #context: RunContext;
  readonly #spaceWait: SpaceWait;
  readonly #outcomes: JobOutcomes;
  /** Job that this process runs; null while it runs none. */
  #running: RunningJob | null = null;
  /** Loop that runs the jobs; null while it does not run. */
  #jobLoop: Promise<void> | null = null;
  /** Whether {@link wake} was called since the loop last looked for jobs. */
  #isWoken = false;
  #isClosed = false;
  /** Timer with interval {@link POLL_MS}; null before the first {@link wake}, and always on a database that only this process uses. */
  #pollTimer: NodeJS.Timeout | null = null;
  /** Time of `performance.now()` before which the timer starts no jobs, because the queue waits after a failure. */
  #quietUntilMs = 0;

  constructor(context: RunContext) {
    this.#context = context;
    this.#spaceWait = new SpaceWait(context.space);
    this.#outcomes = new JobOutcomes(context, this.#spaceWait);
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
    const { store, space, leases } = this.#context;
    const job = await space.freeing(() => requestCancel(store, id));
    if (job.status === "cancelled") {
      await this.#outcomes.cleanUp(job.id);
      this.changes.notify();
      return job;
    }
    const running = this.#running;
    if (running?.jobId === job.id) {
      abortCancelled(running);
      this.#spaceWait.end();
      await settledWithin(running);
    } else if (await leases.isHeldElsewhere(store, job)) {
      // The process that runs the job reads the request when it renews the lease.
      await this.#waitUntilStoppedElsewhere(job.id);
    } else {
      // The job is not running: it has just ended, waits for disk space, or its end could not be recorded.
      await space.freeing(() => settleCancelled(store, job.id, null));
      await this.#outcomes.cleanUp(job.id);
      this.#spaceWait.end();
      this.changes.notify();
    }
    const jobAfterWait = await getJob(store, job.id);
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
    const { store, space, leases } = this.#context;
    const job = await space.freeing(() => requestPause(store, id));
    const running = this.#running;
    if (running?.jobId === job.id) {
      running.isPausing = true;
      await settledWithin(running);
    } else if (await leases.isHeldElsewhere(store, job)) {
      await this.#waitUntilStoppedElsewhere(job.id);
    } else if (job.status === "running") {
      // No process runs the job: it waits for disk space or for the storage.
      await space.freeing(() => requeue(store, job.id, { claimed: null, event: pauseEvent(new JobPaused(job.committed_steps)) }));
      this.#spaceWait.end();
    }
    this.changes.notify();
    return getJob(store, job.id);
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
    this.#spaceWait.close();
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
        const job = await this.#nextJob(stuck, shortages);
        if (job === undefined) break;
        const observed = await observeRun(this.#context, job);
        const mustRunAgain = await this.#runOne(job, observed).catch((error: unknown) => {
          this.#logUnrecorded(job, error);
          if (!(error instanceof LeaseLostError)) stuck.add(job.id);
          return false;
        });
        if (observed !== null) await reportEnd(this.#context, job, observed);
        shortages = mustRunAgain ? shortages + 1 : 0;
      }
      if (stuck.size > 0) this.#wakeLater(RETRY_MS);
    }
  }

  /** Returns the next job once there is disk space for it; undefined without one, and once the queue is closed. */
  async #nextJob(except: ReadonlySet<string>, shortages: number): Promise<JobRow | undefined> {
    const { leases } = this.#context;
    if ((await leases.next(except)) === undefined) return undefined;
    await this.#spaceWait.wait(shortages);
    // Read again after the wait: the job may have been cancelled, or claimed by another process.
    const job = await leases.next(except);
    return this.#isClosed ? undefined : job;
  }

  /** Logs that the outcome of a job was not recorded. @throws the error if the database cannot be reached, which ends the loop. */
  #logUnrecorded(job: JobRow, error: unknown): void {
    // The job resumes from its last committed step once the database can be reached.
    if (error instanceof DatabaseUnavailableError) throw error;
    const { logger } = this.#context;
    if (error instanceof LeaseLostError) logger.warn("A training job continues in another process, or has ended there", { job: job.id });
    else logger.error("The end of a training job could not be recorded", { job: job.id, error: traceOf(error) });
  }

  /**
   * Runs one job and records its outcome.
   *
   * @returns whether the job must run again, because it ran out of disk space or cannot reach the storage.
   * @throws LeaseLostError if another process has the job.
   * @throws DatabaseUnavailableError if the outcome cannot be recorded now.
   */
  async #runOne(job: JobRow, observed: JobObserver | null): Promise<boolean> {
    const controller = new AbortController();
    const settled = deferred<void>();
    // A request that is in the row already was made earlier, but a full disk or a shutdown prevented recording the end of the job.
    const isCancelled = job.cancel_requested === 1;
    const running: RunningJob = {
      jobId: job.id,
      controller,
      settled: settled.promise,
      isCancelled,
      isPausing: false,
      claimed: null,
      isLost: false,
    };
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
      return false;
    } catch (error) {
      return await this.#settleError(running, error);
    } finally {
      stopRenewing();
      this.#running = null;
      settled.resolve();
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
      return false;
    }
    if (error instanceof DatabaseUnavailableError || error instanceof LeaseLostError) throw error;
    if (running.isCancelled) await this.#outcomes.cancelled(running);
    else if (error instanceof JobPaused) await this.#outcomes.paused(running, error);
    else if (isNoSpace(error) || error instanceof StorageError) {
      const problem = isNoSpace(error) ? "ran out of disk space" : "cannot reach the storage of its files";
      this.#context.logger.warn(`A training job ${problem}; it waits and resumes from its last committed step`, {
        job: jobId,
        error: messageOf(error),
      });
      return true;
    } else if (error instanceof UnavailableError) await this.#outcomes.trainerDied(running, error);
    else await this.#outcomes.failed(running, error);
    return false;
  }

  /** Waits up to {@link STOP_PATIENCE_MS} until a job that another process runs has stopped. */
  async #waitUntilStoppedElsewhere(jobId: string): Promise<void> {
    const endsAtMs = performance.now() + STOP_PATIENCE_MS;
    while ((await getJob(this.#context.store, jobId)).status === "running" && performance.now() < endsAtMs && !this.#isClosed) {
      await this.changes.wait(this.changes.revision, { timeoutMs: POLL_MS });
    }
  }

  /** Wakes the queue after `ms`, and keeps the poll timer from waking it earlier. */
  #wakeLater(ms: number): void {
    this.#quietUntilMs = performance.now() + ms;
    setTimeout(() => this.wake(), ms).unref();
  }
}
