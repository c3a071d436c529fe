/** Hourly deletion of objects that are older than the limits of the service. */
import { logFailure } from "../common/logger.ts";
import { repeatEvery } from "../common/repeat.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { deleteOldQuarantines } from "../disk/quarantine.ts";
import type { ServiceLimits } from "../common/limits.ts";
import { LIVE_STATUSES } from "../store/jobs.ts";
import { deleteArtifact, deleteJob, tryDelete, type DeletionContext } from "./deletion.ts";

/** Milliseconds between two cleanups. */
const CLEANUP_MS = 60 * 60_000;

/** Context of {@link startAgeCleanup}. */
export type AgesContext = DeletionContext & {
  readonly directory: Pick<DataDirectory, "quarantine">;
  readonly limits: Pick<ServiceLimits, "maxJobAgeMs" | "maxArtifactAgeMs" | "maxQuarantineAgeMs">;
};

/**
 * Deletes finished jobs, artifact versions and files in the quarantine that are older than the limits, now and every hour. A version that
 * an unfinished job reads is deleted by a later cleanup.
 *
 * @returns a function that stops the cleanups and waits for a running one.
 */
export function startAgeCleanup(context: AgesContext): () => Promise<void> {
  const { maxJobAgeMs, maxArtifactAgeMs, maxQuarantineAgeMs } = context.limits;
  if (maxJobAgeMs === null && maxArtifactAgeMs === null && maxQuarantineAgeMs === null) return () => Promise.resolve();
  let isClosed = false;
  const cleanUp = () => deleteOld(context, () => isClosed).catch(logFailure(context.logger, "Old jobs and artifacts could not be deleted"));
  const stop = repeatEvery(cleanUp, CLEANUP_MS);
  return () => {
    isClosed = true;
    return stop();
  };
}

/** Runs one cleanup. It ends early once the service closes. */
async function deleteOld(context: AgesContext, isClosed: () => boolean): Promise<void> {
  const { store, limits, logger } = context;
  await cleanQuarantine(context).catch(logFailure(logger, "Old files in the quarantine could not be deleted"));
  const deleted = { jobs: 0, artifacts: 0 };
  if (limits.maxJobAgeMs !== null) {
    const oldJobs = store
      .selectFrom("jobs")
      .select("id")
      .where("status", "not in", LIVE_STATUSES)
      .where("training_end", "<", timeBefore(limits.maxJobAgeMs));
    for (const { id } of await oldJobs.orderBy("seq").execute()) {
      if (isClosed()) return;
      if (await tryDelete(() => deleteJob(context, id))) deleted.jobs++;
    }
  }
  if (limits.maxArtifactAgeMs !== null) {
    const oldArtifacts = store
      .selectFrom("artifacts")
      .select("id")
      .where("state", "!=", "deleted")
      .where("created_at", "<", timeBefore(limits.maxArtifactAgeMs));
    for (const { id } of await oldArtifacts.orderBy("created_at").execute()) {
      if (isClosed()) return;
      if (await tryDelete(() => deleteArtifact(context, id))) deleted.artifacts++;
    }
  }
  if (deleted.jobs + deleted.artifacts > 0) logger.info("Old jobs and artifacts were deleted", deleted);
}

/** Deletes old quarantines. */
async function cleanQuarantine({ directory, limits, logger }: AgesContext): Promise<void> {
  if (limits.maxQuarantineAgeMs === null) return;
  const quarantines = await deleteOldQuarantines(directory, limits.maxQuarantineAgeMs, logger);
  if (quarantines > 0) logger.info("Old files in the quarantine were deleted", { quarantines });
}

/** Returns the time `ageMs` milliseconds ago, ISO 8601. */
function timeBefore(ageMs: number): string {
  return new Date(Date.now() - ageMs).toISOString();
}
