/** Commits of a training job: its progress, and the checkpoint with which it ends. */
import { randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { type ModelHandle, OPTIMIZER_FILE } from "../../engine/port.ts";
import { InternalError } from "../../base/errors.ts";
import type { CheckpointLineage } from "../../base/schema/index.ts";
import { saveDurably, type SaveContext } from "../checkpoints/save-state.ts";
import { remove, syncDirectory } from "../disk/files.ts";
import { stepName } from "../common/names.ts";
import { removeJobFiles } from "../training-data/job-files.ts";
import { findStateDirectory, jobDirectory, modelDirectory, storedProgress } from "../disk/stored-path.ts";
import { appendEvent, getJob } from "../store/jobs.ts";
import { newestCheckpoint } from "../store/checkpoints.ts";
import { getModel } from "../store/models.ts";
import { type Digests } from "../disk/digests.ts";
import type { CheckpointRow, JobEventRow, JobRow, Store } from "../store/tables.ts";

/** Parts of the service needed to commit a checkpoint or progress. */
export interface CommitContext extends SaveContext {
  readonly store: Store;
}

/** Event reported by a trainer. */
export interface NewEvent {
  /** Key unique within the job: an event with the key of an earlier one is not stored again. */
  readonly key: string;
  readonly type: JobEventRow["type"];
  readonly data: Readonly<Record<string, unknown>>;
}

/** Result of a trainer, committed together with the checkpoint. */
export interface Trained {
  /** Metrics of the checkpoint. */
  readonly metrics: Readonly<Record<string, number>>;
  /** Events committed with the checkpoint. */
  readonly events: readonly NewEvent[];
  /** Digests of additional files that the job leaves. @default none */
  readonly digests?: Digests | undefined;
}

/** Trained model that becomes a checkpoint. */
interface TrainedModel extends Trained {
  readonly handle: ModelHandle;
  /** Checkpoint that the job started from. */
  readonly start: CheckpointRow;
  readonly signal: AbortSignal;
}

/**
 * Commits the progress of an SFT job: first the state, then the row that points to it. After a crash the job resumes from here.
 *
 * @returns the job as committed.
 */
export async function commitProgress(
  context: CommitContext,
  job: JobRow,
  { handle, steps, signal }: { readonly handle: ModelHandle; readonly steps: number; readonly signal: AbortSignal },
): Promise<JobRow> {
  const { store, directory } = context;
  const path = join(jobDirectory(directory, job.id), `progress-${steps}`);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await syncDirectory(directory.jobs);
  const digests = JSON.stringify(await saveDurably(context, handle, path, signal));
  const progressDir = relative(directory.root, path);
  const changed = { committed_steps: steps, progress_dir: progressDir, digests, attempts: 1 };
  try {
    await store.updateTable("jobs").set(changed).where("id", "=", job.id).execute();
  } catch (error) {
    await remove(path);
    throw error;
  }
  if (job.progress_dir !== null && job.progress_dir !== progressDir) await remove(join(directory.root, storedProgress(job)));
  return { ...job, ...changed };
}

/**
 * Commits a finished job: first the state in one renamed directory, then checkpoint, events and status in one transaction. The events of
 * the trainer precede `training_ended`.
 *
 * @returns the committed checkpoint.
 */
export async function commitCheckpoint(
  context: CommitContext,
  job: JobRow,
  { handle, start, metrics, events, digests, signal }: TrainedModel,
): Promise<CheckpointRow> {
  const { store, directory } = context;
  const model = await getModel(store, job.model_id);
  const { next_step: step } = model;
  const path = join(modelDirectory(directory, job.model_id), String(step));
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await syncDirectory(directory.checkpoints);
  const saved = await saveDurably(context, handle, path, signal);
  const now = new Date().toISOString();
  const row: CheckpointRow = {
    id: randomUUID(),
    model_id: job.model_id,
    step,
    metrics: JSON.stringify(metrics),
    state_dir: relative(directory.root, path),
    optimizer_kind: job.type,
    created_at: now,
    lineage: JSON.stringify({
      base_model: model.base_model,
      parent: stepName(model, start.step),
      job_id: job.id,
      job_type: job.type,
    } satisfies CheckpointLineage),
    pinned: 0,
    digests: JSON.stringify(saved),
  };
  let withOldOptimizer: Pick<CheckpointRow, "model_id" | "step" | "state_dir">[];
  try {
    withOldOptimizer = await store.transaction().execute(async (transaction) => {
      const { status } = await getJob(transaction, job.id);
      if (status !== "running") throw new InternalError(`Training job '${job.id}' is ${status} and cannot end now`);
      // Only a model's newest checkpoint and its pinned ones keep their optimizer state.
      const outdated = await transaction
        .updateTable("checkpoints")
        .set({ optimizer_kind: null })
        .where("model_id", "=", job.model_id)
        .where("optimizer_kind", "is not", null)
        .where("pinned", "=", 0)
        .returning(["model_id", "step", "state_dir"])
        .execute();
      await transaction.insertInto("checkpoints").values(row).execute();
      await transaction
        .updateTable("models")
        .set({ next_step: step + 1 })
        .where("id", "=", job.model_id)
        .execute();
      for (const event of events) await appendEvent(transaction, job.id, event);
      await appendEvent(transaction, job.id, { key: "end", type: "training_ended", data: { step } });
      await transaction
        .updateTable("jobs")
        .set({
          status: "succeeded",
          step,
          training_end: now,
          progress_dir: null,
          digests: digests === undefined ? null : JSON.stringify(digests),
        })
        .where("id", "=", job.id)
        .execute();
      return outdated;
    });
  } catch (error) {
    await remove(path);
    throw error;
  }
  // After the commit no error may fail the job. Leftover files are removed at the next start.
  for (const outdated of withOldOptimizer) {
    const state = findStateDirectory(directory, outdated);
    if (state !== null) await remove(join(state, OPTIMIZER_FILE)).catch(() => undefined);
  }
  await removeJobFiles(directory, job.id).catch(() => undefined);
  return row;
}

/** Returns the checkpoint that a job of the model starts from. */
export async function startingPoint(store: Store, modelId: string): Promise<CheckpointRow> {
  const checkpoint = await newestCheckpoint(store, modelId);
  if (checkpoint === undefined) throw new InternalError(`Model '${modelId}' has no checkpoint to start from`);
  return checkpoint;
}
