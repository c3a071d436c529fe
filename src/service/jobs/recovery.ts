/** Clean-up of a data directory after an interruption; the service runs {@link recover} at each start. */
import { lstat, readdir } from "node:fs/promises";
import { basename, join } from "node:path";
import type { BlobEntry, BlobStore } from "../artifacts/blob-store.ts";
import { OPTIMIZER_FILE } from "../../engine/port.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { isTemporaryName, remove } from "../disk/files.ts";
import type { ServiceLogger } from "../common/logger.ts";
import { Quarantine } from "../disk/quarantine.ts";
import { LIVE_STATUSES } from "../store/jobs.ts";
import { removeDeadStaging } from "../stored-files/staging.ts";
import { findStoredState } from "../disk/stored-path.ts";
import type { CheckpointRow, JobRow, Store } from "../store/tables.ts";
import { requeueNow } from "./endings.ts";
import { isShared, transact } from "../store/database.ts";

/** Parts of the service that {@link recover} needs, and the quarantine of this start. */
interface Sweep {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly quarantine: Quarantine;
  readonly logger: ServiceLogger;
  /** Whether no process can be writing the file or directory at a path. */
  readonly isSettled: (path: string) => Promise<boolean>;
}

/** Milliseconds since its last change after which a file without a row is not part of work in another process. */
const PEER_WORK_MS = 60 * 60 * 1000;

/** Max names per query for the rows of files. Tables are not read as a whole: they keep rows of files that were deleted long ago. */
const NAMES_AT_ONCE = 500;

/**
 * Cleans up a data directory before the service answers requests. Interrupted jobs return to the queue.
 *
 * Deletes only files that are certainly unused: files with a temporary name, files of jobs that ended according to their row, and optimizer
 * states that were dropped according to their row. A file that no row mentions is moved to the quarantine instead: after a crash the file
 * is a leftover, but with an older or wrong database it may be the only copy.
 *
 * On a database that other processes use, interrupted jobs return when their leases expire, and files without a row are left alone for an
 * hour after their last change, because another process may be about to insert the row.
 */
export async function recover({
  blobs,
  ...context
}: Omit<Sweep, "quarantine" | "isSettled"> & { readonly blobs: BlobStore }): Promise<void> {
  const { store, directory, logger } = context;
  const hasPeers = isShared(store);
  const requeued = hasPeers ? 0 : await requeueJobs(store);
  const quarantine = new Quarantine(directory, logger);
  const sweep: Sweep = { ...context, quarantine, isSettled: hasPeers ? isOld : () => Promise.resolve(true) };
  await quarantineLinks(sweep);
  const stagingInUse = await removeDeadStaging(directory);
  const removed =
    (await removeTemporary(sweep)) +
    (await sweepJobs(sweep)) +
    (await sweepCheckpoints(sweep)) +
    (await removeEntries(directory.temporary, (name) => !stagingInUse.has(name), sweep.isSettled));
  await sweepTokens(sweep);
  await sweepBlobs(sweep, blobs);
  quarantine.report();
  if (requeued + removed > 0) logger.info("Recovered after an interruption", { requeued, removed });
}

/** Whether a path was not changed for {@link PEER_WORK_MS}. */
async function isOld(path: string): Promise<boolean> {
  const info = await lstat(path).catch(() => null);
  return info !== null && Date.now() - info.mtimeMs > PEER_WORK_MS;
}

/** Returns interrupted jobs to the queue, in order of creation. @returns their number. */
function requeueJobs(store: Store): Promise<number> {
  return transact(store, async (transaction) => {
    const interrupted = await transaction.selectFrom("jobs").selectAll().where("status", "=", "running").orderBy("seq").execute();
    for (const job of interrupted) await requeueNow(transaction, job);
    return interrupted.length;
  });
}

/** Returns the names in a directory; empty if it does not exist. */
async function entriesOf(path: string): Promise<string[]> {
  return readdir(path).catch(() => []);
}

/**
 * Removes the entries of a directory that `isUnused` accepts by name, and `isSettled` by path.
 *
 * @returns the number of removed entries.
 */
