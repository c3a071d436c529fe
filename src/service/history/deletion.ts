/** Deletion of data that the service keeps until a user deletes it: artifact versions, finished jobs with their events, token reports. */
import { setImmediate } from "node:timers/promises";
import { ConflictError, NotFoundError, WhetstoneError } from "../../base/errors.ts";
import type { DeleteArtifactResponse, DeleteJobResponse, DeleteTokensResponse } from "../../base/schema/index.ts";
import { removeBlob, type BlobContext } from "../artifacts/remove-blob.ts";
import type { DiskSpace } from "../disk/space.ts";
import type { PreferenceJobConfig, SftJobConfig } from "../store/job-configs.ts";
import { removeTokenReport } from "../jobs/token-report.ts";
import { artifactUrl } from "../common/names.ts";
import type { Storage } from "../storage/storage.ts";
import { getArtifact } from "../store/artifacts.ts";
import { forgetAnswer } from "../store/idempotency-keys.ts";
import { getJob, LIVE_STATUSES } from "../store/jobs.ts";
import type { JobRow, Store } from "../store/tables.ts";
import { transact } from "../store/database.ts";

/** Parts of the service that deletions need. */
export interface DeletionContext extends BlobContext {
  readonly storage: Pick<Storage, "remove">;
  readonly space: DiskSpace;
}

/** Max events deleted per transaction: few enough for the reserve of a full disk, and to let other requests run in between. */
const EVENTS_AT_ONCE = 200;

/**
 * Deletes an artifact version with its files. The version number is not reused. Finished jobs may have used the version.
 *
 * @throws NotFoundError `E_NOT_FOUND` if the version does not exist.
 * @throws ConflictError `E_CONFLICT` while an unfinished job reads the version.
 */
export async function deleteArtifact(context: DeletionContext, id: string): Promise<DeleteArtifactResponse> {
  const change = async (transaction: Store) => {
    const artifact = await getArtifact(transaction, id);
    const job = await findReader(transaction, artifact.id);
    if (job !== null) {
      throw new ConflictError(
        `Artifact '${artifactUrl(artifact)}' cannot be deleted while training job '${job.id}', which reads it, is ${job.status}. Wait for the job, or cancel it`,
        { param: "artifact_id" },
      );
    }
    await transaction.deleteFrom("artifact_files").where("artifact_id", "=", artifact.id).execute();
    await transaction.deleteFrom("files").where("artifact_id", "=", artifact.id).execute();
    // The row stays, so that the version number is not reused for other contents.
    await transaction.updateTable("artifacts").set({ state: "deleted", metadata: "{}" }).where("id", "=", artifact.id).execute();
    // Repeating the upload with the same idempotency key must create a new version.
    await forgetAnswer(transaction, "/v1/preview/artifacts", artifact.id);
    return artifact;
  };
  const artifact = await context.space.freeing(() => transact(context.store, change));
  for (const sha256 of new Set(artifact.files.map((file) => file.sha256))) await removeBlob(context, sha256);
  return { artifact_id: artifact.id, deleted_files: artifact.files.length };
}

/** Returns the first unfinished job that reads an artifact for training or validation; null without one. */
async function findReader(store: Store, artifactId: string): Promise<JobRow | null> {
  const jobs = await store.selectFrom("jobs").selectAll().where("status", "in", LIVE_STATUSES).orderBy("seq").execute();
  const reads = ({ config }: JobRow) => {
    const { artifact_id, validation_artifact_id } = JSON.parse(config) as Partial<SftJobConfig | PreferenceJobConfig>;
    return artifact_id === artifactId || validation_artifact_id === artifactId;
  };
  return jobs.find(reads) ?? null;
}

/**
 * Deletes a finished job with its events and token report. Its checkpoint stays. If a crash interrupts the deletion, the job keeps a part
 * of its events; deleting the job again completes the deletion.
 *
 * @throws NotFoundError `E_NOT_FOUND` if the job does not exist.
 * @throws ConflictError `E_CONFLICT` for an unfinished job.
 */
export async function deleteJob(context: DeletionContext, id: string): Promise<DeleteJobResponse> {
  const { store, storage, space } = context;
  const job = await getJob(store, id);
  requireOver(job, "deleted");
  /** Deletes the next events. @returns their number. */
  const deleteSome = async (transaction: Store) => {
    const eventIds = transaction.selectFrom("job_events").select("id").where("job_id", "=", job.id).orderBy("seq").limit(EVENTS_AT_ONCE);
    const { numDeletedRows } = await transaction.deleteFrom("job_events").where("id", "in", eventIds).executeTakeFirstOrThrow();
    const count = Number(numDeletedRows);
    // The transaction that deletes the last events also deletes the job, so a job with few events needs only one transaction.
    if (count < EVENTS_AT_ONCE) {
      const { numDeletedRows: jobs } = await transaction.deleteFrom("jobs").where("id", "=", job.id).executeTakeFirstOrThrow();
      if (jobs === 0n) throw new NotFoundError(`Training job '${id}' does not exist`, { param: "training_job_id" });
    }
    return count;
  };
  let deletedEvents = 0;
  let count: number;
  do {
    count = await space.freeing(() => transact(store, deleteSome));
    deletedEvents += count;
    await setImmediate();
  } while (count === EVENTS_AT_ONCE);
  const hadReport = await removeTokenReport(storage, job.id);
  return { training_job_id: job.id, deleted_events: deletedEvents, deleted_tokens: hadReport };
}

/**
 * Deletes the token report of a finished job; the job and its events stay.
 *
 * @throws NotFoundError `E_NOT_FOUND` for a job without a report.
 * @throws ConflictError `E_CONFLICT` for an unfinished job.
 */
export async function deleteTokens({ store, storage, space }: DeletionContext, id: string): Promise<DeleteTokensResponse> {
  const job = await getJob(store, id);
  requireOver(job, "relieved of its token report");
  // The token report is the only file of a finished job with a recorded digest.
  await space.freeing(() => store.updateTable("jobs").set({ digests: null }).where("id", "=", job.id).execute());
  if (!(await removeTokenReport(storage, job.id))) {
    throw new NotFoundError(
      `Training job '${job.id}' has no token report: it was created without \`token_report: true\`, or the report was deleted`,
      { param: "training_job_id" },
    );
  }
  return { training_job_id: job.id, deleted_tokens: true };
}

/** Checks that a job is finished. `what` is the participle of the deletion, such as "deleted". @throws ConflictError `E_CONFLICT` */
function requireOver(job: JobRow, what: string): void {
  if (!(LIVE_STATUSES as readonly string[]).includes(job.status)) return;
  throw new ConflictError(
    `Training job '${job.id}' is ${job.status} and cannot be ${what}. Wait until it is over, or cancel it with POST /v1/preview/training-jobs/${job.id}/cancel`,
    { param: "training_job_id" },
  );
}

/** Runs the deletion of a cleanup. @returns false if the object is already deleted, or a job needs it. */
export async function tryDelete(deletion: () => Promise<unknown>): Promise<boolean> {
  try {
    await deletion();
    return true;
  } catch (error) {
    if (WhetstoneError.isInstance(error) && (error.code === "E_CONFLICT" || error.code === "E_NOT_FOUND")) return false;
    throw error;
  }
}
