import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import PQueue from "p-queue";
import type { DataDirectory } from "../data-directory.ts";
import type { DiskSpace } from "../disk/space.ts";
import { messageOf } from "../error-text.ts";
import { remove } from "../files.ts";
import type { RlJobConfig } from "../jobs/rl.ts";
import type { ServiceLimits } from "../limits.ts";
import type { ServiceLogger } from "../logger.ts";
import type { Policies } from "../policies.ts";
import { LIVE_STATUSES } from "../store/jobs.ts";
import type { CheckpointRow, Store } from "../store/tables.ts";
import type { CheckpointUses } from "./uses.ts";

/** The part of a saved state that goes on training needs and sampling does not. */
export const OPTIMIZER_FILE = "optimizer.safetensors";

/** What retention needs. */
export interface RetentionContext {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly policies: Pick<Policies, "forget" | "isLeased">;
  readonly uses: CheckpointUses;
  readonly limits: Pick<ServiceLimits, "maxCheckpointBytes">;
  readonly logger: ServiceLogger;
  readonly space: Pick<DiskSpace, "freeing">;
}

/** Keeps the checkpoints of one service within its budget. */
export interface Retention {
  /**
   * Deletes the oldest checkpoints until all together fit the budget. Never deleted are: the newest of a model (the next job starts from
   * it), step 0, what is pinned, what is sampled from, downloaded or copied at the moment, and what a job that is not over measures a KL
   * penalty from. When these alone are more than the budget, that is logged and nothing more.
   *
   * @returns the checkpoints that were deleted.
   */
  enforceBudget(): Promise<CheckpointRow[]>;
}

/** See {@link Retention}. Of several calls at a time one works: what two count at once, both would delete for. */
export function createRetention(context: RetentionContext): Retention {
  const queue = new PQueue({ concurrency: 1 });
  return { enforceBudget: () => queue.add(() => enforceBudget(context)) };
}

/** Bytes that a checkpoint's files take; 0 for one without any. */
export async function checkpointBytes(
  directory: DataDirectory,
  { state_dir: stateDir }: Pick<CheckpointRow, "state_dir">,
): Promise<number> {
  if (stateDir === null) return 0;
  const path = join(directory.root, stateDir);
  const names = await readdir(path).catch(() => []);
  const sizes = await Promise.all(
    names.map((name) =>
      stat(join(path, name)).then(
        ({ size }) => size,
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

async function enforceBudget(context: RetentionContext): Promise<CheckpointRow[]> {
  const { store, directory, policies, limits, logger } = context;
  const budget = limits.maxCheckpointBytes;
  if (budget === null) return [];
  const rows = await store
    .selectFrom("checkpoints")
    .selectAll()
    .where("state_dir", "is not", null)
    .orderBy("created_at")
    .orderBy("id")
    .execute();
  const sizes = await Promise.all(rows.map((row) => checkpointBytes(directory, row)));
  let total = sizes.reduce((sum, size) => sum + size, 0);
  const deleted: CheckpointRow[] = [];
  for (const [index, row] of rows.entries()) {
    if (total <= budget) break;
    const outcome = await context.space.freeing(() => deleteIdle(context, row));
    if (outcome === "needed") continue;
    total -= sizes[index] as number;
    // A user was faster.
    if (outcome === "gone") continue;
    policies.forget([row.id]);
    // The row is deleted, and so is the checkpoint: files that cannot be removed now are moved to the quarantine at the next start.
    await remove(join(directory.root, row.state_dir as string)).catch((error: unknown) =>
      logger.warn("A checkpoint's files could not be removed", { checkpoint: row.id, error: messageOf(error) }),
    );
    deleted.push(row);
  }
  if (deleted.length > 0) {
    logger.info("Checkpoints were deleted to keep within the budget", {
      deleted: deleted.map(({ id, step }) => ({ id, step })),
      bytes: total,
      budget,
    });
  }
  if (total > budget) {
    logger.warn("The checkpoints that are needed take more than the budget", { bytes: total, budget });
  }
  return deleted;
}

/** Deletes a checkpoint's row unless something needs it, all in one transaction. */
function deleteIdle(
  { store, policies, uses }: RetentionContext,
  { id, model_id: modelId, step }: CheckpointRow,
): Promise<"deleted" | "needed" | "gone"> {
  return store.transaction().execute(async (transaction) => {
    const row = await transaction.selectFrom("checkpoints").select("pinned").where("id", "=", id).executeTakeFirst();
    if (row === undefined) return "gone";
    const newest = await newestStep(transaction, modelId);
    if (row.pinned === 1 || step === 0 || step === newest) return "needed";
    if (await isReferred(transaction, { modelId, step, newest: newest ?? 0 })) return "needed";
    // Who begins to use it from here on finds it deleted.
    if (uses.isHeld(id) || policies.isLeased(id)) return "needed";
    await transaction.deleteFrom("checkpoints").where("id", "=", id).execute();
    return "deleted";
  });
}

async function newestStep(store: Store, modelId: string): Promise<number | null> {
  const { newest } = await store
    .selectFrom("checkpoints")
    .select((eb) => eb.fn.max<number | null>("step").as("newest"))
    .where("model_id", "=", modelId)
    .executeTakeFirstOrThrow();
  return newest;
}

/** Whether an RL job of the model that is not over may measure a KL penalty from the step. */
async function isReferred(
  store: Store,
  { modelId, step, newest }: { readonly modelId: string; readonly step: number; readonly newest: number },
): Promise<boolean> {
  const jobs = await store
    .selectFrom("jobs")
    .select("config")
    .where("model_id", "=", modelId)
    .where("type", "=", "rl")
    .where("status", "in", LIVE_STATUSES)
    .execute();
  return jobs.some(({ config }) => {
    const { experimental_config: settings } = JSON.parse(config) as RlJobConfig;
    const lag = settings?.kl_penalty_step_lag ?? null;
    // A lag counts from where the job will start: the newest step by then, which is no earlier than the present one.
    return settings?.kl_penalty_reference_step === step || (lag !== null && step >= newest - lag);
  });
}
