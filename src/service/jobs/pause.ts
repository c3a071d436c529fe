/** Pauses of jobs: requests for them, and the error with which a running job stops. */
import { randomUUID } from "node:crypto";
import { ConflictError } from "../../base/errors.ts";
import { appendEvent, getJob, LIVE_STATUSES } from "../store/jobs.ts";
import type { JobRow, Store } from "../store/tables.ts";
import type { NewEvent } from "./states.ts";
import { transact } from "../store/database.ts";

/** Thrown by a trainer after it has committed the progress of a job that is to be paused. Not an error of the job. */
export class JobPaused extends Error {
  /** Optimizer steps of the committed progress. */
  readonly steps: number;

  constructor(steps: number) {
    super(`The job is paused after step ${steps}`);
    this.steps = steps;
  }
}

/** Returns the event of a pause. */
export function pauseEvent({ message, steps }: JobPaused): NewEvent {
  return noteEvent(message, { step: steps });
}

/** Returns an event with a message for the fine-tuning interface. Its random key lets a job have several with the same message. */
export function noteEvent(message: string, data: Readonly<Record<string, unknown>> = {}, level: "info" | "warn" = "info"): NewEvent {
  return { key: `note:${randomUUID()}`, type: "note", data: { message, level, ...data } };
}

/** Checks that a job is not over. `verb` is the participle of the change, such as "paused". @throws ConflictError `E_CONFLICT` */
function requireLive(job: JobRow, verb: string): void {
  if ((LIVE_STATUSES as readonly string[]).includes(job.status)) return;
  throw new ConflictError(`Training job '${job.id}' is ${job.status} and cannot be ${verb}`, { param: "training_job_id" });
}

/**
 * Marks a job as paused. For a running job, the queue appends the event of the pause once the job has stopped.
 *
 * @throws ConflictError `E_CONFLICT` for a job that is over.
 */
export function requestPause(store: Store, jobId: string): Promise<JobRow> {
  return transact(store, async (transaction) => {
    const job = await getJob(transaction, jobId);
    requireLive(job, "paused");
    if (job.is_paused === 1) return job;
    await transaction.updateTable("jobs").set({ is_paused: 1 }).where("id", "=", job.id).execute();
    if (job.status === "queued") await appendEvent(transaction, job.id, pauseEvent(new JobPaused(job.committed_steps)));
    return { ...job, is_paused: 1 };
  });
}

/** Removes the mark of a paused job. @throws ConflictError `E_CONFLICT` for a job that is over. */
export function requestResume(store: Store, jobId: string): Promise<JobRow> {
  return transact(store, async (transaction) => {
    const job = await getJob(transaction, jobId);
    requireLive(job, "resumed");
    if (job.is_paused === 0) return job;
    await transaction.updateTable("jobs").set({ is_paused: 0 }).where("id", "=", job.id).execute();
    await appendEvent(transaction, job.id, noteEvent("The job is resumed"));
    return { ...job, is_paused: 0 };
  });
}