async function removeEntries(path: string, isUnused: (name: string) => boolean, isSettled: Sweep["isSettled"]): Promise<number> {
  let count = 0;
  for (const name of (await entriesOf(path)).filter(isUnused)) {
    if (!(await isSettled(join(path, name)))) continue;
    await remove(join(path, name));
    count++;
  }
  return count;
}

/** Moves symbolic links in place of the directories of models and jobs to the quarantine. The service creates no links. */
async function quarantineLinks({ directory, quarantine }: Sweep): Promise<void> {
  for (const parent of [directory.jobs, directory.checkpoints]) {
    for (const entry of await readdir(parent, { withFileTypes: true })) {
      const path = join(parent, entry.name);
      if (entry.isSymbolicLink()) await quarantine.add(path);
      else if (entry.isDirectory()) {
        const children = await readdir(path, { withFileTypes: true });
        for (const { name } of children.filter((child) => child.isSymbolicLink())) await quarantine.add(join(path, name));
      }
    }
  }
}

/** Removes incomplete files in every directory in which the service writes under a temporary name first. @returns their number. */
async function removeTemporary({ directory, isSettled }: Sweep): Promise<number> {
  const parents = [directory.root, directory.tokens];
  for (const parent of [directory.jobs, directory.checkpoints]) {
    parents.push(parent, ...(await entriesOf(parent)).map((name) => join(parent, name)));
  }
  let removed = 0;
  for (const parent of parents) removed += await removeEntries(parent, isTemporaryName, isSettled);
  return removed;
}

/** Columns that say which files a job needs. */
type JobFiles = Pick<JobRow, "status" | "progress_dir" | "committed_steps">;

/**
 * Removes the files of finished jobs and superseded progress. Quarantines unknown jobs and progress that no row mentions.
 *
 * @returns the number of removed directories.
 */
async function sweepJobs(sweep: Sweep): Promise<number> {
  const { store, directory, quarantine, isSettled } = sweep;
  const jobs = new Map<string, JobFiles>();
  for (const ids of chunksOf(await entriesOf(directory.jobs), NAMES_AT_ONCE)) {
    const columns = store.selectFrom("jobs").select(["id", "status", "progress_dir", "committed_steps"]);
    for (const job of await columns.where("id", "in", ids).execute()) jobs.set(job.id, job);
  }
  const live: readonly string[] = LIVE_STATUSES;
  let removed = 0;
  for (const id of await entriesOf(directory.jobs)) {
    const path = join(directory.jobs, id);
    const job = jobs.get(id);
    if (job === undefined) {
      if (await isSettled(path)) await quarantine.add(path);
    } else if (!live.includes(job.status)) {
      await remove(path);
      removed++;
    } else removed += await sweepProgress(sweep, path, job);
  }
  return removed;
}

/** Removes superseded progress of an unfinished job with the directory `path`. @returns the number of removed directories. */
async function sweepProgress({ quarantine, isSettled }: Sweep, path: string, job: JobFiles): Promise<number> {
  const currentName = job.progress_dir === null ? null : basename(job.progress_dir);
  let removed = 0;
  for (const name of await entriesOf(path)) {
    // `commitProgress` of `states.ts` names the directories `progress-<steps>`, and on a shared database `progress-<steps>-<lease token>`.
    const [, steps] = /^progress-(\d+)(?:-\d+)?$/u.exec(name) ?? [];
    const progressPath = join(path, name);
    if (steps === undefined || name === currentName || !(await isSettled(progressPath))) continue;
    const isSuperseded = Number(steps) <= job.committed_steps;
    if (isSuperseded) {
      await remove(progressPath);
      removed++;
    } else await quarantine.add(progressPath);
  }
  return removed;
}

/**
 * Quarantines directories that no checkpoint mentions, and removes optimizer states that were dropped.
 *
 * @returns the number of removed files.
 */
async function sweepCheckpoints(sweep: Sweep): Promise<number> {
  const { directory, isSettled } = sweep;
  let removed = 0;
  for (const modelIds of chunksOf(await entriesOf(directory.checkpoints), NAMES_AT_ONCE)) {
    const optimizerKinds = await optimizerKindsByPath(sweep, modelIds);
    await quarantineUnknownStates(sweep, modelIds, optimizerKinds);
    for (const [path, kind] of optimizerKinds) {
      if (kind === null) removed += await removeEntries(path, (name) => name === OPTIMIZER_FILE, isSettled);
    }
  }
  return removed;
}

