/**
 * Commits of a training job: its progress, checkpoints during the job, and the checkpoint with which it ends. Each commit first writes
 * files, then the rows that name them, in a transaction that checks the job's lease.
 */
import { randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { type ModelHandle, OPTIMIZER_FILE } from "../../engine/port.ts";
import { InternalError } from "../../base/errors.ts";
import type { CheckpointLineage } from "../../base/schema/index.ts";
import { saveDurably, type SaveContext } from "../checkpoints/save-state.ts";
import { syncDirectory } from "../disk/files.ts";
import { stepName } from "../common/names.ts";
import { removeJobFiles } from "../training-data/job-files.ts";
import {
  digestsOfJob,
  findStoredState,
  jobDirectory,
  modelDirectory,
  storedJob,
  storedProgress,
  storedState,
} from "../disk/stored-path.ts";
import { appendEvent, getJob } from "../store/jobs.ts";
import { newestCheckpoint } from "../store/checkpoints.ts";
import { getModel } from "../store/models.ts";
import type { Digests, FileDigest } from "../disk/digests.ts";
import type { CheckpointAliasRow, CheckpointRow, JobEventRow, JobRow, Store } from "../store/tables.ts";
import { isShared, transact } from "../store/database.ts";
import { UnknownOutcomeError } from "../store/database-errors.ts";
import { NO_LEASE, requireLease } from "./leases.ts";

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

/** Additional name of a checkpoint. */
export type NewAlias = Pick<CheckpointAliasRow, "name" | "job_step">;

/** Rows that a finished job adds to the transaction of its checkpoint. */
export interface Attachment {
  readonly commit: (transaction: Store) => Promise<void>;
  /** Called after the transaction, also if it failed. Must not reject. */
  readonly close: () => Promise<void>;
}

/** Result of a trainer, committed together with the checkpoint. */
export interface Trained {
  /** Metrics of the checkpoint. */
  readonly metrics: Readonly<Record<string, number>>;
  /** Events committed with the checkpoint. */
  readonly events: readonly NewEvent[];
  /** Digests of additional files that the job leaves. @default none */
  readonly digests?: Digests | undefined;
  /** Additional names of the checkpoint. @default none */
  readonly aliases?: readonly NewAlias[] | undefined;
  /** Prepares further rows for the transaction of the checkpoint. @default none */
  readonly attach?: (() => Promise<Attachment>) | undefined;
}

/** Checkpoint that a job adds before its end. */
export type AddedCheckpoint = Pick<Trained, "metrics" | "events"> & { readonly alias: NewAlias };

/** Model in the engine's memory that becomes a checkpoint. */
interface TrainedWeights {
  readonly handle: ModelHandle;
  /** Newest checkpoint of the model, from which the new one was trained. */
  readonly start: CheckpointRow;
  readonly signal: AbortSignal;
}

/** Checkpoint that loses its optimizer state. */
type OldOptimizer = Pick<CheckpointRow, "model_id" | "step" | "state_dir">;

/**
 * Commits the progress of a job: first the state, then the row that points to it. After a crash the job resumes from here.
 *
 * @returns the job as committed.
 */
export async function commitProgress(
  context: CommitContext,
  job: JobRow,
  { handle, steps, signal }: { readonly handle: ModelHandle; readonly steps: number; readonly signal: AbortSignal },
): Promise<JobRow> {
  const { store, directory, storage } = context;
  const name = `progress-${steps}${claimSuffix(store, job)}`;
  const path = join(jobDirectory(directory, job.id), name);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await syncDirectory(directory.jobs);
  const saved = await saveDurably(context, handle, path, signal);
  const digests = JSON.stringify({ ...digestsBesidesProgress(job), ...saved });
  const progressDir = relative(directory.root, path);
  const columns = { committed_steps: steps, progress_dir: progressDir, digests, attempts: 1 };
  try {
    await transact(store, async (transaction) => {
      await requireLease(transaction, job);
      await transaction.updateTable("jobs").set(columns).where("id", "=", job.id).execute();
    });
  } catch (error) {
    // After a commit with an unknown outcome, the row may name the files.
    if (!(error instanceof UnknownOutcomeError)) await storage.remove(`${storedJob(job.id)}/${name}`);
    throw error;
  }
  if (job.progress_dir !== null && job.progress_dir !== progressDir) await storage.remove(storedProgress(job));
  return { ...job, ...columns };
}

/**
 * Keeps another file that an unfinished job needs, besides its progress, and records its digest.
 *
 * @returns the job as recorded.
 */
export async function recordJobFile(
  { store, storage }: CommitContext,
  job: JobRow,
  storedPath: string,
  digest: FileDigest,
): Promise<JobRow> {
  await storage.keep({ [storedPath]: digest });
  const digests = JSON.stringify({ ...digestsOfJob(job), [storedPath]: digest });
  await transact(store, async (transaction) => {
    await requireLease(transaction, job);
    await transaction.updateTable("jobs").set({ digests }).where("id", "=", job.id).execute();
  });
  return { ...job, digests };
}

/**
 * Returns the suffix of the names of directories that the job writes. On a shared database it differs per claim: a process that has lost
 * the lease may still write files, which must not replace the files of the process that holds it.
 */
function claimSuffix(store: Store, { lease_token: token }: JobRow): string {
  return isShared(store) ? `-${token}` : "";
}

/** Returns the digests of a job's files that are not part of its progress. */
function digestsBesidesProgress(job: JobRow): Digests {
  const progress = job.progress_dir === null ? null : `${storedProgress(job)}/`;
  const digests = Object.entries(digestsOfJob(job) ?? {});
  return Object.fromEntries(digests.filter(([path]) => progress === null || !path.startsWith(progress)));
}

/**
 * Commits a finished job: first the state in one renamed directory, then checkpoint, events and status in one transaction. The events of
 * the trainer precede `training_ended`.
 *
 * @returns the committed checkpoint.
 */
export async function commitCheckpoint(context: CommitContext, job: JobRow, trained: Trained & TrainedWeights): Promise<CheckpointRow> {
  const { digests, events, aliases = [], attach } = trained;
  const attachment = await attach?.();
  try {
    const row = await commitSaved(context, job, trained, async (transaction, { id, step, created_at: now }) => {
      for (const alias of aliases) await insertAlias(transaction, job, id, alias);
      for (const event of events) await appendEvent(transaction, job.id, event);
      await appendEvent(transaction, job.id, { key: "end", type: "training_ended", data: { step } });
      await attachment?.commit(transaction);
      const jobDigests = digests === undefined ? null : JSON.stringify(digests);
      await transaction
        .updateTable("jobs")
        .set({ status: "succeeded", step, training_end: now, progress_dir: null, digests: jobDigests, ...NO_LEASE })
        .where("id", "=", job.id)
        .execute();
    });
    await removeJobFiles(context.storage, job.id).catch(() => undefined);
    return row;
  } finally {
    await attachment?.close();
  }
}

/**
 * Adds a checkpoint of a running job, unless the job has one with this alias. Commit the progress of the same weights first: after a crash
 * the job resumes from its progress, and not from the checkpoint.
 *
 * @returns the checkpoint; null if the job has it already.
 */
export async function addCheckpoint(
  context: CommitContext,
  job: JobRow,
  added: AddedCheckpoint & TrainedWeights,
): Promise<CheckpointRow | null> {
  const { events, alias } = added;
  const existing = await context.store.selectFrom("checkpoint_aliases").select("name").where("name", "=", alias.name).executeTakeFirst();
  if (existing !== undefined) return null;
  return commitSaved(context, job, added, async (transaction, { id }) => {
    await insertAlias(transaction, job, id, alias);
    for (const event of events) await appendEvent(transaction, job.id, event);
  });
}

/** Inserts an additional name of a checkpoint. */
async function insertAlias(transaction: Store, { id }: JobRow, checkpointId: string, alias: NewAlias): Promise<void> {
  await transaction
    .insertInto("checkpoint_aliases")
    .values({ ...alias, checkpoint_id: checkpointId, job_id: id })
    .execute();
}

/** Saves the weights of a running job, then commits the next checkpoint of its model together with the rows that `writeRows` adds. */
async function commitSaved(
  context: CommitContext,
  job: JobRow,
  trained: Pick<Trained, "metrics"> & TrainedWeights,
  writeRows: (transaction: Store, row: CheckpointRow) => Promise<void>,
): Promise<CheckpointRow> {
  const { store, storage } = context;
  const row = await saveCheckpoint(context, job, trained);
  let outdatedOptimizers: OldOptimizer[];
  try {
    outdatedOptimizers = await transact(store, async (transaction) => {
      await requireLease(transaction, job);
      const { status } = await getJob(transaction, job.id);
      if (status !== "running") throw new InternalError(`Training job '${job.id}' is ${status} and cannot make a checkpoint now`);
      const dropped = await insertNewest(transaction, row);
      await writeRows(transaction, row);
      return dropped;
    });
  } catch (error) {
    if (!(error instanceof UnknownOutcomeError)) await storage.remove(storedState(row));
    throw error;
  }
  // After the commit no error may fail the job. Leftover files are removed at the next start.
  for (const checkpoint of outdatedOptimizers) {
    const state = findStoredState(checkpoint);
    if (state !== null) await storage.remove(`${state}/${OPTIMIZER_FILE}`).catch(() => undefined);
  }
  return row;
}

/** Saves the weights as the next checkpoint of the job's model. @returns its row, which is not committed. */
async function saveCheckpoint(
  context: CommitContext,
  job: JobRow,
  { handle, start, metrics, signal }: Pick<Trained, "metrics"> & TrainedWeights,
): Promise<CheckpointRow> {
  const { store, directory } = context;
  const model = await getModel(store, job.model_id);
  const { next_step: step } = model;
  const path = join(modelDirectory(directory, job.model_id), `${step}${claimSuffix(store, job)}`);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await syncDirectory(directory.checkpoints);
  const saved = await saveDurably(context, handle, path, signal);
  const lineage: CheckpointLineage = {
    base_model: model.base_model,
    parent: stepName(model, start.step),
    job_id: job.id,
    job_type: job.type,
  };
  return {
    id: randomUUID(),
    model_id: job.model_id,
    step,
    metrics: JSON.stringify(metrics),
    state_dir: relative(directory.root, path),
    optimizer_kind: job.type,
    created_at: new Date().toISOString(),
    lineage: JSON.stringify(lineage),
    pinned: 0,
    digests: JSON.stringify(saved),
  };
}

/**
 * Inserts the newest checkpoint of a model. Only the newest checkpoint and pinned checkpoints of a model keep their optimizer state.
 *
 * @returns the checkpoints that lose their optimizer state.
 */
async function insertNewest(transaction: Store, row: CheckpointRow): Promise<OldOptimizer[]> {
  const outdatedOptimizers = await transaction
    .updateTable("checkpoints")
    .set({ optimizer_kind: null })
    .where("model_id", "=", row.model_id)
    .where("optimizer_kind", "is not", null)
    .where("pinned", "=", 0)
    .returning(["model_id", "step", "state_dir"])
    .execute();
  await transaction.insertInto("checkpoints").values(row).execute();
  await transaction
    .updateTable("models")
    .set({ next_step: row.step + 1 })
    .where("id", "=", row.model_id)
    .execute();
  return outdatedOptimizers;
}

/** Returns the checkpoint that a job of the model starts from. */
export async function startingPoint(store: Store, modelId: string): Promise<CheckpointRow> {
  const checkpoint = await newestCheckpoint(store, modelId);
  if (checkpoint === undefined) throw new InternalError(`Model '${modelId}' has no checkpoint to start from`);
  return checkpoint;
}
