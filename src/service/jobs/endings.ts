/** Transactions that end a job, or return it to the queue. */
import { ConflictError } from "../../base/errors.ts";
import { messageOf } from "../../base/util/values.ts";
import { appendEvent, getJob } from "../store/jobs.ts";
import type { JobRow, Store } from "../store/tables.ts";

/** Checks that a job can be cancelled. @throws ConflictError `E_CONFLICT` if it has succeeded or failed. */
export function requireCancellable(job: JobRow): void {
  if (job.status === "succeeded" || job.status === "failed") {
    throw new ConflictError(`Training job '${job.id}' has already ${job.status} and cannot be cancelled`, { param: "training_job_id" });
  }
}

/** Cancels a queued job immediately. For a running job, records the request, so that a crash does not restart the job. */
export function requestCancel(store: Store, jobId: string): Promise<JobRow> {
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
 * Appends two events: `training_cancelled`, then `training_failed`, because clients of the hosted interface stop polling only at
 * `training_ended` and `training_failed`.
 */
export async function cancelNow(transaction: Store, job: JobRow): Promise<JobRow> {
  const changed = {
    status: "cancelled" as const,
    training_end: new Date().toISOString(),
    cancel_requested: 1,
    progress_dir: null,
    digests: null,
  };
  await transaction.updateTable("jobs").set(changed).where("id", "=", job.id).execute();
  await appendEvent(transaction, job.id, { key: "cancelled", type: "training_cancelled", data: {} });
  await appendEvent(transaction, job.id, {
    key: "end",
    type: "training_failed",
    data: { error_message: "The training job was cancelled", cancelled: true },
  });
  return { ...job, ...changed };
}

/** Ends a running job as cancelled; has no effect on a job that has ended. */
export function settleCancelled(store: Store, jobId: string): Promise<unknown> {
  return store.transaction().execute(async (transaction) => {
    const job = await getJob(transaction, jobId);
    if (job.status === "running") await cancelNow(transaction, job);
  });
}

/** Returns a running job to the queue with its progress, within a transaction. Ends the job instead if its cancellation was requested. */
export async function requeueNow(transaction: Store, job: JobRow): Promise<void> {
  if (job.cancel_requested === 1) await cancelNow(transaction, job);
  else await transaction.updateTable("jobs").set({ status: "queued" }).where("id", "=", job.id).execute();
}

/** Ends a job as failed. */
export function settleFailed(store: Store, jobId: string, error: unknown): Promise<void> {
  const message = messageOf(error);
  return store.transaction().execute(async (transaction) => {
    const changed = {
      status: "failed" as const,
      error_message: message,
      training_end: new Date().toISOString(),
      progress_dir: null,
      digests: null,
    };
    await transaction.updateTable("jobs").set(changed).where("id", "=", jobId).execute();
    await appendEvent(transaction, jobId, { key: "end", type: "training_failed", data: { error_message: message } });
  });
}
