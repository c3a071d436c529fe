/** Execution of one training job, from its start in the queue to its committed and published checkpoint. */
import { messageOf } from "../../base/util/values.ts";
import { logFailure } from "../common/logger.ts";
import type { BaseModelInfo, ModelHandle } from "../../engine/port.ts";
import type { BlobStore } from "../artifacts/blob-store.ts";
import type { FileDigest } from "../disk/digests.ts";
import type { DiskSpace } from "../disk/space.ts";
import type { ServiceLimits } from "../common/limits.ts";
import type { Policies } from "../models/policies.ts";
import { appendEvent, getJob } from "../store/jobs.ts";
import { isReinforcement } from "../store/job-configs.ts";
import { getModel } from "../store/models.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { CheckpointRow, JobRow, ModelRow } from "../store/tables.ts";
import type { JobObserver, ServiceObserver } from "../observability/observer.ts";
import type { Retention } from "../checkpoints/retention.ts";
import type { Changes } from "./changes.ts";
import type { JobChats } from "./job-chat.ts";
import { reportStep } from "./observed.ts";
import { requireLease, type JobLeases } from "./leases.ts";
import { runPreferenceSteps } from "./preference.ts";
import { runReinforcementSteps } from "./reinforcement.ts";
import { runRlStep } from "./rl.ts";
import { runSftSteps } from "./sft.ts";
import { addCheckpoint, commitCheckpoint, commitProgress, recordJobFile, startingPoint } from "./states.ts";
import type { AddedCheckpoint, CommitContext, NewEvent, Trained } from "./states.ts";
import type { DataWork } from "../training-data/data-work.ts";
import type { GraderWork } from "../grading/grader-work.ts";
import type { WarmModels } from "./warm-models.ts";
import { transact } from "../store/database.ts";

/** Parts of the service that a job needs. */
export interface RunContext extends CommitContext {
  readonly policies: Policies;
  readonly warm: WarmModels;
  readonly changes: Changes;
  readonly leases: JobLeases;
  readonly data: DataWork;
  readonly graders: GraderWork;
  readonly limits: ServiceLimits;
  readonly files: StoredFiles;
  readonly blobs: BlobStore;
  readonly retention: Retention;
  readonly space: DiskSpace;
  /** Chat of jobs that make rollouts. */
  readonly chat: Promise<JobChats>;
  readonly observer: ServiceObserver;
}

/** Context of a running job for its trainer. */
export interface JobScope {
  readonly context: RunContext;
  readonly job: JobRow;
  readonly handle: ModelHandle;
  readonly base: BaseModelInfo;
  readonly model: ModelRow;
  /** Newest checkpoint of the model when this attempt of the job began. Without progress, the job starts from it. */
  readonly checkpoint: CheckpointRow;
  /** Returns the checkpoint that the job added last; `checkpoint` if it has added none. */
  readonly newest: () => CheckpointRow;
  readonly signal: AbortSignal;
  /** Appends an event immediately. */
  readonly emit: (event: NewEvent) => Promise<void>;
  /** Commits the first `steps` optimizer steps, so that they survive a crash. */
  readonly commitProgress: (steps: number) => Promise<void>;
  /** Records the digest of a file in the job's directory. */
  readonly recordFile: (storedPath: string, digest: FileDigest) => Promise<void>;
  /** Adds a checkpoint of the current weights after the commit of their progress; see `addCheckpoint` of `states.ts`. */
  readonly addCheckpoint: (checkpoint: AddedCheckpoint) => Promise<void>;
  /** Whether the job is to stop after its current step, with a {@link JobPaused}. */
  readonly isPausing: () => boolean;
}

/** Controls of a running job. */
export interface RunControls {
  /** Called with the job once this process has claimed it; not called if {@link runJob} returns without running the job. */
  readonly onClaimed: (job: JobRow) => void;
  readonly signal: AbortSignal;
  readonly isPausing: () => boolean;
  /** Observer of this run; null if the service observes no jobs. */
  readonly observed: JobObserver | null;
}

/** Trainers by kind of job. */
const TRAINERS: Readonly<Record<JobRow["type"], (scope: JobScope) => Promise<Trained>>> = {
  rl: runRlStep,
  sft: runSftSteps,
  preference: runPreferenceSteps,
};

/**
 * Runs a queued job until its checkpoint is committed. On an error, the job's row still says `running`, and the model is unloaded, because
 * its weights match no checkpoint.
 *
 * @throws the error of the job, the signal's reason, or a {@link JobPaused}.
 */
