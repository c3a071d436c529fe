import { traceOf, logFailure } from "../common/logger.ts";
import { EngineError, UnavailableError } from "../../base/errors.ts";
import { delay } from "../../base/util/delay.ts";
import type { JobObserver } from "../observability/observer.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { appendEvent, getJob, nextLiveJob } from "../store/jobs.ts";
import type { JobRow } from "../store/tables.ts";
import type { Changes } from "./changes.ts";
import type { NewEvent } from "./states.ts";
import { removeJobFiles } from "../training-data/job-files.ts";
import { requestCancel, requeueNow, requireCancellable, settleCancelled, settleFailed } from "./endings.ts";
import { observeRun, reportEnd } from "./observed.ts";
import { JobPaused, noteOf, requestPause, requestResume } from "./pause.ts";
import { StorageError } from "../storage/errors.ts";
import { runJob, type RunContext } from "./run-job.ts";
import { messageOf } from "../../base/util/values.ts";

/** Max milliseconds that a request to cancel or pause waits for a running job to stop. */
const STOP_PATIENCE_MS = 20_000;
/** Milliseconds until the queue retries jobs after a failure to record their end. */
const RETRY_MS = 60_000;

/** Job that the queue runs now. */
interface RunningJob {
  readonly jobId: string;
  readonly controller: AbortController;
  /** Resolves when the job has stopped and its end is recorded. */
  readonly settled: Promise<void>;
  /** Whether the job ends as cancelled, rather than resuming at the next start. */
  isCancelled: boolean;
  /** Whether the job stops after its current step. */
  isPausing: boolean;
}

/** Counter of trainer crashes during a job. Only the current job is tracked, because jobs run one at a time. */
class TrainerDeaths {
  #jobId = "";
  #committedSteps = 0;
  #count = 0;

  /** Counts a crash during `job`. Returns the crashes since the job last committed progress in this process. */
  record({ id, committed_steps: committedSteps }: JobRow): number {
    if (id !== this.#jobId || committedSteps !== this.#committedSteps) this.#count = 0;
    this.#jobId = id;
    this.#committedSteps = committedSteps;
    return ++this.#count;
  }
}

/** Job queue. Jobs run one at a time, in order of creation. */
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
    this.#isWoken = true;
    // At most one loop runs: a wake during its final check makes the loop check again.
    this.#loop ??= this.#work()
      .catch((error: unknown) => {
        this.#context.logger.error("The job queue stopped; it starts again in a minute", { error: traceOf(error) });
        this.#wakeLater();
      })
      .finally(() => {
        this.#loop = null;
        if (this.#isWoken && !this.#isClosed) this.wake();
      });
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
      current.isCancelled = true;
      current.controller.abort(new DOMException("The training job was cancelled", "AbortError"));
      this.#pause?.abort();
      await settledWithin(current);
    } else {
      // The job is not running: it has just ended, waits for disk space, or its end could not be recorded.
      await this.#context.space.freeing(() => settleCancelled(this.#context.store, job.id));
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
    } else if (job.status === "running") {
      // The job waits for disk space.
      await this.#context.space.freeing(() => this.#requeue(job.id, noteOf(new JobPaused(job.committed_steps))));
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
        if ((await nextLiveJob(this.#context.store, stuck)) !== undefined) await this.#waitForSpace(shortages);
        const job = await nextLiveJob(this.#context.store, stuck);
        if (job === undefined || this.#isClosed) break;
        const observed = await observeRun(this.#context, job);
        const isOver = await this.#runOne(job, observed).catch((error: unknown) => {
          stuck.add(job.id);
          this.#context.logger.error("The end of a training job could not be recorded", { job: job.id, error: traceOf(error) });
          return true;
        });
        if (observed !== null) await reportEnd(this.#context, job, observed);
        shortages = isOver ? 0 : shortages + 1;
      }
      if (stuck.size > 0) this.#wakeLater();
    }
  }

  /** Runs one job. @returns false if the job ran out of disk space, or cannot reach the storage, and must run again. */
  async #runOne(job: JobRow, observed: JobObserver | null): Promise<boolean> {
    const controller = new AbortController();
    let settle: () => void = () => undefined;
    const settled = new Promise<void>((resolve) => (settle = resolve));
    const running: RunningJob = { jobId: job.id, controller, isCancelled: false, isPausing: false, settled };
    // The cancellation was requested earlier, but a full disk or a shutdown prevented recording it.
    if (job.cancel_requested === 1) running.isCancelled = true;
    this.#running = running;
    try {
      if (running.isCancelled) throw new DOMException("The training job was cancelled", "AbortError");
      await runJob(this.#context, job, { signal: controller.signal, isPausing: () => running.isPausing, observed });
    } catch (error) {
      // A shutdown leaves the row at `running`; the next start resumes the job.
      if (this.#isClosed && !running.isCancelled) return true;
      if (running.isCancelled) await this.#end(running, () => settleCancelled(this.#context.store, job.id));
      else if (error instanceof JobPaused) await this.#record(running, () => this.#requeue(job.id, noteOf(error)));
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
      this.#running = null;
      settle();
      this.changes.notify();
    }
    return true;
  }

  /** Records the end of a job. Waits for disk space if there is not even enough for the record. */
  async #record(running: RunningJob, settle: () => Promise<unknown>): Promise<void> {
    for (let shortages = 1; ; shortages++) {
      try {
        // The job may have been cancelled during the wait.
        await this.#context.space.freeing(() => (running.isCancelled ? settleCancelled(this.#context.store, running.jobId) : settle()));
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

  /** Wakes the queue in a minute. */
  #wakeLater(): void {
    setTimeout(() => this.wake(), RETRY_MS).unref();
  }

  async #fail(running: RunningJob, error: unknown): Promise<void> {
    this.#context.logger.error("A training job failed", { job: running.jobId, error: traceOf(error) });
    await this.#end(running, () => settleFailed(this.#context.store, running.jobId, error));
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
    await this.#record(running, () => this.#requeue(jobId));
  }

  /** Returns a running job to the queue, with an event. */
  #requeue(jobId: string, event?: NewEvent): Promise<void> {
    return this.#context.store.transaction().execute(async (transaction) => {
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

/** Waits up to 20 s until a running job has stopped. */
async function settledWithin({ settled }: RunningJob): Promise<void> {
  const patience = new AbortController();
  await Promise.race([settled, delay(STOP_PATIENCE_MS, { signal: patience.signal }).catch(() => undefined)]);
  patience.abort();
}