/** Optimizer kinds of checkpoints by the paths of their directories; null for a checkpoint without an optimizer state. */
type OptimizerKinds = ReadonlyMap<string, CheckpointRow["optimizer_kind"]>;

/** Returns the optimizer kinds of all checkpoints of models that have files. */
async function optimizerKindsByPath({ store, directory, logger }: Sweep, modelIds: readonly string[]): Promise<OptimizerKinds> {
  const rows = await store
    .selectFrom("checkpoints")
    .select(["id", "model_id", "step", "state_dir", "optimizer_kind"])
    .where("state_dir", "is not", null)
    .where("model_id", "in", modelIds)
    .execute();
  const kinds = new Map<string, CheckpointRow["optimizer_kind"]>();
  for (const row of rows) {
    const path = findStoredState(row);
    if (path !== null) kinds.set(join(directory.root, path), row.optimizer_kind);
    else logger.error("A checkpoint names files outside of its directory", { checkpoint: row.id, state_dir: row.state_dir });
  }
  return kinds;
}

/** Quarantines the directories of unknown models, and the directories of known models without a checkpoint. */
async function quarantineUnknownStates(
  { store, directory, quarantine, isSettled }: Sweep,
  directoryNames: readonly string[],
  knownStates: OptimizerKinds,
): Promise<void> {
  const models = await store.selectFrom("models").select("id").where("id", "in", directoryNames).execute();
  const modelIds = new Set(models.map(({ id }) => id));
  for (const name of directoryNames) {
    const modelPath = join(directory.checkpoints, name);
    const candidates = modelIds.has(name) ? (await entriesOf(modelPath)).map((step) => join(modelPath, step)) : [modelPath];
    const unknownPaths = candidates.filter((path) => !knownStates.has(path));
    for (const path of unknownPaths) if (await isSettled(path)) await quarantine.add(path);
  }
}

/** Quarantines token reports of unknown jobs. A report is the file `<job id>.json`. */
async function sweepTokens({ store, directory, quarantine, isSettled }: Sweep): Promise<void> {
  for (const names of chunksOf(await entriesOf(directory.tokens), NAMES_AT_ONCE)) {
    const ids = names.map((name) => basename(name, ".json"));
    const rows = await store.selectFrom("jobs").select("id").where("id", "in", ids).execute();
    const knownNames = new Set(rows.map(({ id }) => `${id}.json`));
    for (const name of names) {
      const path = join(directory.tokens, name);
      if (!knownNames.has(name) && (await isSettled(path))) await quarantine.add(path);
    }
  }
}

/** Quarantines blobs that no artifact file and no outcome of a rollout references. */
async function sweepBlobs({ store, quarantine, isSettled }: Sweep, blobs: BlobStore): Promise<void> {
  const quarantineUnreferenced = async (entries: readonly BlobEntry[]): Promise<void> => {
    const names = entries.map(({ name }) => name);
    const files = await store.selectFrom("artifact_files").select("sha256").where("sha256", "in", names).distinct().execute();
    const outcomes = await store
      .selectFrom("rollout_tasks")
      .select("outcome_sha256")
      .where("outcome_sha256", "in", names)
      .distinct()
      .execute();
    const referenced = new Set([...files.map(({ sha256 }) => sha256), ...outcomes.map(({ outcome_sha256: sha256 }) => sha256)]);
    for (const { name, path } of entries) if (!referenced.has(name) && (await isSettled(path))) await quarantine.add(path);
  };
  const batch: BlobEntry[] = [];
  for await (const entry of blobs.list()) {
    batch.push(entry);
    if (batch.length === NAMES_AT_ONCE) await quarantineUnreferenced(batch.splice(0));
  }
  await quarantineUnreferenced(batch);
}

/** Yields consecutive parts of a list, of `length` items each; the last part may be shorter. */
function* chunksOf<T>(list: readonly T[], length: number): Generator<T[], void> {
  for (let start = 0; start < list.length; start += length) yield list.slice(start, start + length);
}
