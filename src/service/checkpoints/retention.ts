/** Deletion of old checkpoints that exceed the budget `maxCheckpointBytes`. */
import PQueue from "p-queue";
import type { DataDirectory } from "../disk/data-directory.ts";
import type { DiskSpace } from "../disk/space.ts";
import { findStoredState } from "../disk/stored-path.ts";
import type { Storage } from "../storage/storage.ts";
import { checkpointBytes } from "./disk-use.ts";
import type { PreferenceJobConfig, RlJobConfig } from "../store/job-configs.ts";
import type { ServiceLimits } from "../common/limits.ts";
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import type { Policies } from "../models/policies.ts";
import { LIVE_STATUSES } from "../store/jobs.ts";
import type { CheckpointRow, Store } from "../store/tables.ts";
import type { Holds } from "../../base/util/leases.ts";
import { zip } from "../../base/util/values.ts";
import { transact } from "../store/database.ts";

/** Parts of the service that retention needs. */
export interface RetentionContext {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly storage: Pick<Storage, "remote" | "remove">;
  readonly policies: Pick<Policies, "forget" | "isLeased">;
  /** Ids of checkpoints whose files are being read. */
  readonly uses: Holds<string>;
  readonly limits: Pick<ServiceLimits, "maxCheckpointBytes">;
  readonly logger: ServiceLogger;
  readonly space: Pick<DiskSpace, "freeing">;
}

/** Retention policy that keeps the checkpoints of a service within a disk budget. */
export class Retention {
  readonly #context: RetentionContext;
  // Concurrent calls run one after the other, because each would otherwise delete for the same excess.
  readonly #queue = new PQueue({ concurrency: 1 });

  constructor(context: RetentionContext) {
    this.#context = context;
  }

  /**
   * Deletes the oldest checkpoints until the total size fits the budget. Never deletes the newest checkpoint of a model (the next job
   * starts from it), step 0, pinned checkpoints, checkpoints that are being sampled from, downloaded or copied, and checkpoints that an
   * unfinished job uses as reference policy. If these alone exceed the budget, only logs a warning.
   *
   * @returns the deleted checkpoints.
   */
  enforceBudget(): Promise<CheckpointRow[]> {
    return this.#queue.add(() => enforceBudget(this.#context));
  }
}

/** Deletes the oldest checkpoints that nothing needs; see {@link Retention.enforceBudget}. */
async function enforceBudget(context: RetentionContext): Promise<CheckpointRow[]> {
  const { store, policies, limits, logger } = context;
  const budget = limits.maxCheckpointBytes;
  if (budget === null) return [];
  const rows = await checkpointsByAge(store);
  const sizes = await Promise.all(rows.map((row) => checkpointBytes(context, row)));
  let totalBytes = sizes.reduce((sum, size) => sum + size, 0);
  const deleted: CheckpointRow[] = [];
  for (const [row, size] of zip(rows, sizes)) {
    if (totalBytes <= budget) break;
    const outcome = await context.space.freeing(() => deleteIdle(context, row));
    if (outcome === "needed") continue;
    totalBytes -= size;
    // A request has deleted the checkpoint meanwhile.
    if (outcome === "gone") continue;
    policies.forget([row.id]);
    await removeFiles(context, row);
    deleted.push(row);
  }
  if (deleted.length > 0) {
    logger.info("Checkpoints were deleted to keep within the budget", {
      deleted: deleted.map(({ id, step }) => ({ id, step })),
      bytes: totalBytes,
      budget,
    });
  }
  if (totalBytes > budget) {
    logger.warn("The checkpoints that are needed take more than the budget", { bytes: totalBytes, budget });
  }
  return deleted;
}

/** Returns the checkpoints that have files, oldest first. */
async function checkpointsByAge(store: Store): Promise<CheckpointRow[]> {
  const rows = store.selectFrom("checkpoints").selectAll().where("state_dir", "is not", null);
  return rows.orderBy("created_at").orderBy("id").execute();
}

/**
 * Removes the files of a checkpoint whose row was deleted. Without its row the checkpoint is gone. The next start moves files that cannot be
 * removed now to the quarantine.
 */
async function removeFiles({ storage, logger }: RetentionContext, row: CheckpointRow): Promise<void> {
  const state = findStoredState(row);
  if (state === null) return;
  await storage.remove(state).catch(logFailure(logger, "A checkpoint's files could not be removed", { checkpoint: row.id }));
}

/**
 * Deletes a checkpoint's row in one transaction, unless the checkpoint is needed. The result is "gone" if another request has deleted it.
 */
function deleteIdle(
  { store, policies, uses }: RetentionContext,
  { id, model_id: modelId, step }: CheckpointRow,
): Promise<"deleted" | "needed" | "gone"> {
  return transact(store, async (transaction) => {
    const row = await transaction.selectFrom("checkpoints").select("pinned").where("id", "=", id).executeTakeFirst();
    if (row === undefined) return "gone";
    const newest = await newestStep(transaction, modelId);
    if (row.pinned === 1 || step === 0 || step === newest) return "needed";
    if (await mayBeReference(transaction, { modelId, step, newest: newest ?? 0 })) return "needed";
    // Checked last: a request that looks up the checkpoint after the deletion below does not find it.
    if (uses.isHeld(id) || policies.isLeased(id)) return "needed";
    await transaction.deleteFrom("checkpoints").where("id", "=", id).execute();
    return "deleted";
  });
}

/** Returns the step of the newest checkpoint of a model; null if all were deleted. */
async function newestStep(store: Store, modelId: string): Promise<number | null> {
  const { newest } = await store
    .selectFrom("checkpoints")
    .select((eb) => eb.fn.max<number | null>("step").as("newest"))
    .where("model_id", "=", modelId)
    .executeTakeFirstOrThrow();
  return newest;
}

/** Whether an unfinished job of the model may use the step as reference policy. */
async function mayBeReference(
  store: Store,
  { modelId, step, newest }: { readonly modelId: string; readonly step: number; readonly newest: number },
): Promise<boolean> {
  const jobs = await store
    .selectFrom("jobs")
    .select(["type", "config"])
    .where("model_id", "=", modelId)
    .where("type", "in", ["rl", "preference"])
    .where("status", "in", LIVE_STATUSES)
    .execute();
  return jobs.some(({ type, config }) => {
    if (type === "preference") return (JSON.parse(config) as PreferenceJobConfig).config?.reference_step === step;
    const { experimental_config: settings } = JSON.parse(config) as RlJobConfig;
    const lag = settings?.kl_penalty_step_lag ?? null;
    // The job counts the lag from the newest step at its start, which may still grow: every step from the current bound on may be used.
    return settings?.kl_penalty_reference_step === step || (lag !== null && step >= newest - lag);
  });
}
