/**
 * List of the files that the database references, with their digests. Backup, verification and sweeps compare it with the files that exist.
 */
import { last } from "../../base/util/values.ts";
import { join } from "node:path";
import { sql } from "kysely";
import { DataCorruptedError } from "../../base/errors.ts";
import { OPTIMIZER_FILE } from "../../engine/port.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { filesBelow } from "../disk/on-disk.ts";
import { recordedSnapshots } from "../hub/recorded-digests.ts";
import { artifactUrl, stepName } from "../common/names.ts";
import { isReinforcement } from "../store/job-configs.ts";
import { LIVE_STATUSES } from "../store/jobs.ts";
import type { CheckpointRow, JobRow, ModelRow, Store } from "../store/tables.ts";
import type { Digests, FileDigest } from "../disk/digests.ts";
import {
  digestsOfCheckpoint,
  digestsOfJob,
  storedBlob,
  storedGroups,
  storedProgress,
  storedReport,
  storedState,
} from "../disk/stored-path.ts";

/** Folder of the data directory with cached base models. */
export const HUB = "hub";

/** File referenced by the database, or file of a fetched base model. */
export interface StoredFile {
  /** Path relative to the data directory, with `/` as the separator. */
  readonly path: string;
  /** Digest; null for a file written before digests were recorded. */
  readonly digest: FileDigest | null;
  /** Name of the object that the file belongs to. */
  readonly subject: string;
}

/** Whether a file is in the storage of the service; base models are only cached in the data directory. */
export function isInStorage({ path }: StoredFile): boolean {
  return !path.startsWith(`${HUB}/`);
}

/** Max rows read at one time by a service: reading blocks its event loop. */
const ROWS_PER_QUERY = 100;

/** Options of {@link eachStoredFile}. */
export interface InventoryOptions {
  /** Called with the error of a damaged row or record of digests; its files are left out. @default throws the error */
  readonly onDamagedRow?: ((error: DataCorruptedError) => void) | undefined;
  /** Max rows read at one time. @default 100, so that a service answers meanwhile */
  readonly pageRows?: number | undefined;
}

/** Lists all files that the database references and all files of fetched base models, by path. */
export async function storedFiles(store: Store, directory: DataDirectory): Promise<Map<string, StoredFile>> {
  const files = new Map<string, StoredFile>();
  for await (const file of eachStoredFile(store, directory)) files.set(file.path, file);
  return files;
}

/**
 * Returns the missing files that the database still references. Deletions remove the row before the file, so a file that was deleted since
 * it was listed has no row any more. Damaged rows are left out.
 */
export async function stillReferenced(store: Store, directory: DataDirectory, missing: readonly StoredFile[]): Promise<StoredFile[]> {
  if (missing.length === 0) return [];
  const paths = new Set<string>();
  for await (const { path } of eachStoredFile(store, directory, { onDamagedRow: () => undefined })) paths.add(path);
  return missing.filter(({ path }) => paths.has(path));
}

/**
 * Yields all files that the database references and all files of fetched base models. The rows are read in pages, so rows that are added or
 * deleted meanwhile may be included or not. The contents of artifact files are yielded once, for one of their artifacts.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a damaged row, without `onDamagedRow`.
 */
export async function* eachStoredFile(
  store: Store,
  directory: DataDirectory,
  { onDamagedRow, pageRows = ROWS_PER_QUERY }: InventoryOptions = {},
): AsyncGenerator<StoredFile, void> {
  const unlessDamaged = <T>(list: Promise<T[]>): Promise<T[]> =>
    list.catch((error: unknown) => {
      if (onDamagedRow === undefined || !(error instanceof DataCorruptedError)) throw error;
      onDamagedRow(error);
      return [];
    });
  for await (const { checkpoint, model } of eachCheckpoint(store, pageRows)) {
    yield* await unlessDamaged(checkpointFiles(directory, checkpoint, model));
  }
  for await (const job of eachJob(store, pageRows)) yield* await unlessDamaged(jobFiles(directory, job));
  yield* artifactContents(store, pageRows);
  yield* rolloutOutcomes(store, pageRows);
  yield* await unlessDamaged(baseModelFiles(directory));
}

/** Yields all checkpoints with their models, except for checkpoints deleted meanwhile. */
async function* eachCheckpoint(store: Store, pageRows: number): AsyncGenerator<{ checkpoint: CheckpointRow; model: ModelRow }, void> {
  const checkpoints = store.selectFrom("checkpoints").selectAll().orderBy("id").limit(pageRows);
  for await (const rows of pages((after) => checkpoints.where("id", ">", after).execute(), "id")) {
    const modelIds = rows.map(({ model_id: id }) => id);
    const modelRows = await store.selectFrom("models").selectAll().where("id", "in", modelIds).execute();
    const models = new Map(modelRows.map((model) => [model.id, model]));
    for (const checkpoint of rows) {
      const model = models.get(checkpoint.model_id);
      // Without a model, the checkpoint was deleted with its model since the page was read.
      if (model !== undefined) yield { checkpoint, model };
    }
  }
}