export async function runJob(context: RunContext, queued: JobRow, { onClaimed, signal, isPausing, observed }: RunControls): Promise<void> {
  const { store, engine, warm } = context;
  const job = await claim(context, queued);
  if (job === null) return;
  onClaimed(job);
  const model = await getModel(store, job.model_id);
  const base = await engine.describeBase(model.base_model);
  const checkpoint = await startingPoint(store, model.id);
  const handle = await warm.acquire({ model, checkpoint, job, signal });
  let committed: CheckpointRow;
  try {
    const scope = scopeOf(context, { job, handle, base, model, checkpoint, signal, isPausing }, observed);
    const trained = await trainerOf(job)(scope);
    for (const event of trained.events) reportStep(observed, event);
    signal.throwIfAborted();
    committed = await commitCheckpoint(context, job, { ...trained, handle, start: scope.newest(), signal });
  } catch (error) {
    // Only logs a failure to unload, so that the job's own error is reported.
    await engine.unload(handle).catch(logFailure(context.logger, "The model of a failed job could not be unloaded", { job: job.id }));
    throw error;
  }
  await keepTrained(context, job, { handle, committed });
  await context.retention.enforceBudget().catch(logFailure(context.logger, "The budget of checkpoints could not be kept", { job: job.id }));
}

/**
 * Publishes the model of a succeeded job for sampling and keeps it warm for the next job. Never rejects: a failure only costs a reload of the
 * model.
 */
async function keepTrained(
  { engine, policies, warm, changes, logger }: RunContext,
  job: JobRow,
  { handle, committed }: { readonly handle: ModelHandle; readonly committed: CheckpointRow },
): Promise<void> {
  try {
    const published = engine.publish(handle);
    policies.adopt(committed.id, published);
    changes.notify();
    await published;
    await warm.keep(job.model_id, { handle, checkpointId: committed.id, optimizerKind: job.type });
  } catch (error) {
    const message = "A finished model could not be published; it is loaded from disk when asked for";
    logger.warn(message, { job: job.id, error: messageOf(error) });
    changes.notify();
    await engine.unload(handle).catch(() => undefined);
  }
}

/** Returns the trainer of a job. */
function trainerOf(job: JobRow): (scope: JobScope) => Promise<Trained> {
  return isReinforcement(job) ? runReinforcementSteps : TRAINERS[job.type];
}

/**
 * Marks a job as running. A job that is already `running` was interrupted.
 *
 * @returns the claimed job; null if the job was cancelled, paused or claimed by another process meanwhile.
 */
function claim({ store, leases, changes }: RunContext, queued: JobRow): Promise<JobRow | null> {
  return transact(store, async (transaction) => {
    const job = await getJob(transaction, queued.id);
    if ((job.status !== "queued" && job.status !== "running") || job.is_paused === 1) return null;
    if (await leases.isHeldElsewhere(transaction, job)) return null;
    const columns = {
      ...(await leases.claimed(transaction, job)),
      status: "running" as const,
      attempts: job.attempts + 1,
      training_start: job.training_start ?? new Date().toISOString(),
    };
    await transaction.updateTable("jobs").set(columns).where("id", "=", job.id).execute();
    return { ...job, ...columns };
  }).finally(() => changes.notify());
}

/** Returns the context of a running job, which holds the job's row and newest checkpoint as of the last commit. */
function scopeOf(
  context: RunContext,
  run: Pick<JobScope, "job" | "handle" | "base" | "model" | "checkpoint" | "signal" | "isPausing">,
  observed: JobObserver | null,
): JobScope {
  const { job, handle, checkpoint, signal } = run;
  let committedJob = job;
  let newest = checkpoint;
  return {
    context,
    ...run,
    async emit(event) {
      reportStep(observed, event);
      await transact(context.store, async (transaction) => {
        await requireLease(transaction, job);
        await appendEvent(transaction, job.id, event);
      });
      context.changes.notify();
    },
    async commitProgress(steps) {
      committedJob = await commitProgress(context, committedJob, { handle, steps, signal });
    },
    async recordFile(storedPath, digest) {
      committedJob = await recordJobFile(context, committedJob, storedPath, digest);
    },
    async addCheckpoint(added) {
      newest = (await addCheckpoint(context, job, { ...added, handle, start: newest, signal })) ?? newest;
      context.changes.notify();
    },
    newest: () => newest,
  };
}
