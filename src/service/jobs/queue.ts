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
import { JobPaused, noteOf, requestPause, requestResume } from "./pause.ts";
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
  readonly #deaths = new TrainerDeaths();
  #running: RunningJob | null = null;
  /** Loop that runs the jobs; null while it does not run. */
  #loop: Promise<void> | null = null;
  /** Controller that ends a wait for disk space. */
  #pause: AbortController | null = null;
  /** Whether {@link wake} was called since the loop last looked for jobs. */
  #isWoken = false;
  #isClosed = false;
  /** Timer of {@link POLL_MS}; null before the first {@link wake}, and on a database of this process alone. */
  #poll: NodeJS.Timeout | null = null;
  /** Time before which the queue does not look for changes of other processes. */
  #quietUntilMs = 0;

  constructor(context: RunContext) {
    this.#context = context;
  }

  get changes(): Changes {
    return this.#context.changes;
  }

  /** Whether {@link close} was called; long polls must then end. */
  get isClosing(): boolean {
    return this.#isClosed;
  }

  /** Starts processing queued jobs. Call it at start and after each accepted job. */
  wake(): void {
    if (this.#context.leases.isShared && !this.#isClosed) this.#poll ??= setInterval(() => this.#lookForChanges(), POLL_MS).unref();
    this.#isWoken = true;
    // At most one loop runs: a wake during its final check makes the loop check again.
    this.#loop ??= this.#work()
      .catch((error: unknown) => {
        const ms = error instanceof DatabaseUnavailableError ? RECONNECT_MS : RETRY_MS;
        this.#context.logger.error(`The job queue stopped; it starts again in ${ms / 1000} s`, { error: traceOf(error) });
        this.#wakeLater(ms);
      })
      .finally(() => {
        this.#loop = null;
        if (this.#isWoken && !this.#isClosed) this.wake();
      });
  }

  /** Notifies waiting requests of possible changes by other processes, and looks for jobs that this process may run. */
  #lookForChanges(): void {
    this.changes.notify();
    if (this.#loop === null && performance.now() >= this.#quietUntilMs) this.wake();
  }

  /**
   * Cancels an unfinished job and waits up to 20 s until a running job has stopped.
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
    const current = this.#running;
    if (current?.jobId === job.id) {
      abortCancelled(current);
      this.#pause?.abort();
      await settledWithin(current);
    } else if (await this.#context.leases.isHeldElsewhere(this.#context.store, job)) {
      // The process that runs the job reads the request when it renews the lease.
      await this.#stoppedElsewhere(job.id);
    } else {
      // The job is not running: it has just ended, waits for disk space, or its end could not be recorded.
      await this.#context.space.freeing(() => settleCancelled(this.#context.store, job.id, null));
      await this.#cleanUp(job.id);
      this.#pause?.abort();
      this.changes.notify();
    }
    const after = await getJob(this.#context.store, job.id);
    requireCancellable(after);
    return after;
  }

  /**
   * Pauses an unfinished job: a running job commits its current step and stops. Waits up to 20 s until it has
   * stopped. A job without further steps ends instead. Has no effect on a paused job.
   *
   * @returns the job after the wait.
   * @throws ConflictError `E_CONFLICT` if the job is over.
   */
  async pause({ id }: JobRow): Promise<JobRow> {
    const job = await this.#context.space.freeing(() => requestPause(this.#context.store, id));
    const current = this.#running;
    if (current?.jobId === job.id) {
      current.isPausing = true;
      await settledWithin(current);
    } else if (await this.#context.leases.isHeldElsewhere(this.#context.store, job)) {
      await this.#stoppedElsewhere(job.id);
    } else if (job.status === "running") {
      // The job waits for disk space.
      await this.#context.space.freeing(() => this.#requeue(job.id, null, noteOf(new JobPaused(job.committed_steps))));
      this.#pause?.abort();
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
    const current = this.#running;
    // Takes back a pause that the running job has not reached.
    if (current?.jobId === job.id) current.isPausing = false;
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
    if (this.#poll !== null) clearInterval(this.#poll);
    this.changes.notify();
    this.#running?.controller.abort(new DOMException("The service is stopping", "AbortError"));
    this.#pause?.abort();
    await this.#loop;
  }

  /** Runs jobs until none is left. A job that ran out of disk space, or cannot reach the storage, is run again after a pause that grows with each attempt. */
  async #work(): Promise<void> {
    while (this.#isWoken && !this.#isClosed) {
      this.#isWoken = false;
      // Ids of jobs with an unrecorded end. They are skipped until the next wake, because they would be selected again immediately.
      const stuck = new Set<string>();
      let shortages = 0;
      for (;;) {
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

  /** Runs one job. @returns false if the job ran out of disk space, or cannot reach the storage, and must run again. */
  async #runOne(job: JobRow, observed: JobObserver | null): Promise<boolean> {
    const controller = new AbortController();
    let settle: () => void = () => undefined;
    const settled = new Promise<void>((resolve) => (settle = resolve));
    const running: RunningJob = { jobId: job.id, controller, isCancelled: false, isPausing: false, claimed: null, isLost: false, settled };
    // The cancellation was requested earlier, but a full disk or a shutdown prevented recording it.
    if (job.cancel_requested === 1) running.isCancelled = true;
    this.#running = running;
    let stopRenewing: () => void = () => undefined;
    try {
      if (running.isCancelled) throw new DOMException("The training job was cancelled", "AbortError");
      await runJob(this.#context, job, {
        onClaimed: (claimed) => (stopRenewing = keepLease(this.#context.leases, running, claimed)),
        signal: controller.signal,
        isPausing: () => running.isPausing,
        observed,
      });
    } catch (error) {
      if (running.isLost) throw new LeaseLostError(job.id);
      // A shutdown leaves the row at `running`; the next start resumes the job.
      if (this.#isClosed && !running.isCancelled) {
        if (running.claimed !== null) await this.#context.leases.release(running.claimed);
        return true;
      }
      if (error instanceof DatabaseUnavailableError || error instanceof LeaseLostError) throw error;
      if (running.isCancelled) await this.#end(running, () => settleCancelled(this.#context.store, job.id, running.claimed));
      else if (error instanceof JobPaused) await this.#record(running, () => this.#requeue(job.id, running.claimed, noteOf(error)));
      else if (isNoSpace(error) || error instanceof StorageError) {
        const what = isNoSpace(error) ? "ran out of disk space" : "cannot reach the storage of its files";
        this.#context.logger.warn(`A training job ${what}; it waits and resumes from its last committed step`, {
          job: job.id,
          error: messageOf(error),
        });
        return false;
      } else if (error instanceof UnavailableError) await this.#resumeOrFail(running, error);
      else await this.#fail(running, error);
    } finally {
      stopRenewing();
      this.#running = null;
      settle();
      this.changes.notify();
    }
    return true;
  }

  /** Waits up to 20 s until a job that another process runs has stopped. */
  async #stoppedElsewhere(jobId: string): Promise<void> {
    const endsAtMs = performance.now() + STOP_PATIENCE_MS;
    while ((await getJob(this.#context.store, jobId)).status === "running" && performance.now() < endsAtMs && !this.#isClosed) {
      await this.changes.wait(this.changes.revision, { timeoutMs: POLL_MS });
    }
  }

  /** Records the end of a job. Waits for disk space if there is not even enough for the record. */
  async #record(running: RunningJob, settle: () => Promise<unknown>): Promise<void> {
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

  /** Records the end of a job and removes its files. */
  async #end(running: RunningJob, settle: () => Promise<unknown>): Promise<void> {
    await this.#record(running, settle);
    await this.#cleanUp(running.jobId);
  }

  /** Waits for disk space, or until {@link cancel} or {@link close} ends the wait. `failures` counts shortages in a row. */
  async #waitForSpace(failures: number): Promise<void> {
    this.#pause = new AbortController();
    await this.#context.space.waitForSpace({ failures, signal: this.#isClosed ? AbortSignal.abort() : this.#pause.signal });
    this.#pause = null;
  }

  /** Wakes the queue after a pause. */
  #wakeLater(ms: number): void {
    this.#quietUntilMs = performance.now() + ms;
    setTimeout(() => this.wake(), ms).unref();
  }

  async #fail(running: RunningJob, error: unknown): Promise<void> {
    this.#context.logger.error("A training job failed", { job: running.jobId, error: traceOf(error) });
    const claimed = running.claimed ?? (await getJob(this.#context.store, running.jobId));
    await this.#end(running, () => settleFailed(this.#context.store, claimed, error));
  }

  /** Requeues a job after a trainer crash. The job resumes from its last committed step, unless it has reached `maxJobAttempts`. */
  async #resumeOrFail(running: RunningJob, error: UnavailableError): Promise<void> {
    const { jobId } = running;
    const count = this.#deaths.record(await getJob(this.#context.store, jobId));
    if (count >= this.#context.limits.maxJobAttempts) {
      const message = `The trainer died ${count} times during the job, which made no progress in between. Send less data at once, or give the service more memory. The last death: ${error.message}`;
      await this.#fail(running, new EngineError(message, { cause: error }));
      return;
    }
    this.#context.logger.warn("The trainer died during a training job; the job resumes from its last committed step", {
      job: jobId,
      deaths: count,
    });
    await this.#record(running, () => this.#requeue(jobId, running.claimed));
  }

  /** Returns a running job to the queue, with an event. */
  #requeue(jobId: string, claimed: JobRow | null, event?: NewEvent): Promise<void> {
    return transact(this.#context.store, async (transaction) => {
      if (claimed !== null) await requireLease(transaction, claimed);
      await requeueNow(transaction, await getJob(transaction, jobId));
      if (event !== undefined) await appendEvent(transaction, jobId, event);
    });
  }

  /** Frees the batch and removes the files of a finished job. Files that cannot be removed now are removed at the next start. */
  async #cleanUp(jobId: string): Promise<void> {
    const { data, storage, logger } = this.#context;
    data.forget(jobId);
    await removeJobFiles(storage, jobId).catch(logFailure(logger, "A training job's files could not be removed", { job: jobId }));
  }
}
