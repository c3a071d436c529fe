/**
 * Transactions that end a job as cancelled or failed, or return it to the queue. `commitCheckpoint` of `states.ts` ends a job as succeeded.
 *
 * A change by a process that may not hold the lease of the job increments `lease_token`, so that the process that runs the job can commit
 * nothing more.
 */
import { ConflictError } from "../../base/errors.ts";
import { messageOf } from "../../base/util/values.ts";
import { appendEvent, getJob } from "../store/jobs.ts";
import type { JobRow, Store } from "../store/tables.ts";
import { NO_LEASE, requireLease } from "./leases.ts";
import { transact } from "../store/database.ts";

/** Checks that a job can be cancelled. @throws ConflictError `E_CONFLICT` if it has succeeded or failed. */
export function requireCancellable(job: JobRow): void {
  if (job.status === "succeeded" || job.status === "failed") {
    throw new ConflictError(`Training job '${job.id}' has already ${job.status} and cannot be cancelled`, { param: "training_job_id" });
  }
}

/** Cancels a queued job immediately. For a running job, records the request, so that a crash does not restart the job. */
export function requestCancel(store: Store, jobId: string): Promise<JobRow> {
  return transact(store, async (transaction) => {
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
  const columns = {
    status: "cancelled" as const,
    training_end: new Date().toISOString(),
    cancel_requested: 1,
    progress_dir: null,
    digests: null,
    ...NO_LEASE,
    lease_token: job.lease_token + 1,
  };
  await transaction.updateTable("jobs").set(columns).where("id", "=", job.id).execute();
  await appendEvent(transaction, job.id, { key: "cancelled", type: "training_cancelled", data: {} });
  await appendEvent(transaction, job.id, {
    key: "end",
    type: "training_failed",
    data: { error_message: "The training job was cancelled", cancelled: true },
  });
  return { ...job, ...columns };
}

/**
 * Ends a running job as cancelled; has no effect on a job that has ended.
 *
 * @param claimed - The job as this process has claimed it; null if no process runs it.
 * @throws LeaseLostError if another process has claimed the job since.
 */
export function settleCancelled(store: Store, jobId: string, claimed: JobRow | null): Promise<unknown> {
  return transact(store, async (transaction) => {
    if (claimed !== null) await requireLease(transaction, claimed);
    const job = await getJob(transaction, jobId);
    if (job.status === "running") await cancelNow(transaction, job);
  });
}

/** Returns a running job to the queue with its progress, within a transaction. Ends the job instead if its cancellation was requested. */
export async function requeueNow(transaction: Store, job: JobRow): Promise<void> {
  if (job.cancel_requested === 1) await cancelNow(transaction, job);
  else
    await transaction
      .updateTable("jobs")
      .set({ status: "queued", ...NO_LEASE, lease_token: job.lease_token + 1 })
      .where("id", "=", job.id)
      .execute();
}

/** Ends a claimed job as failed. @throws LeaseLostError if another process has claimed the job since. */
export function settleFailed(store: Store, job: JobRow, error: unknown): Promise<void> {
  const message = messageOf(error);
  return transact(store, async (transaction) => {
    await requireLease(transaction, job);
    const columns = {
      status: "failed" as const,
      error_message: message,
      training_end: new Date().toISOString(),
      progress_dir: null,
      digests: null,
      ...NO_LEASE,
    };
    await transaction.updateTable("jobs").set(columns).where("id", "=", job.id).execute();
    await appendEvent(transaction, job.id, { key: "end", type: "training_failed", data: { error_message: message } });
  });
}