/** Yields all jobs. */
async function* eachJob(store: Store, pageRows: number): AsyncGenerator<JobRow, void> {
  const jobs = store.selectFrom("jobs").selectAll().orderBy("id").limit(pageRows);
  for await (const rows of pages((after) => jobs.where("id", ">", after).execute(), "id")) yield* rows;
}

/** Yields the outcomes of rollout tasks. */
async function* rolloutOutcomes(store: Store, pageRows: number): AsyncGenerator<StoredFile, void> {
  const outcomes = store.selectFrom("rollout_tasks").selectAll().where("outcome_sha256", "is not", null).orderBy("id").limit(pageRows);
  for await (const rows of pages((after) => outcomes.where("id", ">", after).execute(), "id")) {
    for (const { id, outcome_sha256: sha256, outcome_bytes: bytes } of rows) {
      if (sha256 === null) continue;
      yield { path: storedBlob(sha256), digest: { sha256, size_bytes: bytes ?? 0 }, subject: `outcome of rollout task '${id}'` };
    }
  }
}

/** Lists the files of fetched base models. */
async function baseModelFiles({ root }: DataDirectory): Promise<StoredFile[]> {
  const snapshots = await recordedSnapshots(join(root, HUB));
  return snapshots.flatMap(({ name, folder, commit, digests }) =>
    Object.entries(digests).map(([file, digest]) => ({
      path: `${HUB}/${folder}/snapshots/${commit}/${file}`,
      digest,
      subject: `base model '${name}'`,
    })),
  );
}

/** Yields each content of artifact files once: for the first row with its digest, in the order of artifact and path. */
async function* artifactContents(store: Store, pageRows: number): AsyncGenerator<StoredFile, void> {
  const contents = store
    .selectFrom("artifact_files")
    .innerJoin("artifacts", "artifacts.id", "artifact_files.artifact_id")
    .selectAll()
    .where((where) => {
      const earlier = sql<boolean>`(earlier.artifact_id, earlier.path) < (artifact_files.artifact_id, artifact_files.path)`;
      const same = where.selectFrom("artifact_files as earlier").whereRef("earlier.sha256", "=", "artifact_files.sha256").where(earlier);
      return where.not(where.exists(same.select("earlier.sha256")));
    })
    .orderBy("sha256")
    .limit(pageRows);
  for await (const rows of pages((after) => contents.where("sha256", ">", after).execute(), "sha256")) {
    for (const { sha256, size_bytes, path, ...artifact } of rows)
      yield { path: storedBlob(sha256), digest: { sha256, size_bytes }, subject: `file '${path}' of artifact '${artifactUrl(artifact)}'` };
  }
}

/** Yields the pages of a query until one is empty. `read` returns the rows after a value of the column `key`, in its order. */
async function* pages<Key extends string, Row extends Readonly<Record<Key, string>>>(
  read: (after: string) => Promise<Row[]>,
  key: Key,
): AsyncGenerator<Row[], void> {
  for (let rows = await read(""); rows.length > 0; rows = await read(last(rows)[key])) yield rows;
}

/** Lists the files of a checkpoint, without a dropped optimizer state. */
async function checkpointFiles(directory: DataDirectory, row: CheckpointRow, model: ModelRow): Promise<StoredFile[]> {
  if (row.state_dir === null) return [];
  const digests = digestsOfCheckpoint(row);
  const files = await withDigests(directory, digests, {
    storedPath: storedState(row),
    subject: `checkpoint '${stepName(model, row.step)}'`,
  });
  return row.optimizer_kind === null ? files.filter(({ path }) => !path.endsWith(`/${OPTIMIZER_FILE}`)) : files;
}

/** Lists the files of a job. */
async function jobFiles(directory: DataDirectory, row: JobRow): Promise<StoredFile[]> {
  const subject = `training job '${row.id}'`;
  const digests = digestsOfJob(row);
  if (digests !== null) return Object.entries(digests).map(([path, digest]) => ({ path, digest, subject }));
  // For jobs created before digests were recorded: groups, progress, and the token report if one exists.
  const isLive = (LIVE_STATUSES as readonly string[]).includes(row.status);
  const groups = isLive && row.type === "rl" && !isReinforcement(row) ? [storedGroups(row.id)] : [];
  const progress = row.progress_dir === null ? [] : await withDigests(directory, null, { storedPath: storedProgress(row), subject });
  const reports = (await filesBelow(directory, directory.tokens)).filter((storedPath) => storedPath === storedReport(row.id));
  return [...[...groups, ...reports].map((path) => ({ path, digest: null, subject })), ...progress];
}

/**
 * Returns the files of a directory with their recorded digests, or else the existing files without digests. A missing directory counts as a
 * missing file.
 */
async function withDigests(
  directory: DataDirectory,
  digests: Digests | null,
  { storedPath, subject }: { readonly storedPath: string; readonly subject: string },
): Promise<StoredFile[]> {
  if (digests !== null) return Object.entries(digests).map(([path, digest]) => ({ path, digest, subject }));
  const existingPaths = await filesBelow(directory, join(directory.root, storedPath));
  return (existingPaths.length === 0 ? [storedPath] : existingPaths).map((path) => ({ path, digest: null, subject }));
}
